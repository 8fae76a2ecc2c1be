"""Memory-mapped weight files, written by rank 0 and read by engine workers.

Example:

    MappedSender(channel, rank).send(3, rank.weights(), ())
    weights = dict(MappedReceiver(channel).read(3))         # views of the file
"""

from collections.abc import Iterator, Sequence

import torch

from slime_train.weight_file import FileChannel, WeightFile


class MappedSender:
    """Rank 0 writes; the others send nothing."""

    def __init__(self, channel: FileChannel, rank: int) -> None:
        """Write to this channel's files."""
        self._channel, self._writes = channel, rank == 0

    def send(self, version: int, buckets: Iterator[tuple[str, torch.Tensor]], engines: Sequence[int]) -> None:
        """Write a version and let it be found, unless the buckets end with an error."""
        if not self._writes:
            return
        file = self._channel.begin(version)
        weights = map_weights(file)
        for name, tensor in buckets:
            weights[name].copy_(tensor)
        self._channel.end(file, version)

    def close(self) -> None:
        """Do nothing: files are mapped only while they are written."""


class MappedReceiver:
    """Gives views of a version's file."""

    keeps_tensors = True

    def __init__(self, channel: FileChannel) -> None:
        """Read this channel's files."""
        self._channel = channel

    def read(self, version: int) -> Iterator[tuple[str, torch.Tensor]]:
        """Views of the file by name: nothing is copied.

        Raises:
            WorkerError: the version is missing or incomplete.
        """
        file = self._channel.file_of(version)
        file.check(version)
        yield from map_weights(file).items()

    def close(self) -> None:
        """Do nothing: a mapping ends with its last view."""


def map_weights(file: WeightFile) -> dict[str, torch.Tensor]:
    """The weights as views of the mapped file; writing to them writes to the file."""
    whole = torch.from_file(str(file.path), shared=True, size=file.nbytes, dtype=torch.uint8)
    body = whole[file.start :]
    return {
        slot.name: body[start : start + slot.nbytes].view(getattr(torch, slot.dtype.value)).view(slot.shape)
        for slot, start in file.places()
    }
