"""Families that write a call's parameters with tags rather than JSON: Qwen 3 Coder and GLM.

Example:

    <tool_call>
    <function=add>
    <parameter=a>
    1
    </parameter>
    </function>
    </tool_call>

    <tool_call>add
    <arg_key>a</arg_key>
    <arg_value>1</arg_value>
    </tool_call>
"""

import enum
import json
from collections.abc import Iterator, Mapping, Sequence

from slime_agent_openai.message import Tool
from slime_agent_openai.parsers.answer import NOTHING, THINK, Draft, Family, Form, can_name
from slime_agent_openai.parsers.pieces import Piece
from slime_core.sample import Json

_PYTHON = {"True": "true", "False": "false", "None": "null"}
"""What templates make of these values that print them as they are."""
_DEPTH = 8  # Schemas that refer to each other more often are taken for endless
_NAMES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


class Arguments:
    """The arguments of one call."""

    def __init__(self, tools: Sequence[Tool], name: str) -> None:
        given = next((tool.parameters for tool in tools if tool.name == name), "{}")
        try:
            self._schema: Json = json.loads(given)
        except ValueError:
            self._schema = None
        self._empty = True

    def add(self, key: str, value: str) -> str:
        before = "{" if self._empty else ", "
        self._empty = False
        return f"{before}{json.dumps(key, ensure_ascii=False)}: {self._typed(key, value)}"

    def close(self) -> str:
        return "{}" if self._empty else "}"

    def _typed(self, key: str, value: str) -> str:
        properties = self._schema.get("properties") if isinstance(self._schema, dict) else None
        types = set(_types(properties.get(key) if isinstance(properties, dict) else None, self._schema))
        plain = value.strip()
        word = _PYTHON.get(plain, plain)
        if (word == "null" and "null" in types) or (types - {"null"} and "string" not in types and _is_json(word)):
            return word
        return json.dumps(value, ensure_ascii=False)


def _types(schema: Json, root: Json, depth: int = 0) -> Iterator[str]:
    if not isinstance(schema, dict) or depth > _DEPTH:
        return
    given = schema.get("type")
    yield from (each for each in (given if isinstance(given, list) else [given]) if isinstance(each, str))
    for name in ("anyOf", "oneOf", "allOf"):
        options = schema.get(name)
        for option in options if isinstance(options, list) else []:
            yield from _types(option, root, depth + 1)
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield from _types(_referred(reference, root), root, depth + 1)
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if given is None and isinstance(values, list):
        yield from (_NAMES[type(value)] for value in values)


def _referred(reference: str, root: Json) -> Json:
    found = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    """NaN and infinity are not JSON, though Python reads them."""
    raise ValueError(constant)


OPENS, CLOSES = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_ENDS, PARAMETER, PARAMETER_ENDS = "<function=", "</function>", "<parameter=", "</parameter>"
KEY, KEY_ENDS, VALUE, VALUE_ENDS = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"


class _In(enum.Enum):
    """Where a reader is."""

    CALL = enum.auto()
    NAME = enum.auto()
    FUNCTION = enum.auto()
    KEY = enum.auto()
    KEYED = enum.auto()
    VALUE = enum.auto()
    DONE = enum.auto()


class TaggedCall:
    """What both have in common: a `CallReader`, but for `_mark` and `_text`."""

    _in = _In.CALL

    def __init__(self, draft: Draft, tools: tuple[Tool, ...], raw: str) -> None:
        self._draft, self._tools, self._raw = draft, tools, raw
        self._arguments: Arguments | None = None
        self._read: list[str] = []
        self._key = ""

    def feed(self, piece: Piece) -> Piece | None:
        if piece.marker and piece.text == CLOSES and self._closes():
            return NOTHING
        left = self._mark(piece.text) if piece.marker else self._text(piece.text)
        if self._arguments is None:
            self._raw += piece.text.removesuffix(left)
        if not left:
            return None
        begun = self._arguments is not None
        self._fail()
        return NOTHING if begun and piece.marker and left == CLOSES else Piece(left, piece.marker)

    def end(self) -> None:
        if self._in is _In.DONE:
            self._draft.end()
        else:
            self._fail()

    def _closes(self) -> bool:
        if self._in is _In.DONE:
            self._draft.end()
        return self._in is _In.DONE

    def _mark(self, marker: str) -> str:
        """Read a marker; what is left of it: nothing, or all if it is not expected."""
        raise NotImplementedError

    def _text(self, text: str) -> str:
        """Read a text; what is left from where it is not expected."""
        raise NotImplementedError

    def _begin(self) -> bool:
        name, self._read = "".join(self._read).strip(), []
        if can_name(name):
            self._arguments = Arguments(self._tools, name)
            self._draft.begin(name)
        return can_name(name)

    def _add(self, value: str) -> None:
        if self._arguments is not None:
            self._draft.arguments(self._arguments.add(self._key, value))
        self._read = []

    def _done(self) -> None:
        self._in = _In.DONE
        if self._arguments is not None:
            self._draft.arguments(self._arguments.close())

    def _fail(self) -> None:
        if self._arguments is not None:
            self._draft.end(whole=False)
        else:
            self._draft.back(self._raw)


