r"""Families whose arguments are not JSON: Gemma 4 and LFM2. A call is reported when it is whole.

Gemma 4 has bare keys, and strings between markers; LFM2 writes a list of Python calls.

Example:

    <|channel>thought
    Two numbers.
    <channel|><|tool_call>call:add{a:1,b:2,note:<|"|>both, too<|"|>}<tool_call|>

    <|tool_call_start|>[add(a=1, b=2), note(text='It\'s 3', where={"x": null})]<|tool_call_end|>
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from slime_agent_openai.message import Tool
from slime_agent_openai.parsers.answer import NOTHING, THINK, Draft, Family, Form, can_name
from slime_agent_openai.parsers.pieces import Piece

DEEPEST = 100  # Lists and objects within each other that are read: what is deeper is not a call of anybody's
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_CONSTANTS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}


class NoCallError(ValueError):
    """A text is not written as calls are."""


def bare(word: str) -> str | None:
    """The JSON of a word that is a number, true, false or null; None: it is none of these."""
    return _CONSTANTS.get(word, word if _NUMBER.fullmatch(word) else None)


def named(word: str) -> str:
    """A word, if it may be the name of a tool."""
    if not can_name(word):
        raise NoCallError
    return word


def members(closes: str, is_next: Callable[[str], bool], one: Callable[[], str]) -> str:
    """Members up to the bracket `closes`, with commas between; `one` reads a member and writes it as JSON."""
    made: list[str] = []
    while not is_next(closes):
        if made and not is_next(","):
            raise NoCallError
        made.append(one())
    return ", ".join(made)


GEMMA_OPENS, GEMMA_CLOSES, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
GEMMA_THINK = ("<|channel>thought\n", "<channel|>")
_PARTS = re.compile(r"[{}\[\]:,]|[^{}\[\]:,]+")


@dataclass(frozen=True, slots=True)
class _Part:
    """A bracket, colon or comma, a bare word, or a string."""

    text: str
    is_string: bool = False


@dataclass(slots=True)
class _GemmaText:
    """Reads the parts of one call."""

    parts: Sequence[_Part]
    at: int = 0

    def whole(self) -> tuple[str, str]:
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
        self._draft, self._raw = draft, [raw]
        self._said: list[tuple[bool, list[str]]] = [(False, [])]

    def feed(self, piece: Piece) -> Piece | None:
        in_string, said = self._said[-1]
        if piece.marker and piece.text == QUOTE:
            self._said.append((not in_string, []))
        elif piece.marker and not in_string:
            self._tell(piece.text if piece.text == GEMMA_CLOSES else "")
            return NOTHING if piece.text == GEMMA_CLOSES else piece
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
            name, arguments = _GemmaText(parts).whole()
        except NoCallError:
            self._draft.back("".join(self._raw) + closing)
            return
        self._draft.begin(name)
        self._draft.arguments(arguments)
        self._draft.end()


GEMMA = Family(
    "gemma4",
    frozenset({GEMMA_OPENS, GEMMA_CLOSES, QUOTE, *GEMMA_THINK}),
    Form({GEMMA_OPENS: GemmaCall}, think=GEMMA_THINK).parser,
    "call:add{a:1} after <|tool_call>: Gemma 4",
    thinks_after=GEMMA_THINK[0].strip(),
)


LFM_OPENS, LFM_CLOSES = "<|tool_call_start|>", "<|tool_call_end|>"
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[^\s()\[\]{},='\"]+")
_WORD = re.compile(r"[\w.+-]+")
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_QUOTE = re.compile("['\"]")
_STRING_ENDS = {
    quote: re.compile(rf"(?:[^\\{quote}]|\\.|{quote}(?!\s*[,)\]}}:=]))*{quote}", re.DOTALL) for quote in "'\""
}  # A quote ends a string where the list goes on after it: templates of LFM2.5 do not escape those within


@dataclass(slots=True)
class _LfmText:
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
        self._draft, self._raw = draft, [raw]

    def feed(self, piece: Piece) -> Piece | None:
        if piece.marker and piece.text == LFM_CLOSES and not _is_in_string("".join(self._raw[1:])):
            self._tell(LFM_CLOSES)
            return NOTHING
        self._raw.append(piece.text)
        return None

    def end(self) -> None:
        self._tell("")

    def _tell(self, closing: str) -> None:
        try:
            calls = list(_LfmText("".join(self._raw[1:])))
        except NoCallError:
            self._draft.back("".join(self._raw) + closing)
            return
        for name, arguments in calls:
            self._draft.begin(name)
            self._draft.arguments(arguments)
            self._draft.end()


LFM = Family(
    "lfm2",
    frozenset({LFM_OPENS, LFM_CLOSES, *THINK}),
    Form({LFM_OPENS: LfmCalls}).parser,
    "[add(a=1, b=2)] after <|tool_call_start|>: LFM2 and LFM2.5",
)
