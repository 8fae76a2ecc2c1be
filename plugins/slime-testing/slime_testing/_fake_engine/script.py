"""What a fake engine does with the generations it is asked for, one behaviour each.

    FakeEngine(Slow(2.0), FailThenOk(times=2))     # the first is slow, two fail, the rest is well

The n-th request of a generation meets the n-th behaviour; the last one is for all that follow.
"""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from slime_core.sample import Json

CODE_POINTS = 0x110000
"""Token ids are code points: the fake engine's tokenizer is `CharTokenizer`."""


class Flaw(enum.Enum):
    """What is wrong with a malformed answer; the status is 200 all the same."""

    BROKEN_JSON = "broken-json"
    """The body, or the last event of a stream, is not JSON."""
    TRUNCATED = "truncated"
    """A body shorter than announced; a stream that ends in good order but without its last events and `[DONE]`."""
    SHORT_LOG_PROBS = "short-log-probs"
    """One log-prob less than tokens."""
    NAN_LOG_PROB = "nan-log-prob"
    """The last log-prob is the literal NaN, which Python's json reads and others refuse."""
    NULL_LOG_PROB = "null-log-prob"
    """The last log-prob is null: what a strict encoder writes for NaN."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A good answer at once."""

    tokens: Sequence[int] | None = None
    """Ids of the response, until a stop token or the budget ends it; None draws them from prompt and sampling seed."""
    log_probs: Sequence[float] | None = None
    """Of each of the tokens; None draws them."""

    def __post_init__(self) -> None:
        if any(not 0 <= token < CODE_POINTS for token in self.tokens or ()):
            raise ValueError(f"Answer({self.tokens}): token ids must be code points, 0 to {CODE_POINTS - 1}")
        if self.log_probs is not None and len(self.log_probs) != len(self.tokens or ()):
            raise ValueError(f"Answer: {len(self.tokens or ())} tokens with {len(self.log_probs)} log-probs")


@dataclass(frozen=True, slots=True)
class Slow:
    """A good answer, its tokens spread over some time; an abort or a pause in between finds it running."""

    seconds: float
    """From the first token's turn to the last one's."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds >= 0):
            raise ValueError(f"Slow({self.seconds}): expected seconds, 0 or more")


@dataclass(frozen=True, slots=True)
class FailThenOk:
    """An error for the first generations that meet it, good answers for the others."""

    status: int = 500
    """HTTP status of the error."""
    times: int = 1
    """How many fail."""

    def __post_init__(self) -> None:
        if not 400 <= self.status <= 599 or self.times < 1:
            raise ValueError(f"{self}: expected a status of 400 to 599, and times of at least 1")


@dataclass(frozen=True, slots=True)
class Malformed:
    """An answer that breaks the protocol."""

    flaw: Flaw
    """How."""


@dataclass(frozen=True, slots=True)
class AbortMidway:
    """The engine itself ends the generation early: finish reason abort, with what there is."""

    after_tokens: int
    """Tokens that are made before."""


@dataclass(frozen=True, slots=True)
class StaleVersion:
    """A good answer that says it was made by other weights than the ones that were loaded last."""

    version: str = "default"
    """What it says; a server calls the weights it was started with "default"."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The connection is dropped without an answer; a stream may have begun."""

    after_tokens: int = 0
    """Tokens of a stream that are sent before."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model calls a tool: `tool_calls` of a chat, `<tool_call>` and JSON as the text of a generation."""

    name: str
    """The tool."""
    arguments: Mapping[str, Json] = field(default_factory=dict)
    """What it is called with."""


Behaviour: TypeAlias = Answer | Slow | FailThenOk | Malformed | AbortMidway | StaleVersion | Disconnect | ToolCall

GOOD = Answer()
"""What is done where the script has nothing else."""


@dataclass(frozen=True, slots=True)
class Script:
    """Behaviours in the order in which generations meet them."""

    steps: tuple[Behaviour, ...]
    """At least one; the last is for all that follow."""

    def behaviour(self, generation: int) -> Behaviour:
        """What the generation of this number does; a `FailThenOk` that has failed often enough is an `Answer`."""
        step = min(generation, len(self.steps) - 1)
        found = self.steps[step]
        if isinstance(found, FailThenOk) and generation - step >= found.times:
            return GOOD
        return found
