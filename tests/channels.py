"""What tests of engines and ranks share: the shared buffer, opened without a driver.

from tests.channels import opened, sent

channel = sent(opened(folder, slots), 3, [("embed", tensor)])
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from slime_core.roles import EngineSetup, WeightChannel, WeightSlot
from slime_local.model import load_model
from slime_local.model.base import LocalModel
from slime_train.shared_buffer import SharedBufferChannel


def slots_of(model: LocalModel) -> list[WeightSlot]:
    """What the local trainer says of a model."""
    return [WeightSlot(slot.name, slot.shape) for slot in model.layout]


def opened(folder: Path, slots: Sequence[WeightSlot]) -> SharedBufferChannel:
    """A channel in `folder`; opened there before, it is the same one."""
    channel = SharedBufferChannel("shared-buffer", tuple(slots), folder)
    for file in channel.files():
        if not file.path.exists():
            file.make()
    return channel


def sent(
    channel: SharedBufferChannel, version: int, buckets: Iterable[tuple[str, torch.Tensor]]
) -> SharedBufferChannel:
    """The channel, after a version was sent."""
    channel.sender(0, 1).send(version, iter(buckets), ())
    return channel


def published(setup: EngineSetup, version: int) -> SharedBufferChannel:
    """A version of an engine's model, laid out as the local engine uses it in place.

    Version 0 is the model's own weights, every other one all zeros, which make every token equally likely.
    """
    model = load_model(setup.hf_checkpoint)

    def buckets() -> Iterator[tuple[str, torch.Tensor]]:
        for slot in model.layout:
            yield slot.name, slot.view(model.flat) if version == 0 else torch.zeros(slot.shape)

    return sent(opened(setup.scratch, slots_of(model)), version, buckets())


def flat(channel: SharedBufferChannel, version: int) -> torch.Tensor:
    """A version as one vector, a copy."""
    weights = dict(channel.receiver(0).read(version))
    return torch.cat([weights[slot.name].reshape(-1) for slot in channel.slots])


@dataclass(frozen=True, slots=True)
class Somewhere(WeightChannel):
    """A channel of a test's own: whatever is in a file or folder."""

    path: Path
    """Which."""
