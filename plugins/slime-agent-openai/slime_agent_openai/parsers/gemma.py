"""Gemma 4: each call between two markers, its keys bare and its strings between markers of their own.

A call is told when it is whole.

Example:

    <|channel>thought
    Two numbers.
    <channel|><|tool_call>call:add{a:1,b:2,note:<|"|>both, too<|"|>}<tool_call|>
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from slime_agent_openai.message import Tool
from slime_agent_openai.parsers.answer import NOTHING, Form
from slime_agent_openai.parsers.draft import Draft
from slime_agent_openai.parsers.family import Family
from slime_agent_openai.parsers.pieces import Piece
from slime_agent_openai.parsers.words import DEEPEST, NoCallError, bare, members, named

OPENS, CLOSES, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
GEMMA_THINK = ("<|channel>thought\n", "<channel|>")
_PARTS = re.compile(r"[{}\[\]:,]|[^{}\[\]:,]+")


@dataclass(frozen=True, slots=True)
class _Part:
    """A bracket, colon or comma, a bare word, or a string."""

    text: str
    is_string: bool = False


@dataclass(slots=True)
class _Call:
    """Reads the parts of one call."""

    parts: Sequence[_Part]
    at: int = 0

    def whole(self) -> tuple[str, str]:
        """The tool's name, and its arguments as JSON."""
        self._take("call")
        self._take(":")
        name = named(self._next().text)
        self._take("{")
        arguments = self._members(0)
        if self.at < len(self.parts):
            raise NoCallError
        return name, arguments

    def _members(self, depth: int) -> str:
        return f"{{{members('}', self._is_next, lambda: self._member(depth))}}}"

    def _member(self, depth: int) -> str:
        key = self._next()
        self._take(":")
        return f"{_quoted(key)}: {self._value(depth)}"

    def _value(self, depth: int) -> str:
        if depth > DEEPEST:
            raise NoCallError
        if self._is_next("{"):
            return self._members(depth + 1)
        if self._is_next("["):
            return f"[{members(']', self._is_next, lambda: self._value(depth + 1))}]"
        part = self._next()
        return (None if part.is_string else bare(part.text)) or _quoted(part)

    def _next(self) -> _Part:
        """A word or a string."""
        part = self.parts[self.at] if self.at < len(self.parts) else _Part("}")
        if not part.is_string and part.text in "{}[]:,":
            raise NoCallError
        self.at += 1
        return part

    def _is_next(self, mark: str) -> bool:
        found = self.at < len(self.parts) and self.parts[self.at] == _Part(mark)
        self.at += found
        return found

    def _take(self, mark: str) -> None:
        if not self._is_next(mark):
            raise NoCallError


def _quoted(part: _Part) -> str:
    return json.dumps(part.text, ensure_ascii=False)


class GemmaCall:
    """Implements `CallReader`."""

    def __init__(self, draft: Draft, tools: tuple[Tool, ...], raw: str) -> None:
        """The marker is read."""
        self._draft, self._raw = draft, [raw]
        self._said: list[tuple[bool, list[str]]] = [(False, [])]

    def feed(self, piece: Piece) -> Piece | None:
        """Read on, to the closing marker that is in no string."""
        in_string, said = self._said[-1]
        if piece.marker and piece.text == QUOTE:
            self._said.append((not in_string, []))
        elif piece.marker and not in_string:
            self._tell(piece.text if piece.text == CLOSES else "")
            return NOTHING if piece.text == CLOSES else piece
        else:
            said.append(piece.text)
        self._raw.append(piece.text)
        return None

    def end(self) -> None:
        """A call that is whole is one, though its marker is missing."""
        self._tell("")

    def _tell(self, closing: str) -> None:
        parts: list[_Part] = []
        for is_string, said in self._said:
            text = "".join(said)
            words = (found.strip() for found in _PARTS.findall(text))
            parts += [_Part(text, True)] if is_string else [_Part(word) for word in words if word]
        try:
            name, arguments = _Call(parts).whole()
        except NoCallError:
            self._draft.back("".join(self._raw) + closing)
            return
        self._draft.begin(name)
        self._draft.arguments(arguments)
        self._draft.end()


FAMILY = Family(
    "gemma4",
    frozenset({OPENS, CLOSES, QUOTE, *GEMMA_THINK}),
    Form({OPENS: GemmaCall}, think=GEMMA_THINK).parser,
    "call:add{a:1} after <|tool_call>: Gemma 4",
    thinks_after=GEMMA_THINK[0].strip(),
)
