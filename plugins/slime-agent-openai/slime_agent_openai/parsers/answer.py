"""Parses one answer: pieces of text become deltas, and deltas become a message. A `Family` is the format of a model.

`AnswerReader` feeds tokens to a family's `Parser`. `Answer` is the parser that most families of this package share:
reasoning, then text with sections of calls. The text of a `Section` is read once it is complete. Chunking has no
effect: the joined deltas are the message.

Example:

    section = Section("<tool_call>", read, closes="</tool_call>")       # read(text, tools): the section's calls
    family = family_of("hermes", "JSON in <tool_call>", section)        # or one from another package, by entry point:
    # [project.entry-points."slime.agent_parsers"]
    # shouted = "my_package.shouted:FAMILY"
    reading = AnswerReader(tokenizer, family, new_id, request.tools, thinks=family.thinks(prompt))
    async for chunk in engine.stream(request):
        for delta in reading.feed(chunk.tokens): ...
    for delta in reading.end(): ...
    reading.message, reading.malformed, reading.reasoning_tokens
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Protocol, TypeAlias

from slime_agent_openai.message import CallDelta, Delta, Message, ReasoningDelta, Role, TextDelta, Tool, ToolCall
from slime_agent_openai.parsers.pieces import Piece, Pieces
from slime_agent_openai.wires.wire import NewId
from slime_core.roles import Tokenizer


class Parser(Protocol):
    """Parses one answer. Its deltas, joined, are the message; no delta is ever withdrawn."""

    @property
    def malformed(self) -> int:
        """Number of call sections that could not be read: their text, with markers, stays in the message's text."""
        ...

    @property
    def thinking(self) -> bool: ...

    def feed(self, piece: Piece) -> Iterator[Delta]: ...

    def end(self) -> Iterator[Delta]:
        """The remaining deltas once the answer has ended."""
        ...


MakeParser: TypeAlias = Callable[[NewId, tuple[Tool, ...], bool], Parser]
"""Makes the parser of one answer from: a maker of call ids, the tools offered, whether the prompt opened the reasoning.

Without tools it reads no calls.
"""


@dataclass(frozen=True, slots=True)
class Family:
    """A format of tool calls."""

    name: str
    """Name that a user types."""
    markers: frozenset[str]
    """Texts with a meaning: as a single token if the tokenizer has one, else as characters."""
    parser: MakeParser
    """Makes the parser of one answer."""
    summary: str
    """Models that use it, in one line."""
    reads_calls: bool = True
    """Whether it reads calls; if not, no tools may be offered."""
    thinks_after: str = "<think>"
    """Ending of a prompt that has opened the reasoning already; empty: no prompt opens it."""

    def thinks(self, prompt: str) -> bool:
        """Whether the answer to this prompt begins inside its reasoning."""
        return bool(self.thinks_after) and prompt.rstrip().endswith(self.thinks_after)


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call as an answer writes it. Raises ValueError: the name is impossible, or the arguments are not an object."""

    name: str  # Name of the tool
    arguments: str  # JSON, as the model wrote it
    id: str = ""  # Id that the model gave it, if any

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable() or " " in self.name:
            raise ValueError("not a tool name")
        if not isinstance(json.loads(self.arguments), dict):
            raise ValueError("the arguments are not an object")


class Draft:
    """Collects the results of a parser."""

    def __init__(self, new_id: NewId) -> None:
        self.malformed = 0
        self._new_id = new_id
        self._deltas: list[Delta] = []
        self._has_reasoning = self._has_text = False
        self._held_reasoning = self._held = ""
        self._skip_newlines = self._skip_space = False
        self._ids: list[str] = []

    @property
    def is_empty(self) -> bool:
        return not (self._has_text or self._ids)

    @property
    def has_reasoning(self) -> bool:
        return self._has_reasoning

    def take(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas

    def reason(self, text: str) -> None:
        whole = self._held_reasoning + text if self._has_reasoning else text.lstrip()
        known = whole.rstrip()
        self._held_reasoning = whole[len(known) :] if known or self._has_reasoning else ""
        if known:
            self._has_reasoning = True
            self._deltas.append(ReasoningDelta(known))

    def end_reasoning(self) -> None:
        self._held_reasoning = self._held = ""
        self._skip_newlines = True

    def text(self, text: str) -> None:
        if self._skip_space:
            text = text.lstrip()
        elif self._skip_newlines:
            text = text.lstrip("\n")
        if not text:
            return
        self._skip_newlines = self._skip_space = False
        whole = self._held + text
        known = whole.rstrip()
        self._held = whole[len(known) :]
        if known:
            self._has_text = True
            self._deltas.append(TextDelta(known))

    def add_malformed(self, text: str) -> None:
        """Return a section that is not a call to the text, and count it."""
        self.malformed += 1
        self.text(text)

    def call(self, called: ParsedCall) -> None:
        if not self._has_text:
            self._held = ""
        self._skip_space = True  # held-back space belongs between the texts if more text follows the call
        name = called.id if called.id and called.id not in self._ids else self._new_id("call")
        self._deltas.append(CallDelta(len(self._ids), ToolCall(name, called.name, called.arguments)))
        self._ids.append(name)

    def finish(self) -> None:
        if self._held and not self._skip_space:
            self._deltas.append(TextDelta(self._held))
        self._held = ""


THINK = ("<think>", "</think>")  # Markers of most models around their reasoning
_EMPTY = Piece("")  # An empty rest of a piece

Read: TypeAlias = Callable[[str, Sequence[Tool]], tuple[Sequence[ParsedCall], str]]
"""Reads a section's text, given the tools offered. Returns its calls, and the text after them.

