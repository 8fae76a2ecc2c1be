"""Reads one answer: from pieces of text to deltas to a message. What differs by model is a `Family`.

`Reading` feeds tokens to a family's `Parser`. `Answer` is the parser that families of this package share: reasoning,
then text with calls in between; a `Form` names the markers that open a call and the `CallReader` of each. Chunking
changes nothing: the deltas, put together, are the message.

Example:

    form = Form(openers={"<tool_call>": HermesCall})
    family = Family("hermes", markers, form.parser, "JSON in <tool_call>")      # or of another package, by entry point:
    # [project.entry-points."slime.agent_parsers"]
    # shouted = "my_package.shouted:FAMILY"
    reading = Reading(tokenizer, family, new_id, request.tools, thinks=family.thinks(prompt))
    async for chunk in engine.stream(request):
        for delta in reading.feed(chunk.tokens): ...
    for delta in reading.end(): ...
    reading.message, reading.malformed, reading.reasoning_tokens
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from slime_agent_openai.message import (
    ArgumentsDelta,
    CallBegun,
    Delta,
    Message,
    ReasoningDelta,
    Role,
    TextDelta,
    Tool,
    ToolCall,
)
from slime_agent_openai.parsers.pieces import Piece, Pieces
from slime_agent_openai.wires.wire import NewId
from slime_core.roles import Tokenizer


class Parser(Protocol):
    """Reads one answer. Its deltas, put together, are the message: none is ever taken back."""

    @property
    def malformed(self) -> int:
        """Calls that could not be read: their text, markers included, is part of the message's text.

        A call that breaks off or is not JSON after its name was told stays a call, and counts here.
        """
        ...

    @property
    def thinking(self) -> bool: ...

    def feed(self, piece: Piece) -> Iterator[Delta]: ...

    def end(self) -> Iterator[Delta]:
        """What the end of the answer makes certain."""
        ...


MakeParser: TypeAlias = Callable[[NewId, tuple[Tool, ...], bool], Parser]
"""Makes the parser of one answer: ids of calls, the tools offered, whether the prompt opened the reasoning already.

