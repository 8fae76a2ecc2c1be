"""The worker process that compiles and renders a model's chat templates, within limits that the driver enforces.

Only this module imports Jinja: a run whose prompts need no template works without it.
"""

import json
import random
import socket
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import NoReturn, cast

from jinja2 import Template, TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from slime_core.data.chat_template import FAILED, MADE, MEMORY, REFUSED, Answer
from slime_core.processes.forked import receive, send
from slime_core.processes.limits import limit_memory
from slime_core.sample import Json

Renderings = list[tuple[str, dict[str, Json]]]
"""For each text to render, the name of its template and the variables."""
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


# The worker.


def main(channel_fd: int) -> None:
    """Serve requests until the other end closes."""
    channel = socket.socket(fileno=channel_fd)
    sources, day, memory_mb = cast(tuple[dict[str, str], str, int], _received(channel))
    limit_memory(memory_mb)
    templates = dict[str, Template]()
    _tell(channel, _compiled(Dialect(date.fromisoformat(day)), sources, templates))
    while True:
        try:
            request = _received(channel)
        except (EOFError, ConnectionError):
            return
        _tell(channel, [_rendered(templates[name], own) for name, own in cast(Renderings, request)])


def _compiled(
    dialect: Dialect, sources: Mapping[str, str], templates: dict[str, Template]
) -> tuple[str, str | list[str]]:
    """Compile all templates; returns the variables that they read, or the problem."""
    try:
        templates.update({name: dialect.from_string(text) for name, text in sources.items()})
        read = [meta.find_undeclared_variables(dialect.parse(text)) for text in sources.values()]
        return MADE, sorted(set[str]().union(*read))
    except TemplateSyntaxError as error:
        return FAILED, f"is broken in line {error.lineno}: {error.message}"
    except MemoryError:
        return FAILED, "needs too much memory"
    except RecursionError:
        return FAILED, "is nested too deeply"
    except Exception as error:
        return FAILED, f"cannot be compiled: {_described(error)}"


def _rendered(template: Template, variables: Mapping[str, Json]) -> Answer:
    random.seed(0)  # repeatable, if a template uses random numbers
    try:
        return MADE, template.render(variables)
    except TemplateError as error:
        return REFUSED, str(error)[:LONGEST_DETAIL]
    except MemoryError:
        return MEMORY, ""
    except Exception as error:  # templates may raise any error
        return FAILED, _described(error)


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")[:LONGEST_DETAIL]


def _tell(channel: socket.socket, answer: object) -> None:
    send(channel, json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _received(channel: socket.socket) -> object:
    return json.loads(receive(channel).decode("utf-8", "surrogatepass"))
