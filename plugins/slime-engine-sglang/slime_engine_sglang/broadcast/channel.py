"""DistributedChannel: where rank 0 is met, and how weights go from there; the transport that opens it.

Example:

    channel = await Distributed(settings, setup).open(slots)
    channel.sender(rank, world_size)                    # listens in rank 0
    async with met(channel, engine=0, version=3, ranks=1) as source:        # `receiving`, in the driver
        await weights.switch(server, source, 3)
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from slime_core.roles import Settings, TransportSetup, WeightChannel, WeightSender, WeightSlot

if TYPE_CHECKING:
    import torch

NAME = "distributed"


class DistributedSettings(Settings):
    """`[transport.distributed]`."""

    backend: Literal["gloo", "nccl"] = Field(
        "gloo", description="Of the process group: gloo between CPUs, nccl between GPUs."
    )
    address: str = Field(
        "127.0.0.1",
        description="Address of the machine of the trainer's first rank, at which servers on other machines reach it.",
    )
    bucket_mb: float = Field(512.0, gt=0, description="Megabytes that travel as one.")
    timeout_s: float = Field(300.0, gt=0, description="Seconds that servers have to come, and a bucket to travel.")


@dataclass(frozen=True, slots=True)
class DistributedChannel(WeightChannel):
    """Plain data for both ends."""

    folder: Path
    """Where rank 0 says at which port it is met; all who meet see it."""
    secret: str
    """What who comes there knows."""
    settings: DistributedSettings
    """Of the run."""
    late_readers: ClassVar[bool] = False

    @property
    def place(self) -> Path:
        """The file that holds rank 0's port."""
        return self.folder / "port"

    def sender(self, rank: int, world_size: int) -> WeightSender:
        """Rank 0 sends; what others yield is its affair."""
        if rank:
            return Silent()
        from slime_engine_sglang.broadcast.sender import BroadcastSender

        return BroadcastSender(self)


class Silent:
    """The end of a rank that sends nothing."""

    def send(self, version: int, buckets: "Iterator[tuple[str, torch.Tensor]]", engines: Sequence[int]) -> None:
        """The core exhausts the buckets."""

    def close(self) -> None:
        """Nothing is held."""


class Distributed:
    """Implements `slime_core.roles.Transport`."""

    def __init__(self, settings: DistributedSettings, setup: TransportSetup) -> None:
        """Remember both."""
        self._settings, self._folder = settings, setup.scratch

    async def open(self, slots: Sequence[WeightSlot]) -> DistributedChannel:
        """Nothing has to be made ready: rank 0 listens when it has its end."""
        return DistributedChannel(NAME, tuple(slots), self._folder.absolute(), secrets.token_hex(16), self._settings)

    async def close(self) -> None:
        """Nothing is held here."""
