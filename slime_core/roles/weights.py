"""The transport role: how weights get from the trainer's ranks to the engines.

Both sides agree on a list of slots. A rank yields buckets of `(HF name, tensor)`, a sender takes them, and a
receiver in each engine worker yields them again. Only the transport depends on the path in between.

Example:

    sender = channel.sender(rank, world_size)                   # in a rank
    sender.send(3, rank.weights(), engines=(0, 1))
    receiver = channel.receiver(engine=0, worker=0)             # in a worker of an engine
    weights = dict(receiver.read(3))
"""

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from slime_core.errors import PluginError
from slime_core.roles.spec import Setup, Spec

if TYPE_CHECKING:
    import torch


# Weights from trainer to engine: slots that both sides agree on, and a transport's channel.


class WeightDtype(enum.Enum):
    """Dtype of a weight, by torch's names."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E5M2 = "float8_e5m2"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT8 = "uint8"
    BOOL = "bool"

    @property
    def nbytes(self) -> int:
        """Bytes per element."""
        return {"64": 8, "32": 4, "16": 2}.get(self.value[-2:], 1)

    @property
    def is_float(self) -> bool:
        """Whether it is a float of more than 8 bits. Such dtypes can be cast to each other."""
        return "float" in self.value and self.nbytes > 1


@dataclass(frozen=True, slots=True)
class WeightSlot:
    """One weight that the trainer yields and the engine expects."""

    name: str
    """Its name in the HF state dict."""
    shape: tuple[int, ...]
    """Its shape."""
    dtype: WeightDtype = WeightDtype.FLOAT32
    """Dtype of its elements."""

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.numel * self.dtype.nbytes

    def __str__(self) -> str:
        """Text for error messages."""
        return f"{self.name} {self.shape} {self.dtype.value}"


@runtime_checkable
class WeightSender(Protocol):
    """A transport's sending side, in one trainer rank."""

    def send(self, version: int, buckets: "Iterator[tuple[str, torch.Tensor]]", engines: Sequence[int]) -> None:
        """Send a version; called on all ranks together. Returns when receivers can read it, or have read it.

        Args:
            version: its number. A version may be sent again, for engines that joined late.
            buckets: this rank's weights, each matching its slot. Rank 0 yields all slots or raises; after an error no
                receiver may read the version. The core exhausts the rest of the iterator on every rank.
            engines: for a rendezvous transport, numbers of the engines that read during the send. An engine that
                disappears is skipped; the call waits for one that has not arrived until its timeout.
        """

    def close(self) -> None:
        """Free resources; idempotent."""


@runtime_checkable
class WeightReceiver(Protocol):
    """A transport's receiving side, in one worker of an engine."""

    keeps_tensors: bool
    """Whether tensors stay valid until the end of the next `read`. If not, only until the next tensor."""

    def read(self, version: int) -> "Iterator[tuple[str, torch.Tensor]]":
        """Yield all weights of exactly this version by name, in any order, matching their slots."""

    def close(self) -> None:
        """Free resources; tensors that were read are no longer in use. Idempotent."""


@runtime_checkable
class GivesFiles(Protocol):
    """Optional: a channel that stores versions as files, for servers that load a file and readers without torch."""

    def path_of(self, version: int) -> Path:
        """A safetensors file of all weights of a sent version. Valid until two later versions are sent."""


@dataclass(frozen=True, slots=True)
class WeightChannel:
    """Base of a transport's open channel: plain picklable data, which every rank and engine receives."""

    transport: str
    """Name of the transport, for engines with their own receiver."""
    slots: tuple[WeightSlot, ...]
    """The weights to send."""
    late_readers: ClassVar[bool] = True
    """Whether a late engine can read the newest version without the sender. If not, the version is sent again."""

    def sender(self, rank: int, world_size: int) -> WeightSender:
        """The sender of a rank.

        Raises:
            PluginError: the transport has no sender.
        """
        raise PluginError(f"transport {self.transport!r} has no sender: {type(self).__name__} defines none")

    def receiver(self, engine: int, worker: int = 0) -> WeightReceiver:
        """The receiver of an engine's worker; both are numbered from 0.

        Raises:
            PluginError: the transport has no receiver; engines must bring one.
        """
        raise PluginError(
            f"transport {self.transport!r} brings no receiver: choose an engine that brings one, or another transport"
        )


# Transport: transfers weights from the trainer's ranks to the engines.

ANY_RECEIVER = "*"
"""In `EngineSpec.transports`: any other transport that brings a receiver."""


@dataclass(frozen=True, slots=True)
class TransportSetup(Setup):
    """What a transport's factory receives."""

    scratch: Path
    """An empty directory inside the run folder, for this transport only."""
    engines: int = 1
    """How many engines receive, numbered from 0."""
    receivers: int = 1
    """How many workers of each engine open a receiver, numbered from 0."""


@runtime_checkable
class Transport(Protocol):
    """The driver's side. Its channel makes the sender and receiver sides."""

    async def open(self, slots: Sequence[WeightSlot]) -> WeightChannel:
        """Prepare for these weights; called once, before the first version.

        Raises:
            RunFolderError: the disk has no room for them.
        """

    async def close(self) -> None:
        """Free resources, opened or not, after ranks and engines have ended. Idempotent."""


@dataclass(frozen=True)
class TransportSpec(Spec[Transport]):
    """Offers a transport: how weights travel from trainer to engines."""

    role: ClassVar[str] = "transport"
    one_machine: bool = False
    """Whether ranks and engines must be on one machine. Rejected if they are known not to be."""
    rendezvous: bool = False
    """Whether sender and receivers run at the same time, as in a broadcast. If not, receivers read after the send."""
    brings_receiver: bool = True
    """Whether `WeightChannel.receiver` works for any engine with Python workers. If not, engines bring their own."""