Raises ValueError or RecursionError: the text does not have the format of calls.
"""


class BrokenCall(ValueError):
    """A recognizable call that is incomplete, or whose arguments are not an object."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of an answer that holds calls."""

    opens: str
    """Marker before it; empty: the answer begins with a brace, and only a BrokenCall counts as malformed."""
    read: Read
    """Reads the text between the markers."""
    closes: str = ""
    """Marker after it; empty: it ends at the next marker that does not belong to it, or with the answer."""
    inside: frozenset[str] = frozenset()
    """Markers that belong to it."""
    verbatim: tuple[str, str] | None = ('"', '"')
    """Delimiters of values in which a marker is text: JSON's quotes, or markers; None: a marker is never text."""
    must_close: bool = False
    """Whether a section without its closing marker is text, for formats that do not show where they were cut off."""

    @property
    def markers(self) -> frozenset[str]:
        """All its markers."""
        return self.inside | {each for each in self.verbatim or () if each != '"'}


class _SectionReader:
    """Collects the text of a section, and yields its calls once it is complete."""

    def __init__(self, draft: Draft, section: Section, tools: tuple[Tool, ...]) -> None:
        self._draft, self._section, self._tools = draft, section, tools
        self._parts: list[str] = []
        self._strings = Strings(section.verbatim)

    def feed(self, piece: Piece) -> Piece | None:
        """Read on. Returns None, or at the section's end the rest of the piece, which may be empty."""
        if piece.marker and not self._strings.is_open:
            closes = piece.text == self._section.closes
            if closes or piece.text not in self._section.markers:
                self.end(piece.text if closes else "")
                return _EMPTY if closes else piece
        self._parts.append(piece.text)
        self._strings.add(piece.text)
        return None

    def end(self, closing: str = "") -> None:
        text = "".join(self._parts)
        try:
            calls, rest = self._section.read(text, self._tools)
            if not calls or (self._section.must_close and not closing):
                raise ValueError("no call")
        except (ValueError, RecursionError) as error:
            is_malformed = bool(self._section.opens) or isinstance(error, BrokenCall)
            (self._draft.add_malformed if is_malformed else self._draft.text)(f"{self._section.opens}{text}{closing}")
            return
        for call in calls:
            self._draft.call(call)
        self._draft.text(rest)


class Strings:
    """Tracks, over chunks of text, whether a string is open: a marker inside a string is text."""

    def __init__(self, around: tuple[str, str] | None = ('"', '"')) -> None:
        """`around`: the delimiters of a string; None: no string is ever open."""
        self._around, self._fresh, self._open = around, list[str](), False

    def add(self, text: str) -> None:
        if self._around is not None:
            self._fresh.append(text)

    @property
    def is_open(self) -> bool:
        if self._fresh and self._around is not None:
            for found in _delimiters(*self._around).finditer("".join(self._fresh)):
                if found[0] == self._around[self._open]:
                    self._open = not self._open
            self._fresh.clear()
        return self._open


@lru_cache(maxsize=64)
def _delimiters(begins: str, ends: str) -> re.Pattern[str]:
    escaped = r"\\.|" if begins == '"' else ""
    return re.compile(f"{escaped}{re.escape(begins)}|{re.escape(ends)}", re.DOTALL)


def family_of(name: str, summary: str, *sections: Section, think: tuple[str, str] | None = THINK) -> Family:
    """A family whose answers are reasoning, then text and sections; `think`: markers around the reasoning."""
    markers = {marker for section in sections for marker in (section.opens, section.closes, *section.markers) if marker}

    def parser(new_id: NewId, tools: tuple[Tool, ...], thinks: bool) -> Parser:
        return Answer(sections, think, new_id, tools, thinks)

    after = think[0].strip() if think else ""
    return Family(name, frozenset(markers | {*(think or ())}), parser, summary, bool(sections), after)


