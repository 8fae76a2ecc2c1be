"""Family: how the models of one chat template write reasoning and calls down; and Parser, which reads that.

A family of one's own is a `Family` that the entry-point group `slime.agent_parsers` names:

Example:

    [project.entry-points."slime.agent_parsers"]
    shouted = "my_package.shouted:FAMILY"
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from slime_agent_openai.message import Tool
from slime_agent_openai.parsers.pieces import Piece
from slime_agent_openai.reply import Delta
from slime_agent_openai.wires.wire import NewId


class Parser(Protocol):
    """Reads one answer. Its deltas, put together, are the message: none is ever taken back."""

    @property
    def malformed(self) -> int:
        """Calls that could not be read: their text, markers included, is part of the message's text.

        A call that breaks off or is not JSON after its name was told stays a call, and counts here.
        """
        ...

    @property
    def thinking(self) -> bool:
        """Whether the reasoning goes on."""
        ...

    def feed(self, piece: Piece) -> Iterator[Delta]:
        """What a piece adds."""
        ...

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
