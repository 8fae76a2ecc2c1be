"""WeightFile: one version of the weights as a safetensors file, with the version, or none, in its header.

The version is written last, so that an incomplete file has none. The body starts at a multiple of 64 bytes. If all
slots have one dtype, the body keeps their order, so that it can be mapped as a flat vector.

Example:

    file = WeightFile(path, slots)
    file.make()                                 # allocates the file, without a version
    file.stamp(None)
    tensors["embed"].copy_(bucket)              # what `slime_train.mapped_weights` maps
    file.stamp(4)
"""

import json
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slime_core.errors import RunFolderError, WorkerError
from slime_core.roles import WeightChannel, WeightDtype, WeightReceiver, WeightSender, WeightSlot

ALIGNED = 64
"""Vectors of equal numbers have bitwise equal sums if their addresses are equal modulo this."""
NOTHING = b"#" * 20
"""Placeholder for a version, so that all headers have the same length."""
CODES = {
    WeightDtype.FLOAT64: "F64",
    WeightDtype.FLOAT32: "F32",
    WeightDtype.FLOAT16: "F16",
    WeightDtype.BFLOAT16: "BF16",
    WeightDtype.FLOAT8_E4M3FN: "F8_E4M3",
    WeightDtype.FLOAT8_E5M2: "F8_E5M2",
    WeightDtype.INT64: "I64",
    WeightDtype.INT32: "I32",
    WeightDtype.INT16: "I16",
    WeightDtype.INT8: "I8",
    WeightDtype.UINT8: "U8",
    WeightDtype.BOOL: "BOOL",
}
"""Dtypes as safetensors writes them (https://github.com/huggingface/safetensors#format)."""


class WeightFile:
    """One version's file, with a place for every slot."""

    def __init__(self, path: Path, slots: Sequence[WeightSlot]) -> None:
        """Lay it out; the file need not exist."""
        self.path = path
        # Wide dtypes first, so that every element is aligned to its size.
        self._slots = sorted(slots, key=lambda slot: -slot.dtype.nbytes)
        self._blank = self._blank_header()
        self._place = self._blank.index(NOTHING)
        self.start = len(self._blank)
        """Bytes before the weights."""
        self.nbytes = self.start + sum(slot.nbytes for slot in slots)
        """Its size."""

    def places(self) -> Iterator[tuple[WeightSlot, int]]:
        """Each slot with the byte of the body that it starts at."""
        offset = 0
        for slot in self._slots:
            yield slot, offset
            offset += slot.nbytes

    def make(self) -> None:
        """Reserve its room on the disk: running out of it in mapped memory would kill the writer.

        Raises:
            RunFolderError: there is not enough.
        """
        try:
            with self.path.open("wb") as file:
                file.truncate(self.nbytes)
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, self.nbytes)
                file.write(self._header(None))
        except OSError as error:
            raise RunFolderError(
                f"cannot make room for the weights, {self.nbytes / 2**20:.1f} MiB, in {self.path}: {error.strerror}"
            ) from None

    def stamp(self, version: int | None) -> None:
        """Say which version it holds."""
        with self.path.open("r+b") as file:
            file.write(self._header(version))

    def version(self) -> int | None:
        """Which version it holds, by its header; None where it holds none, or cannot be read."""
        try:
            with self.path.open("rb") as file:
                found = file.read(self.start)
        except OSError:
            return None
        number = found[self._place : self._place + len(NOTHING)].strip()
        return int(number) if number.isdigit() and found == self._header(int(number)) else None

    def check(self, version: int) -> None:
        """See that it holds a version, whole.

        Raises:
            WorkerError: it holds another or none, is of other weights, or cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                found = file.read(self.start)
        except OSError as error:
            raise WorkerError(f"version {version} of the weights cannot be read: {self.path}: {error}") from None
        if found != self._header(version):
            raise WorkerError(f"{self.path} does not hold version {version} of these weights: {found[8:120]!r}")

    def _header(self, version: int | None) -> bytes:
        number = b"none" if version is None else b"%d" % version
        return self._blank.replace(NOTHING, number.rjust(len(NOTHING)), 1)

    def _blank_header(self) -> bytes:
        about: dict[str, object] = {"__metadata__": {"format": "pt", "version": NOTHING.decode()}}
        for slot, offset in self.places():
            ends = [offset, offset + slot.nbytes]
            about[slot.name] = {"dtype": CODES[slot.dtype], "shape": list(slot.shape), "data_offsets": ends}
        text = json.dumps(about, separators=(",", ":")).encode()
        length = len(text) + -(8 + len(text)) % ALIGNED
        return length.to_bytes(8, "little") + text.ljust(length)


@dataclass(frozen=True, slots=True)
class FileChannel(WeightChannel):
    """A channel that holds each version in a file. Rank 0 writes it, and engines map it."""

    folder: Path
    """The folder of all files."""

    @abstractmethod
    def begin(self, version: int) -> WeightFile:
        """The file to write a version into; until `end` it holds no version."""

    @abstractmethod
    def end(self, file: WeightFile, version: int) -> None:
        """Make a completely written version visible to readers."""

    @abstractmethod
    def file_of(self, version: int) -> WeightFile:
        """The file to read a version from."""

    def path_of(self, version: int) -> Path:
        """The file of a version; see `GivesFiles`."""
        return self.file_of(version).path

    def sender(self, rank: int, world_size: int) -> WeightSender:
        """The sender of a rank; only rank 0 writes."""
        from slime_train.mapped_weights import MappedSender

        return MappedSender(self, rank)

    def receiver(self, engine: int, worker: int = 0) -> WeightReceiver:
        """A receiver that maps the files."""
        from slime_train.mapped_weights import MappedReceiver

        return MappedReceiver(self)