Without tools no call is read.
"""


@dataclass(frozen=True, slots=True)
class Family:
    """A way of writing calls."""

    name: str
    """What a user types."""
    markers: frozenset[str]
    """Texts that mean something when they are a token, or where there is none for them."""
    parser: MakeParser
    """Reads one answer."""
    summary: str
    """Which models, in a line."""
    reads_calls: bool = True
    """Whether it reads calls; where it reads none, no tools may be offered."""
    thinks_after: str = "<think>"
    """A prompt that ends with this opened the reasoning already; empty: none does."""

    def thinks(self, prompt: str) -> bool:
        """Whether the answer to this prompt begins within its reasoning."""
        return bool(self.thinks_after) and prompt.rstrip().endswith(self.thinks_after)


class Draft:
    """Collects what parsers read."""

    def __init__(self, new_id: NewId) -> None:
        self.malformed = 0
        self._new_id = new_id
        self._deltas: list[Delta] = []
        self._thought = self._said = False
        self._held_thought = self._held = ""
        self._skip_newlines = self._skip_space = False
        self._calls = 0
        self._ids: set[str] = set()
        self._arguments: list[str] = []

    @property
    def silent(self) -> bool:
        return not (self._said or self._calls)

    @property
    def thought(self) -> bool:
        return self._thought

    def take(self) -> list[Delta]:
        taken, self._deltas = self._deltas, []
        return taken

    def reason(self, text: str) -> None:
        whole = self._held_thought + text if self._thought else text.lstrip()
        known = whole.rstrip()
        self._held_thought = whole[len(known) :] if known or self._thought else ""
        if known:
            self._thought = True
            self._deltas.append(ReasoningDelta(known))

    def reasoned(self) -> None:
        self._held_thought = self._held = ""
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
            self._said = True
            self._deltas.append(TextDelta(known))

    def back(self, text: str) -> None:
        """What looked like a call is none: it is text, and counted."""
        self.malformed += 1
        self.text(text)

    def begin(self, name: str, written: str = "") -> None:
        """A call; `arguments` and `end` follow. `written` is the id that the model gave it, if it gave one."""
        if not self._said:
            self._held = ""
        self._skip_space = True  # what is held comes between the texts if more text follows the call
        call = written if written and written not in self._ids else self._new_id("call")
        self._deltas.append(CallBegun(self._calls, call, name))
        self._ids.add(call)
        self._calls += 1
        self._arguments = []

    def arguments(self, text: str) -> None:
        if text:
            self._arguments.append(text)
            self._deltas.append(ArgumentsDelta(self._calls - 1, text))

    def end(self, *, whole: bool = True) -> None:
        """The call is over; one that is not whole, or whose arguments are not a JSON object, is malformed."""
        if not (whole and _is_object("".join(self._arguments))):
            self.malformed += 1

    def finish(self) -> None:
        if self._held and not self._skip_space:
            self._deltas.append(TextDelta(self._held))
        self._held = ""


def can_name(name: object) -> bool:
    """Whether this may be the name of a tool."""
    return isinstance(name, str) and bool(name) and name.isprintable() and " " not in name


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


THINK = ("<think>", "</think>")  # What most models write around their reasoning
NOTHING = Piece("")  # Nothing is left of a piece


class CallReader(Protocol):
    """Reads a call, or several in a row, into a draft."""

    def feed(self, piece: Piece) -> Piece | None:
        """Read on: None; or this is no longer of the call: what is left of the piece, maybe NOTHING."""
        ...

    def end(self) -> None: ...


MakeReader: TypeAlias = Callable[[Draft, tuple[Tool, ...], str], CallReader]
"""Makes a reader: where to write, the tools offered, the marker that opened the call."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a family's answers are made of."""

    openers: Mapping[str, MakeReader] = field(default_factory=dict)  # Who reads on, by the marker that opens a call
    bare: MakeReader | None = None  # Who reads an answer that begins with a brace
    think: tuple[str, str] | None = THINK  # What opens and closes the reasoning; None: there is none

    def parser(self, new_id: NewId, tools: tuple[Tool, ...], thinks: bool) -> Parser:
        return Answer(self, new_id, tools, thinks)


class Answer:
    """Implements `Parser`."""

    def __init__(self, form: Form, new_id: NewId, tools: tuple[Tool, ...], thinks: bool) -> None:
        self._form, self._tools = form, tools
        self._opens, self._closes = form.think or ("", "")
        self._thinking = self._thought = thinks and form.think is not None
        self._draft = Draft(new_id)
        self._reader: CallReader | None = None

    @property
    def malformed(self) -> int:
        return self._draft.malformed

    @property
    def thinking(self) -> bool:
        return self._thinking

    def feed(self, piece: Piece) -> Iterator[Delta]:
        if self._thinking:
            self._think(piece)
        elif piece.marker and piece.text in (self._opens, self._closes) and not self._thought and self._may_think:
            self._thinking, self._thought = piece.text == self._opens, True
            self._draft.reasoned()
        else:
            self._say(piece)
        yield from self._draft.take()

    def end(self) -> Iterator[Delta]:
        if self._reader is not None:
            self._reader.end()
        self._draft.finish()
        yield from self._draft.take()

    @property
    def _may_think(self) -> bool:
        return self._reader is None and self._draft.silent

    def _think(self, piece: Piece) -> None:
        if piece.marker and piece.text == self._closes:
            self._thinking = False
            self._draft.reasoned()
        elif not (piece.marker and piece.text == self._opens and not self._draft.thought):  # opened twice
            self._draft.reason(piece.text)

    def _say(self, piece: Piece) -> None:
        while piece.text:
            if self._reader is None:
                self._reader, opened = self._reader_of(piece)
                if self._reader is None:
                    self._draft.text(piece.text)
                if opened:
                    return
            left = self._reader.feed(piece) if self._reader is not None else NOTHING
            if left is None:
                return
            self._reader, piece = None, left

    def _reader_of(self, piece: Piece) -> tuple[CallReader | None, bool]:
        """Who reads on, and whether the piece was only the sign to do so, or text."""
        if self._tools and piece.marker and piece.text in self._form.openers:
            return self._form.openers[piece.text](self._draft, self._tools, piece.text), True
        bare = self._form.bare
        if self._tools and bare is not None and self._draft.silent and piece.text.lstrip().startswith("{"):
            return bare(self._draft, self._tools, ""), False
        return None, True


