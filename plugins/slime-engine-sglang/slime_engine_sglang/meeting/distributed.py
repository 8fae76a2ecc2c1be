"""The transport `distributed`: rank 0 broadcasts weights to a process group of itself and all ranks of all servers."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from slime_core.roles import TransportSetup, WeightSender, WeightSlot
from slime_engine_sglang.meeting.channel import LOOPBACK, MeetingChannel, MeetingSettings

NAME = "distributed"


class DistributedSettings(MeetingSettings):
    """`[transport.distributed]`."""

    backend: Literal["gloo", "nccl"] = Field(
        "gloo", description="Of the process group: gloo between CPUs, nccl between GPUs."
    )
    address: str = Field(
        LOOPBACK,
        description="Address of the machine of the trainer's first rank, at which servers on other machines reach it.",
    )


@dataclass(frozen=True, slots=True)
class DistributedChannel(MeetingChannel):
    """Weights are broadcast."""

    settings: DistributedSettings
    """Of the run."""

    @property
    def pace(self) -> MeetingSettings:
        """The settings that both transports have."""
        return self.settings

    @property
    def address(self) -> str:
        """The address in the settings, at which servers on other machines reach it."""
        return self.settings.address

    def first_sender(self) -> WeightSender:
        """The sender of rank 0."""
        from slime_engine_sglang.meeting.broadcasting import BroadcastSender

        return BroadcastSender(self)


class Distributed:
    """Implements `slime_core.roles.Transport`."""

    def __init__(self, settings: DistributedSettings, setup: TransportSetup) -> None:
        """Keep settings and setup for `open`."""
        self._settings, self._folder = settings, setup.scratch

    async def open(self, slots: Sequence[WeightSlot]) -> DistributedChannel:
        """Nothing has to be made ready: rank 0 listens when it has its end."""
        return DistributedChannel(NAME, tuple(slots), self._folder.absolute(), secrets.token_hex(16), self._settings)

    async def close(self) -> None:
        """Nothing is held here."""