class Answer:
    """Implements `Parser`."""

    def __init__(
        self,
        sections: Sequence[Section],
        think: tuple[str, str] | None,
        new_id: NewId,
        tools: tuple[Tool, ...],
        thinks: bool,
    ) -> None:
        self._sections, self._tools = {each.opens: each for each in sections} if tools else {}, tools
        self._opens, self._closes = think or ("", "")
        self._thinking = self._has_reasoning = thinks and think is not None
        self._draft = Draft(new_id)
        self._reader: _SectionReader | None = None

    @property
    def malformed(self) -> int:
        return self._draft.malformed

    @property
    def thinking(self) -> bool:
        return self._thinking

    def feed(self, piece: Piece) -> Iterator[Delta]:
        if self._thinking:
            self._add_reasoning(piece)
        elif piece.marker and piece.text in (self._opens, self._closes) and not self._has_reasoning and self._may_think:
            self._thinking, self._has_reasoning = piece.text == self._opens, True
            self._draft.end_reasoning()
        else:
            self._add_text(piece)
        yield from self._draft.take()

    def end(self) -> Iterator[Delta]:
        if self._reader is not None:
            self._reader.end()
        self._draft.finish()
        yield from self._draft.take()

    @property
    def _may_think(self) -> bool:
        return self._reader is None and self._draft.is_empty

    def _add_reasoning(self, piece: Piece) -> None:
        if piece.marker and piece.text == self._closes:
            self._thinking = False
            self._draft.end_reasoning()
        elif not (piece.marker and piece.text == self._opens and not self._draft.has_reasoning):  # opened twice
            self._draft.reason(piece.text)

    def _add_text(self, piece: Piece) -> None:
        if self._reader is not None:
            left = self._reader.feed(piece)
            if left is None:
                return
            self._reader, piece = None, left
        if piece.marker and piece.text in self._sections:
            self._reader = _SectionReader(self._draft, self._sections[piece.text], self._tools)
        elif "" in self._sections and self._draft.is_empty and piece.text.lstrip().startswith("{"):
            self._reader = _SectionReader(self._draft, self._sections[""], self._tools)
            self._reader.feed(piece)
        elif piece.text:
            self._draft.text(piece.text)


class AnswerReader:
    """Parses one answer's tokens."""

    def __init__(
        self, tokenizer: Tokenizer, family: Family, new_id: NewId, tools: tuple[Tool, ...], thinks: bool
    ) -> None:
        """`thinks`: whether the prompt ends inside the reasoning."""
        self.reasoning_tokens = 0  # Tokens up to the reasoning's end, including its marker; 0 without reasoning
        self._pieces = Pieces(tokenizer, family.markers)
        self._parser = family.parser(new_id, tools, thinks)
        self._tokens = 0
        self._deltas: list[Delta] = []

    @property
    def malformed(self) -> int:
        return self._parser.malformed

    @property
    def message(self) -> Message:
        return message_of(self._deltas)

    def feed(self, tokens: Sequence[int]) -> list[Delta]:
        deltas: list[Delta] = []
        for run in self._pieces.runs(tokens):
            thinks = self._parser.thinking
            deltas += self._read(self._pieces.feed_run(run))
            self._tokens += len(run)
            if thinks or self._parser.thinking:
                self.reasoning_tokens = self._tokens
        return self._merged(deltas)

    def end(self) -> list[Delta]:
        deltas = self._read(self._pieces.end())
        deltas += self._parser.end()
        return self._merged(deltas)

    def _read(self, pieces: Iterable[Piece]) -> list[Delta]:
        return [delta for piece in pieces for delta in self._parser.feed(piece)]

    def _merged(self, deltas: list[Delta]) -> list[Delta]:
        merged = merge_deltas(deltas)
        self._deltas += merged
        return merged


def merge_deltas(deltas: Iterable[Delta]) -> list[Delta]:
    """The same deltas, with adjacent ones joined."""
    merged: list[Delta] = []
    for kind, run in groupby(deltas, type):
        if kind is CallDelta:
            merged += run
        else:
            merged.append(kind("".join(delta.text for delta in run if not isinstance(delta, CallDelta))))
    return merged


def message_of(deltas: Sequence[Delta]) -> Message:
    """The message that the deltas form."""
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    reasoning = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    calls = tuple(delta.call for delta in deltas if isinstance(delta, CallDelta))
    return Message(Role.ASSISTANT, text, reasoning, calls)
