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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from slime_core.errors import ConfigError, PluginError
from slime_core.roles.spec import Setup, Spec

if TYPE_CHECKING:
    import torch


# What travels from trainer to engine: slots that both sides keep to, and the channel of a transport.


class WeightDtype(enum.Enum):
    """What the numbers of a weight are, by torch's names."""

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
        """Bytes of one number."""
        return {"64": 8, "32": 4, "16": 2}.get(self.value[-2:], 1)

    @property
    def is_float(self) -> bool:
        """Whether it is a number with a point, of more than 8 bits: what one dtype can be turned into another of."""
        return "float" in self.value and self.nbytes > 1


@dataclass(frozen=True, slots=True)
class WeightSlot:
    """One weight that a trainer promises and an engine expects."""

    name: str
    """Its name in the HF state dict."""
    shape: tuple[int, ...]
    """Its shape."""
    dtype: WeightDtype = WeightDtype.FLOAT32
    """The type of its numbers."""

    @property
    def numel(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.numel * self.dtype.nbytes

    def __str__(self) -> str:
        """As errors have it."""
        return f"{self.name} {self.shape} {self.dtype.value}"


@runtime_checkable
class WeightSender(Protocol):
    """A transport's end in one rank of the trainer."""

    def send(self, version: int, buckets: "Iterator[tuple[str, torch.Tensor]]", engines: Sequence[int]) -> None:
        """Send a version; called on all ranks together, and returns when receivers can read it, or have read it.

        Args:
            version: its number; one that was sent before is sent again, to engines that came late.
            buckets: what this rank yields, each fitting its slot. Those of rank 0 are complete, or end with an error:
                then nobody may be given the version. What is not taken is exhausted by the core, on every rank.
            engines: numbers of those that read while it is sent, where the transport is a rendezvous. One that goes
                away meanwhile is passed over; one that never comes is waited for until the call's time is up.
        """
        ...

    def close(self) -> None:
        """Free what it holds; idempotent."""
        ...


@runtime_checkable
class WeightReceiver(Protocol):
    """A transport's end in one worker of an engine."""

    lasting: bool
    """Whether tensors of a `read` stay valid until the next `read` has ended, instead of until the next tensor."""

    def read(self, version: int) -> "Iterator[tuple[str, torch.Tensor]]":
        """All weights of a version by name, in any order, as their slots say; none of another version among them."""
        ...

    def close(self) -> None:
        """Free what it holds; what was read is not used any more. Idempotent."""
        ...


@runtime_checkable
class GivesFiles(Protocol):
    """What a channel has whose versions are files: for servers that load one, and for readers without torch."""

    def path_of(self, version: int) -> Path:
        """A safetensors file of all weights of a version that was sent, good until the next but one is."""
        ...


@dataclass(frozen=True, slots=True)
class WeightChannel:
    """An opened way, the base of each transport's own: plain data, which pickles, for every rank and every engine."""

    transport: str
    """Name of the transport, for an engine that has ways of its own for some."""
    slots: tuple[WeightSlot, ...]
    """What travels."""
    late_readers: ClassVar[bool] = True
    """Whether an engine that comes late can read the newest version alone; if not, the sender sends it again."""

    def sender(self, rank: int, world_size: int) -> WeightSender:
        """This rank's end.

        Raises:
            PluginError: there is none.
        """
        raise PluginError(f"transport {self.transport!r} has no sender: {type(self).__name__} defines none")

    def receiver(self, engine: int, worker: int = 0) -> WeightReceiver:
        """The end of a worker of an engine, both by number from 0.

        Raises:
            PluginError: there is none; engines bring their own side of this transport.
        """
        raise PluginError(
            f"transport {self.transport!r} brings no receiver: choose an engine that brings one, or another transport"
        )


# Transport: a way in which weights travel from the trainer's ranks to the engines.

ANY_RECEIVER = "*"
"""In `EngineSpec.transports`: any other transport that brings a receiver."""


@dataclass(frozen=True, slots=True)
class TransportSetup(Setup):
    """What a transport's factory is given."""

    scratch: Path
    """A directory for what travels, inside the run folder; empty, and nobody else's."""
    engines: int = 1
    """How many engines receive, numbered from 0."""
    receivers: int = 1
    """How many workers of each engine open a receiver, numbered from 0."""


@runtime_checkable
class Transport(Protocol):
    """The driver's side; the others are made of the channel that it opens."""

    async def open(self, slots: Sequence[WeightSlot]) -> WeightChannel:
        """Make ready for these weights, before the first version; called once.

        Raises:
            RunFolderError: there is no room for them.
        """
        ...

    async def close(self) -> None:
        """Free what it holds, opened or not; ranks and engines are gone. Idempotent."""
        ...


@dataclass(frozen=True)
class TransportSpec(Spec[Transport]):
    """Offers a transport."""

    role: ClassVar[str] = "transport"
    one_machine: bool = False
    """Whether ranks and engines must be on one machine; refused where they are known not to be."""
    rendezvous: bool = False
    """Whether sender and receivers run together, as in a broadcast; if not, a version is sent, and read after that."""
    brings_receiver: bool = True
    """Whether `WeightChannel.receiver` makes one for any engine whose workers are Python; else engines bring theirs."""


def agree_transport(
    trainer: str,
    sends: Sequence[str] | None,
    engine: str,
    receives: Sequence[str],
    offered: Mapping[str, TransportSpec],
    forced: str | None = None,
) -> str:
    """The qualified name of the transport between a trainer and an engine: the engine's favourite that both have.

    Args:
        trainer: its name.
        sends: what it sends by; None for whatever there is.
        engine: its name.
        receives: what it takes, best first; `ANY_RECEIVER` for whatever brings a receiver.
        offered: what there is, by qualified name.
        forced: the qualified name that the run file says; it must do.

    Raises:
        ConfigError: they have none in common, or not the forced one.
    """
    takes: dict[str, None] = {}
    for wanted in receives:
        takes |= dict.fromkeys(name for name, spec in offered.items() if _means(wanted, name, spec))
    both = [name for name in takes if sends is None or any(_means(each, name, offered[name]) for each in sends)]
    if forced in both:
        return forced
    if both and forced is None:
        return both[0]
    tried = f"transport {forced!r} is not what both have" if forced else "they have no transport in common"
    sent = "any" if sends is None else _listed(sends)
    raise ConfigError(
        f"weights cannot travel from trainer {trainer!r} (sends by {sent}) to engine {engine!r} (takes "
        f"{_listed(receives)}): {tried}. There are {_listed(offered)}"
        + (f"; [transport] use = {both[0]!r} would do, as would leaving it out" if both else ": choose a matching pair")
    )


def _means(wanted: str, name: str, spec: TransportSpec) -> bool:
    return spec.brings_receiver if wanted == ANY_RECEIVER else wanted in (name, spec.name)


def _listed(names: Sequence[str] | Mapping[str, TransportSpec]) -> str:
    return ", ".join("any that brings a receiver" if name == ANY_RECEIVER else name for name in names) or "none"
