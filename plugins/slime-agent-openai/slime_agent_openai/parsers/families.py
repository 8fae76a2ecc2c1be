r"""Formats of tool calls: each family of this package has a function that reads the text of a section.

Example:

    <tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>                               hermes
    <tool_call><function=add><parameter=a>\n1\n</parameter></function></tool_call>                      qwen3-coder
    <tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>                              glm
    {"name": "add", "parameters": {"a": 1, "b": 2}}; {"name": ...}                                      llama3
    [TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}, "id": "D681PevKs"}]                            mistral
    [TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]add[CALL_ID]D681PevKs[ARGS]{"a": 2}                        mistral
    <|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{"a": 1}
    <|tool_call_end|><|tool_calls_section_end|>                                                         kimi-k2
    <|tool_call_start|>[add(a=1, b=2), note(text='It\'s 3')]<|tool_call_end|>                           lfm2
    <|tool_call>call:add{a:1,note:<|"|>both, too<|"|>}<tool_call|>                                      gemma4
    <|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1, "b": 2}<|call|>         gpt-oss
"""

import enum
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from slime_agent_openai.message import Delta, Tool
from slime_agent_openai.parsers.answer import BrokenCall, Draft, Family, ParsedCall, Read, Section, Strings, family_of
from slime_agent_openai.parsers.pieces import Piece
from slime_agent_openai.wires.wire import NewId
from slime_core.sample import Json

_decode = json.JSONDecoder().raw_decode
_SPACE = re.compile(r"\s*")
_CONSTANTS: Mapping[str, str] = {"True": "true", "False": "false", "None": "null"}
"""JSON of the constants that templates print in Python's syntax."""


def _skip(text: str, at: int, pattern: re.Pattern[str] = _SPACE) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _refuse_rest(text: str, at: int = 0) -> None:
    if text[at:].strip():
        raise ValueError("unexpected text after a call")


def _members(text: str, at: int) -> tuple[dict[str, str], int]:
    """Members of the JSON object at a position, each value as it is written, and the position behind the object."""
    value, end = _decode(text, at)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    members: dict[str, str] = {}
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, at = _decode(text, at)
        begin = _skip(text, _skip(text, at) + 1)
        _, at = _decode(text, begin)
        members.setdefault(key, text[begin:at])
        at = _skip(text, at)
        at = _skip(text, at + (text[at] == ","))
    return members, end


def _json_call(text: str, at: int) -> tuple[ParsedCall, int]:
    members, end = _members(text, at)
    arguments = members.get("arguments", members.get("parameters", "{}"))
    name = json.loads(members.get("name", "null"))
    return ParsedCall(name if isinstance(name, str) else "", arguments), end


def _json_list(text: str) -> tuple[list[ParsedCall], int]:
    at, calls = _skip(text, 0), []
    _, end = _decode(text, at)
    _refuse_rest(text[at : at + 1].removeprefix("["))
    at = _skip(text, at + 1)
    while text[at] != "]":
        call, at = _json_call(text, at)
        calls.append(call)
        at = _skip(text, _skip(text, at) + (text[_skip(text, at)] == ","))
    return calls, end


def _read_hermes(text: str, tools: Sequence[Tool]) -> tuple[list[ParsedCall], str]:
    call, end = _json_call(text, _skip(text, 0))
    _refuse_rest(text, end)
    return [call], ""


HERMES = family_of(
    "hermes",
    "JSON in <tool_call>: Qwen 2.5, Qwen 3, Hermes",
    Section("<tool_call>", _read_hermes, "</tool_call>"),
)

_SEPARATOR = re.compile(r"[\s;]*")
_ARGUMENTS = frozenset({"arguments", "parameters"})
_KEYS = _ARGUMENTS | {"name", "type", "id"}


_UNFINISHED = re.compile(r'\{\s*(?:"type"[^,]*,\s*)?"name"\s*:\s*"([^"]*)"\s*,\s*"(?:arguments|parameters)"\s*:')


