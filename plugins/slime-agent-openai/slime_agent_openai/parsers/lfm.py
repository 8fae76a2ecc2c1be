r"""LFM2: calls as a list in Python's way of writing, between two markers. A call is told when all of them are there.

Example:

    <|tool_call_start|>[add(a=1, b=2), note(text='It\'s 3', where={"x": null})]<|tool_call_end|>
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from slime_agent_openai.message import Tool
from slime_agent_openai.parsers.answer import NOTHING, THINK, Form
from slime_agent_openai.parsers.draft import Draft
from slime_agent_openai.parsers.family import Family
from slime_agent_openai.parsers.pieces import Piece
from slime_agent_openai.parsers.words import DEEPEST, NoCallError, bare, members, named

OPENS, CLOSES = "<|tool_call_start|>", "<|tool_call_end|>"
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[^\s()\[\]{},='\"]+")
_WORD = re.compile(r"[\w.+-]+")
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_QUOTE = re.compile("['\"]")
_STRING_ENDS = {
    quote: re.compile(rf"(?:[^\\{quote}]|\\.|{quote}(?!\s*[,)\]}}:=]))*{quote}", re.DOTALL) for quote in "'\""
}
"""A quote ends a string where the list goes on after it: templates of LFM2.5 do not escape those within."""


@dataclass(slots=True)
class _Calls:
    """Reads a list of calls, and writes their arguments as JSON."""

    text: str
    at: int = 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self._take("[")
        while True:
            name = named(self._match(_NAME))
            self._take("(")
            yield name, self._members(")", "=", 0)
            if not self._is_next(","):
                break
        self._take("]")
        if self.text[self.at :].strip():
            raise NoCallError

    def _members(self, closes: str, between: str, depth: int) -> str:
        """Keys and values up to a bracket, as an object."""
        return f"{{{members(closes, self._is_next, lambda: self._member(between, depth))}}}"

    def _member(self, between: str, depth: int) -> str:
        key = self._string() if between == ":" else json.dumps(self._match(_NAME), ensure_ascii=False)
        self._take(between)
        return f"{key}: {self._value(depth)}"

    def _value(self, depth: int) -> str:
        if depth > DEEPEST:
            raise NoCallError
        self._match(_SPACE)
        if self.text[self.at : self.at + 1] in ("'", '"'):
            return self._string()
        if self._is_next("{"):
            return self._members("}", ":", depth + 1)
        if self._is_next("["):
            return f"[{members(']', self._is_next, lambda: self._value(depth + 1))}]"
        if (word := bare(self._match(_WORD))) is None:
            raise NoCallError
        return word

    def _string(self) -> str:
        self._match(_SPACE)
        quote = self.text[self.at : self.at + 1]
        if quote not in _STRING_ENDS:
            raise NoCallError
        self.at += 1
        inside = self._match(_STRING_ENDS[quote])[:-1]
        text = _ESCAPED.sub(_unescaped, inside).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return json.dumps(text, ensure_ascii=False)

    def _match(self, pattern: re.Pattern[str]) -> str:
        if pattern is not _SPACE and pattern not in _STRING_ENDS.values():
            self._match(_SPACE)
        found = pattern.match(self.text, self.at)
        if found is None:
            raise NoCallError
        self.at = found.end()
        return found[0]

    def _is_next(self, mark: str) -> bool:
        self._match(_SPACE)
        found = self.text.startswith(mark, self.at)
        self.at += found
        return found

    def _take(self, mark: str) -> None:
        if not self._is_next(mark):
            raise NoCallError


def _unescaped(found: re.Match[str]) -> str:
    """What an escape stands for; what is none stays as it is."""
    what = found[1]
    if what[0] in "ux" and len(what) > 1:
        return chr(int(what[1:], 16))
    return _ESCAPES.get(what, what if what in "\\'\"/\n" else found[0])


def _is_in_string(text: str) -> bool:
    """Whether a string is open at the end of the text: what looks like a marker there is part of it."""
    at = 0
    while (opened := _QUOTE.search(text, at)) is not None:
        closed = _STRING_ENDS[opened[0]].match(text, opened.end())
        if closed is None:
            return True
        at = closed.end()
    return False


class LfmCalls:
    """Implements `CallReader`."""

    def __init__(self, draft: Draft, tools: tuple[Tool, ...], raw: str) -> None:
        """The marker is read."""
        self._draft, self._raw = draft, [raw]

    def feed(self, piece: Piece) -> Piece | None:
        """Read on, to the closing marker."""
        if piece.marker and piece.text == CLOSES and not _is_in_string("".join(self._raw[1:])):
            self._tell(CLOSES)
            return NOTHING
        self._raw.append(piece.text)
        return None

    def end(self) -> None:
        """Calls that are whole are told, though their marker is missing."""
        self._tell("")

    def _tell(self, closing: str) -> None:
        try:
            calls = list(_Calls("".join(self._raw[1:])))
        except NoCallError:
            self._draft.back("".join(self._raw) + closing)
            return
        for name, arguments in calls:
            self._draft.begin(name)
            self._draft.arguments(arguments)
            self._draft.end()


FAMILY = Family(
    "lfm2",
    frozenset({OPENS, CLOSES, *THINK}),
    Form({OPENS: LfmCalls}).parser,
    "[add(a=1, b=2)] after <|tool_call_start|>: LFM2 and LFM2.5",
)
