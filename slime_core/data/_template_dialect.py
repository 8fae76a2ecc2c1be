"""The dialect of Jinja in which chat templates are written, as transformers has it, in a sandbox.

Trimmed blocks, `tojson`, `raise_exception`, `strftime_now`, `generation`. It has no limits of time or memory: a
template comes with a model, so only a worker process with limits compiles and renders it.
"""

import json
from datetime import date, datetime, time
from typing import NoReturn

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

_OF_DICTS = frozenset(dir(dict))
"""What is an attribute of a dict before it is a member."""


class Generation(Extension):
    """`{% generation %}` marks the assistant's part for trainers; it prints its body."""

    tags = {"generation"}  # noqa: RUF012  # jinja2 declares it a plain set

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The body alone."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Dialect(ImmutableSandboxedEnvironment):
    """Compiles templates."""

    def __init__(self, day: date) -> None:
        """Set up as transformers does, so that a text is the same; `strftime_now` formats the beginning of `day`."""
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _refuse
        self.globals["strftime_now"] = datetime.combine(day, time()).strftime

    def getattr(self, obj: object, attribute: str) -> object:
        """`message.role`: of a plain dict the member at once, for to fail as an attribute first takes longer."""
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
    """JSON as templates expect it: no HTML escapes, unlike Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
