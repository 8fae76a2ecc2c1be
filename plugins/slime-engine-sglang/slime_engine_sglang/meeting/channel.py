"""MeetingChannel: where rank 0 is met, whichever way the weights go from there.

Example:

    channel = await Distributed(settings, setup).open(slots)
    channel.sender(rank, world_size)                    # listens in rank 0
    async with met(channel, visit) as source:           # `receiving`, in the driver
        await weights.switch(server, source, 3)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from slime_core.errors import ModelError
from slime_core.roles import Settings, WeightChannel, WeightSender

if TYPE_CHECKING:
    import torch

LOOPBACK = "127.0.0.1"


class MeetingSettings(Settings):
    """Settings of both transports."""

    bucket_mb: float = Field(512.0, gt=0, le=2**20, description="Megabytes that travel as one.")
    timeout_s: float = Field(
        300.0, gt=0, le=1e7, description="Seconds that servers have to come, and a bucket to travel."
    )
    changed_only: bool = Field(
        False,
        description="Send the weights alone that are not, byte for byte, those of the version before: where parts of "
        "the model are frozen.",
    )


@dataclass(frozen=True, slots=True)
class MeetingChannel(WeightChannel):
    """Plain data for both ends."""

    folder: Path
    """Where rank 0 says at which port it is met; all who meet see it."""
    secret: str
    """A secret that whoever comes there must know."""
    late_readers: ClassVar[bool] = False

    @property
    def pace(self) -> MeetingSettings:
        """How much travels at once, and how long the ends wait for each other."""
        raise NotImplementedError

    @property
    def address(self) -> str:
        """Address of rank 0's machine."""
        return LOOPBACK

    def check(self, url: str, replicas: int) -> None:
        """See that weights can go to the server at an address, which has the model so often.

        Raises:
            ModelError: they cannot.
        """
        if replicas > 1:
            raise ModelError(
                f"{url} runs with dp_size {replicas}, and SGLang takes weights from files alone then, not by transport "
                f"{self.transport!r}: [transport] use = 'shared-buffer' or 'disk'"
            )

    @property
    def place(self) -> Path:
        """The file that holds rank 0's port."""
        return self.folder / "port"

    def sender(self, rank: int, world_size: int) -> WeightSender:
        """The sender of a rank; only rank 0's sends."""
        return Silent() if rank else self.first_sender()

    def first_sender(self) -> WeightSender:
        """The sender of rank 0."""
        raise NotImplementedError


class Silent:
    """The end of a rank that sends nothing."""

    def send(self, version: int, buckets: "Iterator[tuple[str, torch.Tensor]]", engines: Sequence[int]) -> None:
        """Send nothing; the core exhausts the buckets."""

    def close(self) -> None:
        """Nothing is held."""
