"""The transport `shared-buffer`: two files that all map, versions in turn in one and the other; for one machine.

The trainer writes one while engines read the other, and no engine copies anything that it can use in place. Versions
may leave numbers out, so each file says which it holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from slime_core.roles import Settings, TransportSetup, WeightSlot
from slime_train.weight_file import FileChannel, WeightFile


@dataclass(frozen=True, slots=True)
class SharedBufferChannel(FileChannel):
    """Two files that hold a version each, so that one can be read while the next is written to the other."""

    def files(self) -> tuple[WeightFile, WeightFile]:
        """Both files; each holds one version or none."""
        first, second = (WeightFile(self.folder / f"{number}.safetensors", self.slots) for number in range(2))
        return first, second

    def file_of(self, version: int) -> WeightFile:
        """The file that holds a version; the first, where neither does."""
        first, second = self.files()
        return second if second.version() == version else first

    def begin(self, version: int) -> WeightFile:
        """The file to write this version to: the one that holds it, else the older; its version is cleared."""
        first, second = self.files()
        held = [-1 if (found := file.version()) is None else found for file in (first, second)]
        is_second = held[1] == version or (held[0] != version and held[1] < held[0])
        file = second if is_second else first
        file.stamp(None)
        return file

    def end(self, file: WeightFile, version: int) -> None:
        """The file holds this version from now on."""
        file.stamp(version)


class SharedBuffer:
    """Implements `slime_core.roles.Transport`."""

    def __init__(self, settings: Settings, setup: TransportSetup) -> None:
        """Remember where the files go."""
        self._folder = setup.scratch

    async def open(self, slots: Sequence[WeightSlot]) -> SharedBufferChannel:
        """Make both files, as large as the weights are."""
        channel = SharedBufferChannel("shared-buffer", tuple(slots), self._folder)
        for file in channel.files():
            file.make()
        return channel

    async def close(self) -> None:
        """They go with the run's scratch folder."""
