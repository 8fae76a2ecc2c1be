"""Weight transport: how one published version travels from the trainer's ranks to the engine.

A rank yields buckets `(HF name, tensor)`; the channel says where they go. The shared buffer holds two copies:
version v lives in half v % 2, so the trainer writes one half while the engine reads the other, and the flip is atomic.
"""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slime_core.errors import ConfigError


class Transport(enum.Enum):
    """A way of moving weights that a trainer can send by and an engine can receive by."""

    SHARED_BUFFER = "shared-buffer"
    """A memory-mapped file of two fp32 copies, on one machine."""


@dataclass(frozen=True, slots=True)
class WeightSlot:
    """Where one tensor lies in a flat weight vector."""

    name: str
    """Its name in the HF state dict."""
    shape: tuple[int, ...]
    """Its shape."""
    offset: int
    """Elements before it."""

    @property
    def numel(self) -> int:
        """Its elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class WeightChannel:
    """An agreed route; picklable, opened by each worker for itself."""

    transport: Transport
    """How."""
    path: Path
    """The shared file."""
    slots: Sequence[WeightSlot]
    """What, in order, without gaps."""

    @property
    def numel(self) -> int:
        """Elements of one copy."""
        return sum(slot.numel for slot in self.slots)


def agree_transport(sender: str, sends: Sequence[Transport], receiver: str, receives: Sequence[Transport]) -> Transport:
    """The receiver's favourite among the transports both know.

    Raises:
        ConfigError: they have none in common.
    """
    for transport in receives:
        if transport in sends:
            return transport
    sent, taken = (", ".join(each.value for each in side) or "none" for side in (sends, receives))
    raise ConfigError(
        f"trainer {sender!r} sends weights by {sent}; engine {receiver!r} takes {taken}: choose a matching pair"
    )