class Reading:
    """Reads one answer."""

    def __init__(
        self, tokenizer: Tokenizer, family: Family, new_id: NewId, tools: tuple[Tool, ...], thinks: bool
    ) -> None:
        """Nothing is read; `thinks`: the prompt ends within the reasoning."""
        self.reasoning_tokens = 0  # Tokens up to the reasoning's end, its marker included; 0 if there is none
        self._pieces = Pieces(tokenizer, family.markers)
        self._parser = family.parser(new_id, tools, thinks)
        self._tokens = 0
        self._said: list[Delta] = []

    @property
    def malformed(self) -> int:
        return self._parser.malformed

    @property
    def message(self) -> Message:
        return folded(self._said)

    def feed(self, tokens: Sequence[int]) -> list[Delta]:
        told: list[Delta] = []
        for run in self._pieces.runs(tokens):
            thinks = self._parser.thinking
            told += self._read(self._pieces.feed_run(run))
            self._tokens += len(run)
            if thinks or self._parser.thinking:
                self.reasoning_tokens = self._tokens
        return self._joined(told)

    def end(self) -> list[Delta]:
        told = self._read(self._pieces.end())
        told += self._parser.end()
        return self._joined(told)

    def _read(self, pieces: Iterable[Piece]) -> list[Delta]:
        return [delta for piece in pieces for delta in self._parser.feed(piece)]

    def _joined(self, told: list[Delta]) -> list[Delta]:
        deltas = joined(told)
        self._said += deltas
        return deltas


def joined(deltas: Iterable[Delta]) -> list[Delta]:
    """The same with fewer deltas."""
    made: list[Delta] = []
    texts: list[str] = []
    for delta in deltas:
        last = made[-1] if made else None
        if last is None or isinstance(delta, CallBegun) or type(delta) is not type(last):
            _close(made, texts)
            made.append(delta)
            texts = [] if isinstance(delta, CallBegun) else [delta.text]
        else:
            texts.append(delta.text)
    _close(made, texts)
    return made


def _close(made: list[Delta], texts: list[str]) -> None:
    match made[-1:]:
        case [TextDelta()]:
            made[-1] = TextDelta("".join(texts))
        case [ReasoningDelta()]:
            made[-1] = ReasoningDelta("".join(texts))
        case [ArgumentsDelta(index=index)]:
            made[-1] = ArgumentsDelta(index, "".join(texts))


def folded(deltas: Iterable[Delta]) -> Message:
    """The message that the deltas tell."""
    text: list[str] = []
    reasoning: list[str] = []
    begun: list[CallBegun] = []
    arguments: list[list[str]] = []
    for delta in deltas:
        match delta:
            case TextDelta():
                text.append(delta.text)
            case ReasoningDelta():
                reasoning.append(delta.text)
            case CallBegun():
                begun.append(delta)
                arguments.append([])
            case ArgumentsDelta():
                arguments[delta.index].append(delta.text)
    calls = [ToolCall(call.id, call.name, "".join(parts)) for call, parts in zip(begun, arguments, strict=True)]
    return Message(Role.ASSISTANT, "".join(text), "".join(reasoning), tuple(calls))
