"""Harmony: an answer is several messages, and the head of each says what it is: reasoning, text, or a call of a tool.

A prompt ends where a head begins, after `<|start|>assistant`.

Example:

    <|channel|>analysis<|message|>Two numbers.<|end|><|start|>assistant<|channel|>commentary to=functions.add
    <|constrain|>json<|message|>{"a": 1, "b": 2}<|call|>
"""

import enum
import re
from collections.abc import Iterator

from slime_agent_openai.message import Delta, Tool
from slime_agent_openai.parsers.answer import Draft, Family, can_name
from slime_agent_openai.parsers.json_call import JsonValue
from slime_agent_openai.parsers.pieces import Piece
from slime_agent_openai.wires.wire import NewId

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
ENDS = frozenset({"<|end|>", "<|call|>", "<|return|>"})
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


class _In(enum.Enum):
    """Where the parser is."""

    HEAD = enum.auto()
    REASONING = enum.auto()
    TEXT = enum.auto()
    ARGUMENTS = enum.auto()


class Harmony:
    """Implements `Parser`."""

    def __init__(self, new_id: NewId, tools: tuple[Tool, ...], thinks: bool) -> None:
        self._tools = tools
        self._draft = Draft(new_id)
        self._in = _In.REASONING if thinks else _In.HEAD
        self._head = ""
        self._value = JsonValue()

    @property
    def malformed(self) -> int:
        return self._draft.malformed

    @property
    def thinking(self) -> bool:
        return self._in is _In.REASONING

    def feed(self, piece: Piece) -> Iterator[Delta]:
        if piece.marker and not (self._in is _In.ARGUMENTS and self._value.in_string):
            self._mark(piece.text)
        else:
            self._say(piece.text)
        yield from self._draft.take()

    def end(self) -> Iterator[Delta]:
        self._leave()
        self._draft.finish()
        yield from self._draft.take()

    def _mark(self, marker: str) -> None:
        if marker == START or marker in ENDS:
            self._leave()
            self._head = marker if marker == START else ""
        elif marker == MESSAGE and self._in is _In.HEAD:
            self._open()
        elif self._in is _In.HEAD:
            self._head += marker
        else:
            self._say(marker)

    def _say(self, text: str) -> None:
        match self._in:
            case _In.HEAD:
                self._head += text
            case _In.REASONING:
                self._draft.reason(text)
            case _In.TEXT:
                self._draft.text(text)
            case _In.ARGUMENTS:
                if not self._value.done and (begun := text if self._value.begun else text.lstrip()):
                    self._value.feed(begun)
                self._draft.arguments(text)

    def _open(self) -> None:
        head, self._head = self._head, ""
        recipient, channel = _RECIPIENT.search(head), _CHANNEL.search(head)
        name = recipient[1].removeprefix("functions.") if recipient is not None else ""
        if name and self._tools and can_name(name):
            self._in, self._value = _In.ARGUMENTS, JsonValue()
            self._draft.begin(name)
        elif name:
            self._in = _In.TEXT
            self._draft.text(head + MESSAGE)
        elif channel is not None and channel[1] == "analysis":
            self._in = _In.REASONING
            if self._draft.thought:
                self._draft.reason("\n\n")
        else:
            self._in = _In.TEXT
            if not self._draft.silent:
                self._draft.text("\n\n")

    def _leave(self) -> None:
        """A message is over; what was a head only, and no more, is text."""
        inside, self._in = self._in, _In.HEAD
        head, self._head = self._head, ""
        if inside is _In.ARGUMENTS:
            self._draft.end()
        elif inside is _In.HEAD and head.strip() and head != START:
            is_call = bool(self._tools) and _RECIPIENT.search(head) is not None
            (self._draft.back if is_call else self._draft.text)(head)


HARMONY = Family(
    "gpt-oss",
    frozenset({START, CHANNEL, MESSAGE, CONSTRAIN, *ENDS}),
    Harmony,
    "to=functions.add and JSON after <|message|>: gpt-oss",
    thinks_after=f"{CHANNEL}analysis{MESSAGE}",
)