def _read_llama(text: str, tools: Sequence[Tool]) -> tuple[list[ParsedCall], str]:
    """Calls are JSON objects with the right keys and a known tool's name. Text may follow the last call."""
    calls, known = list[ParsedCall](), {tool.name for tool in tools}
    end, at = 0, _skip(text, 0, _SEPARATOR)
    while at < len(text):
        try:
            members, _ = _members(text, at)
            call, after = _json_call(text, at)
            if call.name not in known or not members.keys() <= _KEYS or members.keys().isdisjoint(_ARGUMENTS):
                raise ValueError("no call")
        except (ValueError, RecursionError):
            if calls:
                return calls, text[end:]
            if (unfinished := _UNFINISHED.match(text, at)) and unfinished[1] in known:
                raise BrokenCall from None
            raise
        calls.append(call)
        end = after
        at = _skip(text, end, _SEPARATOR)
    return calls, ""


LLAMA3 = family_of(
    "llama3",
    "the answer is JSON, or JSON after <|python_tag|>: Llama 3.1, 3.2 and 3.3",
    Section("<|python_tag|>", _read_llama),
    Section("", _read_llama),
    think=None,
)

_NAME = re.compile(r"\s*([^\s\[{]+)\s*(?:\[CALL_ID\][^\[]*)?(?:\[ARGS\]\s*)?(?=\{)")


def _read_mistral(text: str, tools: Sequence[Tool]) -> tuple[list[ParsedCall], str]:
    """A list of calls, or one call with its name before its arguments; text may follow."""
    if found := _NAME.match(text):
        _, end = _decode(text, found.end())
        return [ParsedCall(found[1], text[found.end() : end])], text[end:]
    calls, end = _json_list(text)
    return calls, text[end:]


MISTRAL = family_of(
    "mistral",
    "calls after [TOOL_CALLS]: Mistral, Ministral, Devstral, Magistral",
    Section("[TOOL_CALLS]", _read_mistral, inside=frozenset({"[CALL_ID]", "[ARGS]"})),
    think=("[THINK]", "[/THINK]"),
)


def _reads_marked(head: str, tail: str) -> Read:
    """Reads calls with markers around name and JSON: `head` has the groups `name` and `id`."""
    begins, ends = re.compile(head), re.compile(tail)

    def read(text: str, tools: Sequence[Tool]) -> tuple[list[ParsedCall], str]:
        calls, at = [], _skip(text, 0)
        while at < len(text):
            opening = begins.match(text, at)
            if opening is None:
                raise ValueError("no call")
            _, end = _decode(text, opening.end())
            groups = opening.groupdict()
            name = groups["name"] or groups.get("old") or ""
            calls.append(ParsedCall(name.strip(), text[opening.end() : end], groups.get("id") or ""))
            if (closing := ends.match(text, end)) is None:
                raise ValueError("text after the arguments")
            at = closing.end()
        return calls, ""

    return read


_DEEPSEEK_CALL, _DEEPSEEK_PARTS, _DEEPSEEK_ENDS = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
DEEPSEEK = family_of(
    "deepseek",
    "calls after <｜tool▁calls▁begin｜>: DeepSeek V3, R1, V3.1 and V3.2-Exp",
    Section(
        "<｜tool▁calls▁begin｜>",
        _reads_marked(
            rf"{_DEEPSEEK_CALL}(?:\s*function\s*{_DEEPSEEK_PARTS}(?P<old>[^\n{{]+)\n\s*```(?:json)?"
            rf"|(?P<name>[^<｜]+){_DEEPSEEK_PARTS})\s*(?=\{{)",
            rf"\s*(?:```\s*)?(?:{_DEEPSEEK_ENDS}\s*|$)",
        ),
        "<｜tool▁calls▁end｜>",
        frozenset({_DEEPSEEK_CALL, _DEEPSEEK_PARTS, _DEEPSEEK_ENDS}),
    ),
)
KIMI = family_of(
    "kimi-k2",
    "calls after <|tool_calls_section_begin|>: Kimi K2",
    Section(
        "<|tool_calls_section_begin|>",
        _reads_marked(
            r"<\|tool_call_begin\|>\s*"
            r"(?:(?P<id>functions\.(?P<old>[^\s:<]+):\d+)|(?:functions\.)?(?P<name>[^\s:<]+)(?::\d+)?)"
            r"\s*<\|tool_call_argument_begin\|>\s*(?=\{)",
            r"\s*(?:<\|tool_call_end\|>\s*|$)",
        ),
        "<|tool_calls_section_end|>",
        frozenset({"<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"}),
    ),
)

