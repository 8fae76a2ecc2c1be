"""Section: calls in a row between two markers, each with markers around its name and its JSON arguments.

Example:

    <|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>
    <|tool_calls_section_end|>
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from slime_agent_openai.message import Tool
from slime_agent_openai.parsers.answer import NOTHING, CallReader
from slime_agent_openai.parsers.draft import Draft, can_name
from slime_agent_openai.parsers.json_value import JsonValue
from slime_agent_openai.parsers.pieces import Piece


@dataclass(frozen=True, slots=True)
class Marks:
    """The markers of a family."""

    opens: str
    """Before the first call."""
    call: str
    """Before each call."""
    parts: str
    """Between what comes first and what comes then."""
    ends: str
    """After each call."""
    closes: str
    """After the last call."""
    name: Callable[[str, str], str]
    """The tool's name, from the text before `parts` and that between it and the arguments' brace; or ""."""
    call_id: Callable[[str], str] = lambda head: ""
    """The id that the model gave a call, from the text before `parts`; or ""."""

    @property
    def all(self) -> frozenset[str]:
        """Every marker."""
        return frozenset({self.opens, self.call, self.parts, self.ends, self.closes})

    def reader(self, draft: Draft, tools: tuple[Tool, ...], raw: str) -> CallReader:
        """Reads on after `opens`."""
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
        """The opening marker is read."""
        self._marks, self._draft, self._raw = marks, draft, raw
        self._in, self._called = _In.SECTION, False
        self._head = self._body = self._tail = ""
        self._value = JsonValue()

    def feed(self, piece: Piece) -> Piece | None:
        """Read on, to the closing marker."""
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
        """The call is over."""
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
        """What was read and not told is text."""
        if self._raw:
            self._draft.back(self._raw)
        self._raw = ""
