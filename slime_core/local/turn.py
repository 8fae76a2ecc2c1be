"""What a worker of the local engine is told before it goes on decoding, and what it answers; without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from slime_core.errors import ModelError
from slime_core.roles import GenerateOutput, GenerateRequest

Answers: TypeAlias = dict[int, GenerateOutput | ModelError]
"""By the number of the request: what it got, or why it gets nothing."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of a worker."""

    admitted: Mapping[int, GenerateRequest]
    """New requests, each under a number of its own."""
    dropped: frozenset[int] = frozenset()
    """Requests that nobody waits for any more."""