_DEPTH = 8  # Most nested references between schemas that are followed
_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


def typed_arguments(pairs: Iterable[tuple[str, str]], name: str, tools: Sequence[Tool]) -> str:
    """Converts arguments written as text to JSON of the types in the tool's schema."""
    parameters = next((tool.parameters for tool in tools if tool.name == name), "{}")
    try:
        schema: Json = json.loads(parameters)
    except ValueError:
        schema = None
    properties = schema.get("properties") if isinstance(schema, dict) else None
    known = properties if isinstance(properties, dict) else {}
    members = (f"{_quoted(key)}: {_typed(value, set(_types(known.get(key), schema)))}" for key, value in pairs)
    return f"{{{', '.join(members)}}}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _typed(value: str, types: set[str]) -> str:
    word = _CONSTANTS.get(value.strip(), value.strip())
    if (word == "null" and "null" in types) or (types - {"null"} and "string" not in types and _is_json(word)):
        return word
    return _quoted(value)


def _types(schema: Json, root: Json, depth: int = 0) -> Iterator[str]:
    if not isinstance(schema, dict) or depth > _DEPTH:
        return
    declared = schema.get("type")
    yield from (each for each in (declared if isinstance(declared, list) else [declared]) if isinstance(each, str))
    for keyword in ("anyOf", "oneOf", "allOf"):
        options = schema.get(keyword)
        for option in options if isinstance(options, list) else []:
            yield from _types(option, root, depth + 1)
    if isinstance(reference := schema.get("$ref"), str):
        target = root
        for part in reference.removeprefix("#/").split("/"):
            target = target.get(part) if isinstance(target, dict) else None
        yield from _types(target, root, depth + 1)
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if declared is None and isinstance(values, list):
        yield from (_TYPES[type(value)] for value in values)


def _is_json(text: str) -> bool:
    try:
        json.dumps(json.loads(text), allow_nan=False)  # Python reads NaN and infinity, which are not JSON
    except (ValueError, RecursionError):
        return False
    return True


_FUNCTION = re.compile(r"\s*<function=([^>]*)>")
_PARAMETER = re.compile(r"\s*<parameter=([^>]*)>\n?(.*?)\n?</parameter>", re.DOTALL)


def _read_coder(text: str, tools: Sequence[Tool]) -> tuple[list[ParsedCall], str]:
    if (opening := _FUNCTION.match(text)) is None:
        raise ValueError("no function")
    pairs, at = _pairs(_PARAMETER, text, opening.end())
    _refuse_rest(text[at:].strip().removesuffix("</function>") if "</function>" in text[at:] else "unended")
    name = opening[1].strip()
    return [ParsedCall(name, typed_arguments(((key.strip(), value) for key, value in pairs), name, tools))], ""


def _pairs(pattern: re.Pattern[str], text: str, at: int) -> tuple[list[tuple[str, str]], int]:
    pairs = []
    while found := pattern.match(text, at):
        pairs.append((found[1], found[2]))
        at = found.end()
    return pairs, at


CODER = family_of(
    "qwen3-coder",
    "<function=…> in <tool_call>: Qwen 3 Coder, Qwen 3.5 and later, Nemotron 3",
    Section(
        "<tool_call>",
        _read_coder,
        "</tool_call>",
        frozenset({"<function=", "</function>"}),
        ("<parameter=", "</parameter>"),
    ),
)

