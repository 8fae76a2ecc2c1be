"""Blocks: a reply as runs of reasoning, text and calls, for protocols that number them.

A block ends when another kind begins. A reply arrives as steps, which a wire writes as events; a complete reply has the
same blocks.

Example:

    blocks = Blocks(new_id, {Kind.TEXT: "msg", Kind.REASONING: "rs", Kind.CALL: "fc"})
    for step in blocks.add(TextDelta("Hello")):
        step.stage, step.block.kind, step.text      # STARTED, TEXT, ""; then ADDED, TEXT, "Hello"
"""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slime_agent_openai.message import CallDelta, Delta, Message, ReasoningDelta, TextDelta, ToolCall
from slime_agent_openai.wires.wire import NewId


class Kind(enum.Enum):
    """Content of a block."""

    REASONING = "reasoning"
    TEXT = "text"
    CALL = "call"


class Stage(enum.Enum):
    """Stage of a block."""

    STARTED = "begun"
    ADDED = "more"
    ENDED = "ended"


@dataclass(slots=True)
class Block:
    """A run of one kind of content."""

    kind: Kind  # Its content
    index: int  # Its number in the reply
    id: str  # Id for clients
    call: ToolCall | None = None  # The call, in a block of that kind
    parts: list[str] = field(default_factory=list)  # Its text so far; of a call: the arguments

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass(frozen=True, slots=True)
class Step:
    """The next event that a wire writes."""

    stage: Stage
    block: Block
    text: str = ""  # Added text, at ADDED


class Blocks:
    """A reply's blocks so far."""

    def __init__(self, new_id: NewId, prefixes: Mapping[Kind, str]) -> None:
        self._new_id, self._prefixes = new_id, prefixes
        self._blocks: list[Block] = []
        self._is_open = False
        self._empty = self._new_block(Kind.TEXT)

    def add(self, delta: Delta) -> Iterator[Step]:
        match delta:
            case ReasoningDelta(text=text):
                yield from self._append(Kind.REASONING, text)
            case TextDelta(text=text):
                yield from self._append(Kind.TEXT, text)
            case CallDelta(call=call):
                yield from self._start(self._new_block(Kind.CALL, call))
                if call.arguments:
                    yield self._more(call.arguments)

    def end(self) -> Iterator[Step]:
        if self._needs_text:
            self._empty.index = len(self._blocks)
            yield from self._start(self._empty)
        yield from self._finish()

    def of(self, message: Message) -> list[Block]:
        """Blocks of a whole message: the streamed ones, if it was streamed."""
        if not self._blocks:
            for delta in deltas_of(message):
                for _ in self.add(delta):
                    pass
        if not self._needs_text:
            return list(self._blocks)
        self._empty.index = len(self._blocks)
        return [*self._blocks, self._empty]

    @property
    def started(self) -> list[Block]:
        return list(self._blocks)

    @property
    def _needs_text(self) -> bool:
        """Whether the reply has neither text nor calls: clients expect a text then, so an empty one is added."""
        return all(block.kind is Kind.REASONING for block in self._blocks)

    def _new_block(self, kind: Kind, call: ToolCall | None = None) -> Block:
        return Block(kind, len(self._blocks), self._new_id(self._prefixes[kind]), call)

    def _append(self, kind: Kind, text: str) -> Iterator[Step]:
        if not self._is_open or self._blocks[-1].kind is not kind:
            yield from self._start(self._new_block(kind))
        yield self._more(text)

    def _start(self, block: Block) -> Iterator[Step]:
        yield from self._finish()
        self._blocks.append(block)
        self._is_open = True
        yield Step(Stage.STARTED, block)

    def _more(self, text: str) -> Step:
        self._blocks[-1].parts.append(text)
        return Step(Stage.ADDED, self._blocks[-1], text)

    def _finish(self) -> Iterator[Step]:
        if self._is_open:
            self._is_open = False
            yield Step(Stage.ENDED, self._blocks[-1])


def deltas_of(message: Message) -> Iterator[Delta]:
    """A whole message as deltas."""
    if message.reasoning:
        yield ReasoningDelta(message.reasoning)
    if message.text:
        yield TextDelta(message.text)
    yield from (CallDelta(index, call) for index, call in enumerate(message.calls))
