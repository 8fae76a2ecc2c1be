"""Publications: makes a model directory of links from a published version.

A version of the core's transports is a safetensors file. Together with links to the model's other files it is a
Hugging Face model directory, from which a server reads the weights. No weight is copied.

Example:

    publications = Publications(setup.hf_checkpoint, setup.scratch / "published")
    source = publications.prepare(channel, 3)       # pass it to `ServedWeights.switch`
"""

import asyncio
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

from slime_core.errors import ModelError
from slime_core.roles import GivesFiles, WeightChannel, WeightSlot
from slime_engine_sglang.checkpoint import HEAD, header_shapes, read_config, read_header, weight_shapes
from slime_engine_sglang.server import Server
from slime_engine_sglang.weights import Folder

WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf")
"""File suffixes of weights and of their indexes."""


@dataclass(frozen=True, slots=True)
class Published:
    """A published version; see `slime_engine_sglang.weights.Source`."""

    folder: Folder  # The model directory of this version
    file: Path  # The transport's file; the directory links to it
    slots: tuple[WeightSlot, ...]  # Weights that the file must contain
    version: int
    is_reloadable: ClassVar[bool] = True

    async def load(self, server: Server, version: str, *, flush: bool) -> None:
        await asyncio.to_thread(check_file, self.file, self.slots, self.version)
        await self.folder.load(server, version, flush=flush)


class Publications:
    """The model directories of the newest versions, inside one folder."""

    def __init__(self, model: Path, folder: Path) -> None:
        self._model, self._folder = model.absolute(), folder.absolute()
        self._model_shapes: Mapping[str, tuple[int, ...]] | None = None
        self._checked: WeightChannel | None = None

    def prepare(self, channel: WeightChannel, version: int) -> Published:
        """Make a model directory of a received version. Raises ModelError: the weights do not match the model."""
        if not isinstance(channel, GivesFiles):
            raise ModelError(
                f"SGLang cannot receive weights by transport {channel.transport!r}. Set [transport] use to "
                "'shared-buffer', 'disk', 'distributed' or 'tensor'"
            )
        self.check(channel)
        file = channel.path_of(version)
        check_file(file, channel.slots, version)
        return Published(Folder(self._link(file, version)), file, channel.slots, version)

    def check(self, channel: WeightChannel) -> None:
        """Check a channel's names and shapes against the model. Raises ModelError: they differ."""
        if channel != self._checked:
            check_slots(channel.slots, self._shapes(), self._model, tied=self._is_tied())
            self._checked = channel

    def _link(self, file: Path, version: int) -> Path:
        folder = self._folder / f"version_{version:06d}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for each in self._model.iterdir():
            if not each.name.endswith(WEIGHTS):
                (folder / each.name).symlink_to(each.resolve())
        (folder / "model.safetensors").symlink_to(file.absolute())
        for old in sorted(self._folder.glob("version_*"))[:-2]:  # keep the previous version: it may be reloaded
            shutil.rmtree(old, ignore_errors=True)
        return folder

    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        if self._model_shapes is None:
            self._model_shapes = weight_shapes(self._model)
        return self._model_shapes

    def _is_tied(self) -> bool:
        return bool(read_config(self._model).get("tie_word_embeddings"))


def check_slots(slots: Iterable[WeightSlot], shapes: Mapping[str, tuple[int, ...]], model: Path, *, tied: bool) -> None:
    """Check that slots match a model's weights (a `tied` head may be missing), since SGLang ignores unknown names."""
    where = f"the trainer's weights do not match the engine's model {model}"
    free = {HEAD} if tied else set()
    sent = set()
    for slot in slots:
        sent.add(slot.name)
        if slot.name in free - shapes.keys():
            continue
        if slot.name not in shapes:
            raise ModelError(f"{where}: the model has no {slot}; it has {', '.join(sorted(shapes)[:3])} and others")
        if shapes[slot.name] != slot.shape:
            raise ModelError(f"{where}: {slot} has the shape {shapes[slot.name]} in the model")
    if missing := sorted(shapes.keys() - sent - free):
        sent_count = f"{len(sent)} of {len(shapes)} weights"
        raise ModelError(f"{where}: the trainer sends {sent_count}, without {missing[0]} {shapes[missing[0]]}")


def check_file(path: Path, slots: Iterable[WeightSlot], version: int) -> None:
    """Check that a file contains these slots and, if it names a version, this version. Raises ModelError otherwise."""
    header = read_header(path)
    metadata = cast(Mapping[str, str], header.get("__metadata__", {}))
    stored = str(metadata.get("version", version)).strip()
    if stored != str(version):
        raise ModelError(f"{path} contains version {stored} of the weights; expected version {version}")
    found = header_shapes(header)
    for slot in slots:
        if found.get(slot.name) != slot.shape:
            raise ModelError(f"{path} does not contain {slot}: the shape there is {found.get(slot.name)}")
