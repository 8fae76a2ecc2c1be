"""Families that write a call as JSON: Hermes (and Qwen 2.5 and 3), Llama 3 and Mistral.

Example:

    <tool_call>
    {"name": "add", "arguments": {"a": 1, "b": 2}}
    </tool_call>

    {"name": "add", "parameters": {"a": 1, "b": 2}}; {"name": ...}                              # Llama 3

    [TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}, "id": "D681PevKs"}]                    # Mistral
    [TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]add[CALL_ID]D681PevKs[ARGS]{"a": 2}
"""

from slime_agent_openai.message import Tool
from slime_agent_openai.parsers.answer import NOTHING, THINK, Draft, Family, Form, can_name
from slime_agent_openai.parsers.json_call import JsonCall, JsonValue
from slime_agent_openai.parsers.pieces import Piece

HERMES_OPENS, HERMES_CLOSES = "<tool_call>", "</tool_call>"


class HermesCall:
    """Implements `CallReader`."""

    def __init__(self, draft: Draft, tools: tuple[Tool, ...], raw: str) -> None:
        self._draft, self._call = draft, JsonCall(draft, raw)

    def feed(self, piece: Piece) -> Piece | None:
        call = self._call
        if piece.marker and not call.in_string:
            (self._draft.end if call.whole else call.fail)()
            return NOTHING if piece.text == HERMES_CLOSES and (call.whole or call.begun) else piece
        left = piece.text if call.whole else call.feed(piece.text)
        if left is None or (call.whole and not left.strip()):
            return None
        if call.whole:
            self._draft.end(whole=False)
        return Piece(left)

    def end(self) -> None:
        (self._draft.end if self._call.whole else self._call.fail)()


HERMES = Family(
    "hermes",
    frozenset({HERMES_OPENS, HERMES_CLOSES, *THINK}),
    Form({HERMES_OPENS: HermesCall}).parser,
    "JSON in <tool_call>: Qwen 2.5, Qwen 3, Hermes",
)


LLAMA_OPENS = "<|python_tag|>"


class LlamaCalls:
    """Implements `CallReader`."""

    def __init__(self, draft: Draft, tools: tuple[Tool, ...], raw: str) -> None:
        self._draft, self._names = draft, frozenset(tool.name for tool in tools)
        self._call: JsonCall | None = JsonCall(draft, raw, self._names)
        self._between = ""

    def feed(self, piece: Piece) -> Piece | None:
        left: str | None = piece.text
        while left:
            if self._call is None:
                self._between += left
                begins = self._between.lstrip(" \n;")
                if not begins:
                    return None
                if not begins.startswith("{"):
                    return Piece(self._between)
                self._call, left, self._between = JsonCall(self._draft, "", self._names), begins, ""
            call = self._call
            left = call.feed(left)
            if left is not None:
                if not call.whole:
                    return Piece(left)
                self._draft.end()
                self._call = None
        return None

    def end(self) -> None:
        if self._call is not None:
            self._call.fail()


LLAMA3 = Family(
    "llama3",
    frozenset({LLAMA_OPENS}),
    Form({LLAMA_OPENS: LlamaCalls}, bare=LlamaCalls, think=None).parser,
    "the answer is JSON, or JSON after <|python_tag|>: Llama 3.1, 3.2 and 3.3",
    thinks_after="",
)


MISTRAL_OPENS, ID, ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
MISTRAL_THINK = ("[THINK]", "[/THINK]")


class MistralCalls:
    """Implements `CallReader`: waits for what tells which way it is, and hands on."""

    def __init__(self, draft: Draft, tools: tuple[Tool, ...], raw: str) -> None:
        self._draft, self._raw, self._marker = draft, raw, raw
        self._way: _List | _Named | None = None

    def feed(self, piece: Piece) -> Piece | None:
        if self._way is not None:
            return self._way.feed(piece)
        if not piece.marker and not piece.text.strip():
            self._raw += piece.text
            return None
        listed = not piece.marker and piece.text.lstrip().startswith("[")
        self._way = (_List if listed else _Named)(self._draft, self._raw)
        return self._way.feed(piece)

    def end(self) -> None:
        if self._way is not None:
            self._way.end()
        else:
            self._draft.back(self._raw)


class _List:
    """`[{...}, {...}]`, of which each part is read as soon as it is there."""

    def __init__(self, draft: Draft, raw: str) -> None:
        self._draft, self._raw = draft, raw
        self._call: JsonCall | None = None
        self._expected = "["

    def feed(self, piece: Piece) -> Piece | None:
        if piece.marker and not (self._call is not None and self._call.in_string):
            self.end()
            return piece
        left = piece.text
        while left:
            if self._call is None:
                mark = left.lstrip()[:1]
                if mark and mark not in self._expected:
                    self._lose()
                    return Piece(left)
                size = len(left) - len(left.lstrip()) + len(mark)
                if mark == "]" and self._expected == ",]":
                    return Piece(left[size:])
                if mark == "{":
                    self._call = JsonCall(self._draft, self._raw)
                else:
                    self._raw, left = self._raw + left[:size], left[size:]
                    self._expected = {"": self._expected}.get(mark, "{")
                    continue
            rest = self._call.feed(left)
            if rest is None:
                return None
            if not self._call.whole:
                return Piece(rest)
            self._draft.end()
            self._call, self._raw, self._expected, left = None, "", ",]", rest
        return None

    def end(self) -> None:
        if self._call is not None:
            self._call.fail()
        else:
            self._lose()

    def _lose(self) -> None:
        if self._raw.strip(" ,\n"):
            self._draft.back(self._raw)


class _Named:
    """`add[ARGS]{...}`, maybe with an id, maybe without the marker."""

    def __init__(self, draft: Draft, raw: str) -> None:
        self._draft, self._raw = draft, raw
        self._name = self._after = ""
        self._value: JsonValue | None = None

    def feed(self, piece: Piece) -> Piece | None:
        if self._value is not None:
            return self._arguments(piece)
        if piece.marker:
            if piece.text not in (ID, ARGUMENTS):
                self.end()
                return piece
            self._after = piece.text
            self._raw += piece.text
            return None
        before, brace, _ = piece.text.partition("{")
        if self._after == ARGUMENTS and before.strip():
            self.end()
            return piece
        self._raw += before
        self._name += before if not self._after else ""
        if not brace:
            return None
        name = self._name.strip()
        if not can_name(name):
            self.end()
            return Piece(piece.text[len(before) :])
        self._value = JsonValue()
        self._draft.begin(name)
        return self._arguments(Piece(piece.text[len(before) :]))

    def end(self) -> None:
        if self._value is None:
            self._draft.back(self._raw)
        else:
            self._draft.end(whole=self._value.done)

    def _arguments(self, piece: Piece) -> Piece | None:
        value = self._value
        if value is None or (piece.marker and not value.in_string):
            self.end()
            return piece
        size = value.feed(piece.text)
        self._draft.arguments(piece.text[:size])
        if not value.done:
            return None
        self._draft.end()
        return Piece(piece.text[size:]) if size < len(piece.text) else NOTHING


MISTRAL = Family(
    "mistral",
    frozenset({MISTRAL_OPENS, ID, ARGUMENTS, *MISTRAL_THINK}),
    Form({MISTRAL_OPENS: MistralCalls}, think=MISTRAL_THINK).parser,
    "calls after [TOOL_CALLS]: Mistral, Ministral, Devstral, Magistral",
    thinks_after=MISTRAL_THINK[0],
)
