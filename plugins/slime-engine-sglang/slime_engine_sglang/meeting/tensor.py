"""The transport `tensor`: rank 0 hands servers of its machine handles of the memory in which weights lie.

What goes over HTTP is a pickle of a few hundred bytes a weight, which rank 0 writes and SGLang reads, by a list of what
it may name; nothing is ever unpickled here. It goes to servers on loopback alone.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field

from slime_core.errors import ModelError
from slime_core.roles import TransportSetup, WeightSender, WeightSlot
from slime_engine_sglang.meeting.channel import MeetingChannel, MeetingSettings

NAME = "tensor"


class TensorSettings(MeetingSettings):
    """`[transport.tensor]`."""

    device: Literal["cpu", "cuda"] = Field(
        "cpu",
        description="Where a bucket lies: in memory that processes share, or on the GPU of the trainer's first rank, "
        "where servers on the same GPUs open it (CUDA IPC).",
    )


@dataclass(frozen=True, slots=True)
class TensorChannel(MeetingChannel):
    """Weights are handed over."""

    settings: TensorSettings
    """Of the run."""

    @property
    def pace(self) -> MeetingSettings:
        """The settings that both transports have."""
        return self.settings

    def check(self, url: str, replicas: int) -> None:
        """As `MeetingChannel.check`; the server must be on loopback besides.

        Raises:
            ModelError: it is not, or weights cannot go there.
        """
        MeetingChannel.check(self, url, replicas)
        if not _is_loopback(urlsplit(url).hostname or ""):
            raise ModelError(
                "transport 'tensor' hands over memory of this machine, in pickles, and so to servers on loopback "
                f"alone, not to {url}: [transport] use = 'distributed' or 'disk' reaches others"
            )

    def first_sender(self) -> WeightSender:
        """The sender of rank 0."""
        from slime_engine_sglang.meeting.handing import HandingSender

        return HandingSender(self)


class Tensor:
    """Implements `slime_core.roles.Transport`."""

    def __init__(self, settings: TensorSettings, setup: TransportSetup) -> None:
        """Keep settings and setup for `open`."""
        self._settings, self._folder = settings, setup.scratch

    async def open(self, slots: Sequence[WeightSlot]) -> TensorChannel:
        """Nothing has to be made ready: rank 0 listens when it has its end."""
        return TensorChannel(NAME, tuple(slots), self._folder.absolute(), secrets.token_hex(16), self._settings)

    async def close(self) -> None:
        """Nothing is held here."""


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
