"""The transport `disk`: a safetensors file a version, in a folder that all machines see; the newest two are kept."""

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from slime_core.errors import RunFolderError
from slime_core.roles import TransportSetup, WeightSlot
from slime_train.settings import DiskSettings
from slime_train.weight_file import FileChannel, WeightFile


@dataclass(frozen=True, slots=True)
class DiskChannel(FileChannel):
    """Channel of version files in one folder."""

    def file_of(self, version: int) -> WeightFile:
        """The file that holds a version."""
        return WeightFile(self.folder / f"version_{version:06d}.safetensors", self.slots)

    def begin(self, version: int) -> WeightFile:
        """A new file, under a name that no reader looks for."""
        file = WeightFile(self.folder / f".version_{version:06d}.tmp", self.slots)
        file.make()
        return file

    def end(self, file: WeightFile, version: int) -> None:
        """Give the file its version's name once it is on the disk; the version before stays for readers that map it."""
        file.stamp(version)
        with file.path.open("r+b") as written:
            os.fsync(written.fileno())
        file.path.rename(self.file_of(version).path)
        for old in sorted(self.folder.glob("version_*.safetensors"))[:-2]:
            old.unlink(missing_ok=True)


class Disk:
    """Implements `slime_core.roles.Transport`."""

    def __init__(self, settings: DiskSettings, setup: TransportSetup) -> None:
        """Remember where the files go."""
        # A folder for this run, which a resumed run finds again.
        own = f"weights-{hashlib.sha256(str(setup.scratch.absolute()).encode()).hexdigest()[:12]}"
        self._folder = settings.folder.absolute() / own if settings.folder else setup.scratch.absolute()

    async def open(self, slots: Sequence[WeightSlot]) -> DiskChannel:
        """Make the folder, empty.

        Raises:
            RunFolderError: it cannot be made.
        """
        try:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True)
        except OSError as error:
            raise RunFolderError(f"cannot make {self._folder} for the weights: {error.strerror}") from None
        return DiskChannel("disk", tuple(slots), self._folder)

    async def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