class CoderCall(TaggedCall):
    """`<function=NAME><parameter=KEY>`, a value on lines of its own."""

    def _mark(self, marker: str) -> str:
        match self._in, marker:
            case _In.VALUE, str() if marker != PARAMETER_ENDS:
                self._read.append(marker)
            case _In.VALUE, _:
                self._add("".join(self._read).removeprefix("\n").removesuffix("\n"))
                self._in = _In.FUNCTION
            case _In.CALL, str() if marker == FUNCTION:
                self._in = _In.NAME
            case _In.FUNCTION, str() if marker == PARAMETER:
                self._in = _In.KEY
            case _In.FUNCTION, str() if marker == FUNCTION_ENDS:
                self._done()
            case _:
                return marker
        return ""

    def _text(self, text: str) -> str:
        if self._in is _In.VALUE:
            self._read.append(text)
            return ""
        if self._in not in (_In.NAME, _In.KEY):
            return text if text.strip() else ""
        word, tag_ends, more = text.partition(">")
        self._read.append(word)
        if not tag_ends:
            return ""
        if self._in is _In.NAME:
            self._in = _In.FUNCTION
            return self._text(more) if self._begin() else text
        self._key, self._read, self._in = "".join(self._read).strip(), [], _In.VALUE
        return self._text(more)


class GlmCall(TaggedCall):
    """`NAME`, then `<arg_key>` and `<arg_value>` in turn."""

    _in = _In.NAME

    def _closes(self) -> bool:
        if self._in is _In.NAME and can_name("".join(self._read).strip()):
            self._begin()
            self._in = _In.FUNCTION
        if self._in is _In.FUNCTION:
            self._done()
        return super()._closes()

    def _mark(self, marker: str) -> str:
        match self._in:
            case _In.NAME if marker == KEY:
                self._in = _In.KEY
                return "" if self._begin() else marker
            case _In.FUNCTION if marker == KEY:
                self._in = _In.KEY
            case _In.KEY if marker == KEY_ENDS:
                self._key, self._read, self._in = "".join(self._read), [], _In.KEYED
            case _In.KEYED if marker == VALUE:
                self._in = _In.VALUE
            case _In.VALUE if marker == VALUE_ENDS:
                self._add("".join(self._read))
                self._in = _In.FUNCTION
            case _In.VALUE:
                self._read.append(marker)
            case _:
                return marker
        return ""

    def _text(self, text: str) -> str:
        if self._in in (_In.NAME, _In.KEY, _In.VALUE):
            self._read.append(text)
            return ""
        return text if text.strip() else ""


CODER = Family(
    "qwen3-coder",
    frozenset({OPENS, CLOSES, FUNCTION, FUNCTION_ENDS, PARAMETER, PARAMETER_ENDS, *THINK}),
    Form({OPENS: CoderCall}).parser,
    "<function=…> in <tool_call>: Qwen 3 Coder, Qwen 3.5 and later, Nemotron 3",
)
GLM = Family(
    "glm",
    frozenset({OPENS, CLOSES, KEY, KEY_ENDS, VALUE, VALUE_ENDS, *THINK}),
    Form({OPENS: GlmCall}).parser,
    "<arg_key> and <arg_value> in <tool_call>: GLM 4.5 and later",
)