_KEY_VALUE = re.compile(r"\s*<arg_key>([^<]*)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)


def _read_glm(text: str, tools: Sequence[Tool]) -> tuple[list[ParsedCall], str]:
    name = text.partition("<")[0]
    pairs, at = _pairs(_KEY_VALUE, text, len(name))
    _refuse_rest(text, at)
    return [ParsedCall(name.strip(), typed_arguments(pairs, name.strip(), tools))], ""


GLM = family_of(
    "glm",
    "<arg_key> and <arg_value> in <tool_call>: GLM 4.5 and later",
    Section(
        "<tool_call>",
        _read_glm,
        "</tool_call>",
        frozenset({"<arg_key>", "</arg_key>"}),
        ("<arg_value>", "</arg_value>"),
        must_close=True,
    ),
)


_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_LFM_PARTS = re.compile(
    r"""(['"])((?:\\.|[^\\])*?)\1(?=\s*[,)\]}:=])|['"].*|,\s*(?=[)\]}])"""
    r"""|([^\s()\[\]{},:='"]+)\s*([(=]?)\s*|\)""",
    re.DOTALL,
)
"""Tokens of LFM's syntax: strings (or an unfinished rest), commas before a bracket, words, ends of calls.

LFM2.5's templates escape nothing in a string: it ends at the first quote after which the list can continue.
"""
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


def _read_lfm(text: str, tools: Sequence[Tool]) -> tuple[list[ParsedCall], str]:
    """A list of calls in Python's syntax, converted to a JSON list of objects."""
    listed = _LFM_PARTS.sub(_lfm_json, text)
    calls, end = _json_list(listed)
    _refuse_rest(listed, end)
    if len(calls) < sum(part[4] == "(" for part in _LFM_PARTS.finditer(text)):
        raise ValueError("a call within a call")
    return calls, ""


def _lfm_json(part: re.Match[str]) -> str:
    quote, inside, word, after = part.groups()
    if quote:
        text = _ESCAPED.sub(_unescaped, inside).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return _quoted(text)
    if after:
        return f'{{"name": {_quoted(word)}, "arguments": {{' if after == "(" else f"{_quoted(word)}: "
    if word and not _NUMBER.fullmatch(word := _CONSTANTS.get(word, word)):
        raise ValueError("unquoted text is not a value")
    return word or {")": "}}", ",": ""}.get(part[0][0], part[0])


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _ESCAPES.get(escape, escape if escape in "\\'\"/\n" else found[0])


LFM = family_of(
    "lfm2",
    "[add(a=1, b=2)] after <|tool_call_start|>: LFM2 and LFM2.5",
    Section("<|tool_call_start|>", _read_lfm, "<|tool_call_end|>", verbatim=None),
)

_QUOTE = '<|"|>'
_GEMMA = re.compile(r"\s*call:([^{]*)(\{.*)", re.DOTALL)
_GEMMA_PARTS = re.compile(
    rf"{re.escape(_QUOTE)}(.*?){re.escape(_QUOTE)}|((?:(?!<\|\"\|>)[^{{}}\[\]:,])+)(:?)", re.DOTALL
)


def _read_gemma(text: str, tools: Sequence[Tool]) -> tuple[list[ParsedCall], str]:
    """Objects with bare keys, and with strings between markers."""
    if (found := _GEMMA.fullmatch(text)) is None:
        raise ValueError("no call")
    return [ParsedCall(found[1].strip(), _GEMMA_PARTS.sub(_gemma_json, found[2]))], ""


def _gemma_json(part: re.Match[str]) -> str:
    if part[2] is None:
        return _quoted(part[1])
    word = _CONSTANTS.get(part[2].strip(), part[2].strip())
    if part[3]:
        return f"{_quoted(part[2].strip())}:"
    return word if not word or _NUMBER.fullmatch(word) else _quoted(word)


GEMMA = family_of(
    "gemma4",
    "call:add{a:1} after <|tool_call>: Gemma 4",
    Section("<|tool_call>", _read_gemma, "<tool_call|>", verbatim=(_QUOTE, _QUOTE)),
    think=("<|channel>thought\n", "<channel|>"),
)


_START, _CHANNEL_MARK, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_ENDS = frozenset({"<|end|>", "<|call|>", "<|return|>"})
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?(?!functions\.)([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


class _State(enum.Enum):
    """Position of the parser."""

    HEAD = enum.auto()
    REASONING = enum.auto()
    TEXT = enum.auto()
    ARGUMENTS = enum.auto()


class Harmony:
    """Implements `Parser`: an answer is several messages, and each message's head names its type.

    A prompt ends where a head begins, behind `<|start|>assistant`.
    """

    def __init__(self, new_id: NewId, tools: tuple[Tool, ...], thinks: bool) -> None:
        self._tools = tools
        self._draft = Draft(new_id)
        self._state = _State.REASONING if thinks else _State.HEAD
        self._head = ""
        self._arguments, self._strings = list[str](), Strings()

    @property
    def malformed(self) -> int:
        return self._draft.malformed

    @property
    def thinking(self) -> bool:
        return self._state is _State.REASONING

    def feed(self, piece: Piece) -> Iterator[Delta]:
        if piece.marker and not (self._state is _State.ARGUMENTS and self._strings.is_open):
            self._mark(piece.text)
        else:
            self._add(piece.text)
        yield from self._draft.take()

    def end(self) -> Iterator[Delta]:
        self._leave()
        self._draft.finish()
        yield from self._draft.take()

    def _mark(self, marker: str) -> None:
        if marker == _START or marker in _ENDS:
            self._leave(marker if marker in _ENDS else "")
            self._head = marker if marker == _START else ""
        elif marker == _MESSAGE and self._state is _State.HEAD:
            self._open()
        else:
            self._add(marker)

    def _add(self, text: str) -> None:
        match self._state:
            case _State.HEAD:
                self._head += text
            case _State.REASONING:
                self._draft.reason(text)
            case _State.TEXT:
                self._draft.text(text)
            case _State.ARGUMENTS:
                self._arguments.append(text)
                self._strings.add(text)

    def _open(self) -> None:
        recipient, channel = _RECIPIENT.search(self._head), _CHANNEL.search(self._head)
        if recipient is not None and self._tools:
            self._state, self._arguments, self._strings = _State.ARGUMENTS, [], Strings()
            return
        head, self._head = self._head, ""
        if recipient is not None:
            self._state = _State.TEXT
            self._draft.text(head + _MESSAGE)
        elif channel is not None and channel[1] == "analysis":
            self._state = _State.REASONING
            if self._draft.has_reasoning:
                self._draft.reason("\n\n")
        else:
            self._state = _State.TEXT
            if not self._draft.is_empty:
                self._draft.text("\n\n")

    def _leave(self, marker: str = "") -> None:
        """End a message; a head without a body becomes text."""
        inside, self._state = self._state, _State.HEAD
        head, self._head = self._head, ""
        recipient = _RECIPIENT.search(head)
        if inside is _State.ARGUMENTS and recipient is not None:
            arguments = "".join(self._arguments)
            try:
                self._draft.call(ParsedCall(recipient[1], arguments))
            except (ValueError, RecursionError):
                self._draft.add_malformed(f"{head}{_MESSAGE}{arguments}{marker}")
        elif inside is _State.HEAD and head.strip() and head != _START:
            (self._draft.add_malformed if self._tools and recipient is not None else self._draft.text)(head)


HARMONY = Family(
    "gpt-oss",
    frozenset({_START, _CHANNEL_MARK, _MESSAGE, "<|constrain|>", *_ENDS}),
    Harmony,
    "to=functions.add and JSON after <|message|>: gpt-oss",
    thinks_after=f"{_CHANNEL_MARK}analysis{_MESSAGE}",
)
PLAIN = family_of("plain", "no calls, only <think>")
RAW = family_of("raw", "no chat template, so all of it is text", think=None)
"""Reads the answer to a raw prompt."""
OWN = {
    family.name: family for family in (HERMES, CODER, GLM, DEEPSEEK, KIMI, MISTRAL, LLAMA3, LFM, GEMMA, HARMONY, PLAIN)
}  # The families of this package
