"""Families with a section of calls between two markers, each with markers around its name and its JSON: DeepSeek, Kimi.

Example:

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a": 1, "b": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>

    <|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>
    <|tool_calls_section_end|>
"""

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass

from slime_agent_openai.message import Tool
from slime_agent_openai.parsers.answer import NOTHING, THINK, CallReader, Draft, Family, Form, can_name
from slime_agent_openai.parsers.json_call import JsonValue
from slime_agent_openai.parsers.pieces import Piece


@dataclass(frozen=True, slots=True)
class Marks:
    """The markers of a family."""

    opens: str  # Before the first call
    call: str  # Before each call
    parts: str  # Between what comes first and what comes then
    ends: str  # After each call
    closes: str  # After the last call
    name: Callable[[str, str], str]
    """The tool's name, from the text before `parts` and that between it and the arguments' brace; or ""."""
    call_id: Callable[[str], str] = lambda head: ""
    """The id that the model gave a call, from the text before `parts`; or ""."""

    @property
    def all(self) -> frozenset[str]:
        return frozenset({self.opens, self.call, self.parts, self.ends, self.closes})

    def reader(self, draft: Draft, tools: tuple[Tool, ...], raw: str) -> CallReader:
        return Section(self, draft, raw)


class _In(enum.Enum):
    """Where the reader is."""

    SECTION = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()
    ARGUMENTS = enum.auto()
    TAIL = enum.auto()


class Section:
    """Implements `CallReader`."""

    def __init__(self, marks: Marks, draft: Draft, raw: str) -> None:
        self._marks, self._draft, self._raw = marks, draft, raw
        self._in, self._called = _In.SECTION, False
        self._head = self._body = self._tail = ""
        self._value = JsonValue()

    def feed(self, piece: Piece) -> Piece | None:
        if piece.marker and not (self._in is _In.ARGUMENTS and self._value.in_string):
            return self._mark(piece)
        match self._in:
            case _In.SECTION:
                self._between(piece.text)
            case _In.HEAD:
                self._head += piece.text
                self._raw += piece.text
            case _In.BODY:
                self._named(piece.text)
            case _In.ARGUMENTS:
                self._arguments(piece.text)
            case _In.TAIL:
                self._tail += piece.text
        return None

    def end(self) -> None:
        """What is open is broken off, but for a marker that is missing after the arguments."""
        self._leave()
        self._lose()

    def _mark(self, piece: Piece) -> Piece | None:
        marks = self._marks
        match self._in, piece.text:
            case _In.SECTION, marks.call:
                self._in, self._raw = _In.HEAD, self._raw + piece.text
                self._head = self._body = self._tail = ""
            case _In.SECTION, marks.closes:
                if self._raw or not self._called:
                    self._between(piece.text)
                return NOTHING
            case _In.SECTION, _:
                self._between(piece.text)
            case _In.HEAD, marks.parts:
                self._in, self._raw = _In.BODY, self._raw + piece.text
            case _In.ARGUMENTS | _In.TAIL, marks.ends:
                self._leave()
            case ((_In.HEAD | _In.BODY), marks.ends):
                self._raw += piece.text
                self._leave()
            case _:
                self._leave()
                return self._mark(piece)
        return None

    def _between(self, text: str) -> None:
        """Text among the calls; before the first one, it shows that there is none."""
        if self._raw:
            self._raw += text
            if text.strip():
                self._lose()
        else:
            self._draft.text(text)

    def _named(self, text: str) -> None:
        before, brace, _ = text.partition("{")
        self._raw += before
        self._body += before
        if not brace:
            return
        name = self._marks.name(self._head, self._body)
        if not can_name(name):
            self._in, self._raw = _In.SECTION, self._raw + text[len(before) :]
            self._lose()
            return
        self._in, self._called = _In.ARGUMENTS, True
        self._raw, self._value = "", JsonValue()
        self._draft.begin(name, self._marks.call_id(self._head))
        self._arguments(text[len(before) :])

    def _arguments(self, text: str) -> None:
        end = self._value.feed(text)
        self._draft.arguments(text[:end])
        if self._value.done:
            self._in, self._tail = _In.TAIL, text[end:]

    def _leave(self) -> None:
        inside, self._in = self._in, _In.SECTION
        match inside:
            case _In.HEAD | _In.BODY:
                self._lose()
            case _In.ARGUMENTS:
                self._draft.end(whole=False)
            case _In.TAIL:
                spare = self._tail if self._tail.strip() not in ("", "```") else ""
                self._draft.end(whole=not spare)
                self._draft.text(spare)

    def _lose(self) -> None:
        if self._raw:
            self._draft.back(self._raw)
        self._raw = ""


_FENCED = re.compile(r"([^\n]+)\n\s*```(?:json)?\s*")


def _deepseek_name(head: str, body: str) -> str:
    """V3.1: the name, then its arguments. V3: the word `function`, then the name, then arguments in a code block."""
    if not body.strip():
        return head.strip()
    found = _FENCED.fullmatch(body)
    return found[1].strip() if found and head.strip() == "function" else ""


DEEPSEEK_MARKS = Marks(
    opens="<｜tool▁calls▁begin｜>",
    call="<｜tool▁call▁begin｜>",
    parts="<｜tool▁sep｜>",
    ends="<｜tool▁call▁end｜>",
    closes="<｜tool▁calls▁end｜>",
    name=_deepseek_name,
)
DEEPSEEK = Family(
    "deepseek",
    DEEPSEEK_MARKS.all | set(THINK),
    Form({DEEPSEEK_MARKS.opens: DEEPSEEK_MARKS.reader}).parser,
    "calls after <｜tool▁calls▁begin｜>: DeepSeek V3, R1, V3.1 and V3.2-Exp",
)


_WHOLE_ID = re.compile(r"functions\.[^\s:]+:\d+")
_ID = re.compile(r"\s*(?:functions\.)?(.+?)(?::\d+)?\s*")


def _kimi_name(head: str, body: str) -> str:
    found = _ID.fullmatch(head)
    return found[1] if found and not body.strip() else ""


def _kimi_id(head: str) -> str:
    return head.strip() if _WHOLE_ID.fullmatch(head.strip()) else ""


KIMI_MARKS = Marks(
    opens="<|tool_calls_section_begin|>",
    call="<|tool_call_begin|>",
    parts="<|tool_call_argument_begin|>",
    ends="<|tool_call_end|>",
    closes="<|tool_calls_section_end|>",
    name=_kimi_name,
    call_id=_kimi_id,
)
KIMI = Family(
    "kimi-k2",
    KIMI_MARKS.all | set(THINK),
    Form({KIMI_MARKS.opens: KIMI_MARKS.reader}).parser,
    "calls after <|tool_calls_section_begin|>: Kimi K2",
)
