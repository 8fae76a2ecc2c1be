"""The shared weight buffer: a memory-mapped file of two fp32 copies; version v lives in half v % 2.

Example:

    write_version(channel, 3, rank.weights())          # a rank, into the half that no engine reads
    model.bind(open_half(channel, 3))                  # an engine, after the driver said that 3 is complete
"""

from collections.abc import Iterator

import torch

from slime_core.errors import WorkerError
from slime_core.roles import WeightChannel


def open_half(channel: WeightChannel, version: int) -> torch.Tensor:
    """The half of a version, mapped and shared: float32 [channel.numel], in the CPU's memory."""
    both = torch.from_file(str(channel.path), shared=True, size=2 * channel.numel, dtype=torch.float32)
    return both.view(2, channel.numel)[version % 2]


def write_version(channel: WeightChannel, version: int, buckets: Iterator[tuple[str, torch.Tensor]]) -> None:
    """Write all buckets into the half of `version`.

    Raises:
        WorkerError: the buckets are not the channel's slots, in order.
    """
    half = open_half(channel, version)
    expected = iter(channel.slots)
    for name, tensor in buckets:
        slot = next(expected, None)
        if slot is None or slot.name != name or slot.shape != tuple(tensor.shape):
            raise WorkerError(f"weight bucket {name} {tuple(tensor.shape)} does not follow the agreed layout: {slot}")
        half[slot.offset : slot.offset + slot.numel].copy_(tensor.reshape(-1))
    if (missing := next(expected, None)) is not None:
        raise WorkerError(f"the trainer yielded no bucket for {missing.name}")
