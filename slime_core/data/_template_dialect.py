"""The dialect of Jinja in which chat templates are written, in a sandbox with limits: a template comes with a model.

Trimmed blocks, `tojson`, `raise_exception`, `generation`; every turn of a loop and every macro looks at the clock.
"""

import json
import threading
import time
from collections.abc import Iterable
from typing import NoReturn, TypeVar

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

Body = TypeVar("Body", nodes.For, nodes.Macro)

LIMIT_S = 10.0
"""Seconds that one rendering may take: ordinary ones take less than a millisecond."""
MOST_CHARACTERS = 64_000_000
"""Characters of one rendering, and of any text that is put together meanwhile."""
LARGEST_POWER = 10_000
"""Exponent from which on a power is refused: it may take for ever, and no loop turns meanwhile."""


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
    """Compiles templates that end."""

    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self) -> None:
        """Set up as transformers does, so that a text is the same."""
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _refuse
        del self.globals["lipsum"]  # random text, of any length, in one call
        self._began = threading.local()

    def text_of(self, pieces: Iterable[str]) -> str:
        """What a template's `generate` makes.

        Raises:
            TemplateError: it takes too long, or there is too much of it.
        """
        self._began.at = time.monotonic()
        made, count = list[str](), 0
        for piece in pieces:
            made.append(piece)
            count += len(piece)
            if count > MOST_CHARACTERS:
                raise TemplateError(f"it has made more than {MOST_CHARACTERS} characters and goes on")
        return "".join(made)

    def tick(self) -> None:
        """Look at the clock."""
        if time.monotonic() - self._began.at > LIMIT_S:
            raise TemplateError(f"it is not done after {LIMIT_S:g} s")

    def joined(self, *parts: object) -> str:
        """`a ~ b`, of a length that there is room for: what doubles in each turn of a loop has no end in sight."""
        texts = [str(each) for each in parts]
        _fits(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Sums, products and powers, of a size that there is room and time for."""
        sizes = [each for each in (left, right) if isinstance(each, int)]
        if operator == "**" and any(abs(each) > LARGEST_POWER for each in sizes):
            raise TemplateError(f"a power of more than {LARGEST_POWER}")
        texts = [len(each) for each in (left, right) if isinstance(each, str | list | tuple)]
        if operator == "*" and texts and sizes:
            _fits(texts[0] * sizes[0])
        if operator == "+":
            _fits(sum(texts))
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: object, attribute: str) -> object:
        """`message.role`: of a plain dict the member at once, for to fail as an attribute first takes longer."""
        if type(obj) is dict and attribute in obj and attribute not in _OF_DICTS:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def _generate(self, source: nodes.Template, *arguments: object, **keywords: object) -> str:
        return super()._generate(_Ticking().visit(source), *arguments, **keywords)  # type: ignore[arg-type]  # jinja2's own arguments, passed on


class _Ticking(NodeTransformer):
    """Has each turn of a loop and each macro begin with a look at the clock, and texts joined within limits."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802  # the library's name
        return self._looking(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Macro:  # noqa: N802  # it may call itself, and twice each time
        return self._looking(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:  # noqa: N802
        self.generic_visit(node)
        joined = nodes.Call(nodes.EnvironmentAttribute("joined"), node.nodes, [], None, None)
        joined.set_lineno(node.lineno, override=True)
        return joined

    def _looking(self, node: Body) -> Body:
        self.generic_visit(node)
        look = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None)
        node.body.insert(0, nodes.ExprStmt(look).set_lineno(node.lineno, override=True))
        return node


def _fits(characters: int) -> None:
    if characters > MOST_CHARACTERS:
        raise TemplateError(f"a text of more than {MOST_CHARACTERS} characters")


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
