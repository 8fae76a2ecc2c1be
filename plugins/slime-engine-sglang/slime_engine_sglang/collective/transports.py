"""The transports `distributed` and `tensor`: rank 0 sends each version to all servers at once. No torch here.

`distributed` broadcasts to a process group of rank 0 and all ranks of all servers. `tensor` sends servers on the same
machine handles of the weights' memory: a pickle of a few hundred bytes per weight, written by rank 0. SGLang unpickles
it with a list of allowed names; this package unpickles nothing. Only servers on loopback get handles.

Example:

    channel = await Distributed(settings, setup).open(slots)
    channel.sender(rank, world_size)                    # listens in rank 0
    async with connect(channel, hello, sessions=True) as source:           # `receiver`, in the driver
        await weights.switch(server, source, 3)
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field

from slime_core.errors import ModelError
from slime_core.roles import Settings, TransportSetup, WeightChannel, WeightSender, WeightSlot

if TYPE_CHECKING:
    import torch

LOOPBACK = "127.0.0.1"


class CollectiveSettings(Settings):
    """Settings of both transports."""

    bucket_mb: float = Field(512.0, gt=0, le=2**20, description="Megabytes of weights that are sent at once.")
    timeout_s: float = Field(
        300.0, gt=0, le=1e7, description="Seconds that servers may take to connect, and that sending a bucket may take."
    )


@dataclass(frozen=True, slots=True)
class CollectiveChannel(WeightChannel):
    """Channel of both transports, as plain data."""

    folder: Path  # Shared folder in which rank 0 writes its port
    secret: str  # Secret with which an engine must connect
    settings: CollectiveSettings  # The transport's settings in this run
    late_readers: ClassVar[bool] = False

    @property
    def address(self) -> str:
        return LOOPBACK

    def check(self, url: str, replicas: int) -> None:
        """Check that the transport supports the server at an address, which has `replicas` copies of the model."""
        if replicas > 1:
            raise ModelError(
                f"{url} runs with dp_size {replicas}, and SGLang then loads weights only from files, not by transport "
                f"{self.transport!r}. Set [transport] use = 'shared-buffer' or 'disk'"
            )

    @property
    def port_file(self) -> Path:
        return self.folder / "port"

    def sender(self, rank: int, world_size: int) -> WeightSender:
        return IdleSender() if rank else self.first_sender()

    def first_sender(self) -> WeightSender:
        raise NotImplementedError


class CollectiveTransport:
    """Implements `slime_core.roles.Transport`."""

    name: ClassVar[str]
    channel: ClassVar[type[CollectiveChannel]]

    def __init__(self, settings: CollectiveSettings, setup: TransportSetup) -> None:
        self._settings, self._folder = settings, setup.scratch

    async def open(self, slots: Sequence[WeightSlot]) -> CollectiveChannel:
        return self.channel(self.name, tuple(slots), self._folder.absolute(), secrets.token_hex(16), self._settings)

    async def close(self) -> None:
        """Do nothing: the transport holds no resources."""


class IdleSender:
    """Sender of ranks other than 0, which send nothing."""

    def send(self, version: int, buckets: "Iterator[tuple[str, torch.Tensor]]", engines: Sequence[int]) -> None:
        """Send nothing; the core exhausts the buckets."""

    def close(self) -> None:
        """Do nothing."""


class DistributedSettings(CollectiveSettings):
    """`[transport.distributed]`."""

    backend: Literal["gloo", "nccl"] = Field(
        "gloo", description="Backend of the process group: gloo between CPUs, nccl between GPUs."
    )
    address: str = Field(
        LOOPBACK,
        description="Address at which servers reach the machine of the trainer's first rank.",
    )


@dataclass(frozen=True, slots=True)
class DistributedChannel(CollectiveChannel):
    """Channel of the transport `distributed`."""

    settings: DistributedSettings  # The transport's settings in this run

    @property
    def address(self) -> str:
        return self.settings.address

    def first_sender(self) -> WeightSender:
        from slime_engine_sglang.collective.broadcast import BroadcastSender

        return BroadcastSender(self)


class Distributed(CollectiveTransport):
    """The transport `distributed`."""

    name, channel = "distributed", DistributedChannel


class TensorSettings(CollectiveSettings):
    """`[transport.tensor]`."""

    device: Literal["cpu", "cuda"] = Field(
        "cpu",
        description="Device of a bucket: shared memory (cpu), or the GPU of the trainer's first rank (cuda), from "
        "which servers on the same GPUs read it by CUDA IPC.",
    )


@dataclass(frozen=True, slots=True)
class TensorChannel(CollectiveChannel):
    """Channel of the transport `tensor`."""

    settings: TensorSettings  # The transport's settings in this run

    def check(self, url: str, replicas: int) -> None:
        """Check as `CollectiveChannel.check` does, and that the server is on loopback."""
        CollectiveChannel.check(self, url, replicas)
        if not _is_loopback(urlsplit(url).hostname or ""):
            raise ModelError(
                "transport 'tensor' sends pickled handles of this machine's memory, and so works only for servers on "
                f"loopback, not for {url}. For other servers set [transport] use = 'distributed' or 'disk'"
            )

    def first_sender(self) -> WeightSender:
        from slime_engine_sglang.collective.handles import HandleSender

        return HandleSender(self)


class Tensor(CollectiveTransport):
    """The transport `tensor`."""

    name, channel = "tensor", TensorChannel


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
