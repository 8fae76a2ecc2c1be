"""The worker process that compiles and renders a model's chat templates, within limits that the driver enforces.

Only this module imports Jinja: a run whose prompts need no template works without it.
"""

import json
import os
import random
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from slime_core.data.chat_template import FAILED, MADE, REFUSED, Answer
from slime_core.errors import ModelError
from slime_core.processes.limits import limit_memory

LONGEST_DETAIL = 2_000
"""Characters of an error that are sent back."""
_OF_DICTS = frozenset(dir(dict))
"""Attributes of dicts, which take precedence over keys."""


class Generation(Extension):
    """`{% generation %}` marks the assistant's text for trainers; it renders its body."""

    tags = {"generation"}  # noqa: RUF012  # jinja2 declares it a plain set

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return only the body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Dialect(ImmutableSandboxedEnvironment):
    """Jinja environment for chat templates."""

    def __init__(self, day: date) -> None:
        """Configure Jinja as transformers does, for identical texts; `strftime_now` formats midnight of `day`."""
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _refuse
        self.globals["strftime_now"] = datetime.combine(day, time()).strftime

    def getattr(self, obj: object, attribute: str) -> object:
        """Resolve `message.role` on a plain dict directly, which is faster than trying an attribute first."""
        if type(obj) is dict and attribute in obj and attribute not in _OF_DICTS:
            return obj[attribute]
        return super().getattr(obj, attribute)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON without HTML escapes, as templates expect, unlike Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class TemplateWorker:
    """The object of the worker process: the compiled templates of a model."""

    def __init__(self, rank: int, size: int, *, sources: Mapping[str, str], day: str, memory_mb: int) -> None:
        """Compile all templates; ModelError for a broken one."""
        limit_memory(memory_mb)
        dialect, self._reads = Dialect(date.fromisoformat(day)), set[str]()
        try:
            self._templates = {name: dialect.from_string(text) for name, text in sources.items()}
            for text in sources.values():
                self._reads |= meta.find_undeclared_variables(dialect.parse(text))
        except TemplateSyntaxError as error:
            raise ModelError(f"is broken in line {error.lineno}: {error.message}") from None
        except MemoryError:
            raise ModelError("needs too much memory") from None
        except RecursionError:
            raise ModelError("is nested too deeply") from None
        except Exception as error:
            raise ModelError(f"cannot be compiled: {_described(error)}") from None

    def arguments(self) -> list[str]:
        """Return the variables that the templates read."""
        return sorted(self._reads)

    def render(self, requests: Sequence[str]) -> list[Answer]:
        """Return a text for each request, or the problem. A request is JSON of a template's name and its variables."""
        return [_rendered(self._templates, request) for request in requests]


def _rendered(templates: Mapping[str, Template], request: str) -> Answer:
    random.seed(0)  # repeatable, if a template uses random numbers
    try:
        name, variables = json.loads(request)
        return MADE, templates[name].render(variables)
    except TemplateError as error:
        return REFUSED, str(error)[:LONGEST_DETAIL]
    except MemoryError:
        os._exit(1)  # frees the memory
    except Exception as error:  # templates may raise any error
        return FAILED, _described(error)


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")[:LONGEST_DETAIL]
