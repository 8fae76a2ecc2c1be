"""Publications: a published version as a model directory that SGLang loads, made of links; no weight is copied.

A version of the core's transports is a safetensors file. Beside links to the model's other files it makes a directory
of Hugging Face's form, from which a server reads the weights where they lie.

Example:

    publications = Publications(setup.hf_checkpoint, setup.scratch / "published")
    source = publications.prepare(channel, 3)       # which `ServedWeights` switches to
"""

import asyncio
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

from slime_core.errors import ModelError
from slime_core.roles import GivesFiles, WeightChannel, WeightSlot
from slime_engine_sglang.checkpoint import HEAD, config_of, read_header, shapes_in, weights_of
from slime_engine_sglang.checksums import Checksums
from slime_engine_sglang.server import Server
from slime_engine_sglang.weights import Folder

WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf")
"""How files of weights end, and what says where they are."""


@dataclass(frozen=True, slots=True)
class Published:
    """A version that was sent; see `slime_engine_sglang.weights.Source`."""

    folder: Folder
    """The model directory that was made for it."""
    file: Path
    """The transport's file, to which the directory has a link."""
    slots: tuple[WeightSlot, ...]
    """Slots that the file must hold."""
    version: int
    """The version of the weights."""
    checksums: Checksums | None = None
    """Compares the server's weights after the load; None: not wanted."""
    lasts: ClassVar[bool] = True

    async def load(self, server: Server, version: str, *, flush: bool) -> None:
        """Load the directory; it may have been overwritten with a later version since."""
        await asyncio.to_thread(check_file, self.file, self.slots, self.version)
        await self.folder.load(server, version, flush=flush)
        if self.checksums is not None:
            await self.checksums.compare(server, self.file)


class Publications:
    """The directories of the newest versions, inside one folder."""

    def __init__(self, model: Path, folder: Path, *, verified: bool = False) -> None:
        """Nothing is made or read yet.

        Args:
            model: a model directory.
            folder: where those of the versions go.
            verified: whether checksums are compared after each load.
        """
        self._model, self._folder = model.absolute(), folder.absolute()
        self._own: Mapping[str, tuple[int, ...]] | None = None
        self._checked: WeightChannel | None = None
        self._verified = verified
        self._checksums: Checksums | None = None

    def prepare(self, channel: WeightChannel, version: int) -> Published:
        """A version that was sent, in a directory.

        Raises:
            ModelError: its weights are not the model's, or not all there; names the first that does not fit.
        """
        if not isinstance(channel, GivesFiles):
            raise ModelError(
                f"SGLang reads weights from files, and transport {channel.transport!r} gives none: "
                "[transport] use = 'shared-buffer', 'disk', 'distributed' or 'tensor' does"
            )
        self._check(channel)
        file = channel.path_of(version)
        check_file(file, channel.slots, version)
        return Published(Folder(self._linked(file, version)), file, channel.slots, version, self._comparing())

    def check(self, channel: WeightChannel) -> Checksums | None:
        """See that a channel without files is of the model's weights; what compares them, where that is wanted.

        Raises:
            ModelError: it is not.
        """
        self._check(channel)
        return self._comparing()

    def _comparing(self) -> Checksums | None:
        if self._verified and self._checksums is None:
            self._checksums = Checksums(tied=self._is_tied())
        return self._checksums

    def _check(self, channel: WeightChannel) -> None:
        if channel != self._checked:
            check_slots(channel.slots, self._shapes(), self._model, tied=self._is_tied())
            self._checked = channel

    def _linked(self, file: Path, version: int) -> Path:
        folder = self._folder / f"version_{version:06d}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for each in self._model.iterdir():
            if not each.name.endswith(WEIGHTS):
                (folder / each.name).symlink_to(each.resolve())
        (folder / "model.safetensors").symlink_to(file.absolute())
        for old in sorted(self._folder.glob("version_*"))[:-2]:  # the one before stays: it may have to be loaded again
            shutil.rmtree(old, ignore_errors=True)
        return folder

    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        if self._own is None:
            self._own = weights_of(self._model)
        return self._own

    def _is_tied(self) -> bool:
        return bool(config_of(self._model).get("tie_word_embeddings"))


def check_slots(slots: Iterable[WeightSlot], own: Mapping[str, tuple[int, ...]], model: Path, *, tied: bool) -> None:
    """See that slots are the weights of a model, in any order: SGLang itself passes over names that it does not know.

    Args:
        slots: what is published.
        own: shapes of the model's weights by name.
        model: its directory, for the error.
        tied: whether the head is the embedding, and may be among them or not.

    Raises:
        ModelError: names the first that is unknown, of another shape, or missing.
    """
    where = f"the weights of the trainer are not those of the engine's model, {model}"
    free = {HEAD} if tied else set()
    sent = set()
    for slot in slots:
        sent.add(slot.name)
        if slot.name in free - own.keys():
            continue
        if slot.name not in own:
            raise ModelError(f"{where}: {slot} is not in it; it has {', '.join(sorted(own)[:3])} and others")
        if own[slot.name] != slot.shape:
            raise ModelError(f"{where}: {slot} has the shape {own[slot.name]} there")
    if missing := sorted(own.keys() - sent - free):
        raise ModelError(f"{where}: {missing[0]} {own[missing[0]]} is missing; {len(sent)} of {len(own)} are sent")


def check_file(path: Path, slots: Iterable[WeightSlot], version: int) -> None:
    """See that a file holds these slots, and the version if it says one.

    Raises:
        ModelError: it does not.
    """
    header = read_header(path)
    metadata = cast(Mapping[str, str], header.get("__metadata__", {}))
    said = str(metadata.get("version", version)).strip()
    if said != str(version):
        raise ModelError(f"{path} does not hold version {version} of the weights, but {said}")
    found = shapes_in(header)
    for slot in slots:
        if found.get(slot.name) != slot.shape:
            raise ModelError(f"{path} holds no {slot}: its shape there is {found.get(slot.name)}")
