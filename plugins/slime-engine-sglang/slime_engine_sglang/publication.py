"""Publications: a published version as a model directory of links, and checksums of what a server has loaded.

A version of the core's transports is a safetensors file. With links to the model's other files it makes a directory of
Hugging Face's form, from which a server reads the weights where they lie; no weight is copied.

SGLang's checksums are of its own tensors, SHA-256 cut to 64 bits on a CPU. It joins some of a checkpoint's: queries,
keys and values; gates and ups; all experts. The same are summed here from the file.

Example:

    publications = Publications(setup.hf_checkpoint, setup.scratch / "published")
    source = publications.prepare(channel, 3)       # which `ServedWeights` switches to
    await Checksums(tied=True).compare(server, Path("version_000003/model.safetensors"))
"""

import asyncio
import hashlib
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

from slime_core.errors import ModelError, WorkerError
from slime_core.roles import GivesFiles, WeightChannel, WeightSlot
from slime_engine_sglang.checkpoint import HEAD, Header, body_at, config_of, read_header, shapes_in, weights_of
from slime_engine_sglang.server import Server, Table
from slime_engine_sglang.weights import Folder

DIGITS = 16  # How much of a SHA-256, in hexadecimal
PIECE = 2**20  # Bytes that are in memory at once
JOINED = {
    "q_proj": ("qkv_proj", 0),
    "k_proj": ("qkv_proj", 1),
    "v_proj": ("qkv_proj", 2),
    "gate_proj": ("gate_up_proj", 0),
    "up_proj": ("gate_up_proj", 1),
}  # What a layer's part is kept in, and as which of its pieces
OF_EXPERTS = {"gate_proj": ("w13", 0), "up_proj": ("w13", 1), "down_proj": ("w2", 0)}
EXPERT = re.compile(r"(?P<before>.*\.experts)\.(?P<number>\d+)\.(?P<part>gate_proj|up_proj|down_proj)\.(?P<kind>\w+)")
PART = re.compile(r"(?P<before>.*)\.(?P<part>q_proj|k_proj|v_proj|gate_proj|up_proj)\.(?P<kind>\w+)")


class Checksums:
    """Compares; asks a server once what it is."""

    def __init__(self, *, tied: bool) -> None:
        self._tied = tied
        self._known: Server | None = None

    async def compare(self, server: Server, path: Path) -> None:
        """See that a server has the weights of a safetensors file. Raises WorkerError: it has others."""
        served, own = await asyncio.gather(self._asked(server), asyncio.to_thread(sums_of, path))
        self._require(server, served, own)

    async def compare_with(self, server: Server, own: Mapping[str, str]) -> None:
        self._require(server, await self._asked(server), own)

    async def _asked(self, server: Server) -> Mapping[str, str]:
        await self._know(server)
        reply = await server.ask("/weights_checker", {"action": "checksum"})
        return server.understood("/weights_checker", lambda: _checksums_in(reply))

    def _require(self, server: Server, served: Mapping[str, str], own: Mapping[str, str]) -> None:
        if strange := sorted(served.keys() - own.keys()):
            raise ModelError(
                f"verify_weights = 'checksum' cannot compare the weights of this model: {server.title} has "
                f"{strange[0]}, and nothing that was sent is known to become it; leave verify_weights out"
            )
        missing = own.keys() - served.keys() - ({HEAD} if self._tied else set())
        wrong = sorted(missing | {name for name, told in served.items() if told != own[name]})
        if wrong:
            raise WorkerError(
                f"{server.title}: {len(wrong)} of {len(own)} weights are not those that were sent, {wrong[0]} among "
                f"them: their sum is {served.get(wrong[0])} there, and {own[wrong[0]]} here"
            )

    async def _know(self, server: Server) -> None:
        if self._known is server:
            return
        info = await server.ask("/server_info")
        device, ranks = info.get("device"), info.get("tp_size")
        if (device, ranks) != ("cpu", 1):
            raise ModelError(
                f"verify_weights = 'checksum' is for servers on a CPU: {server.title} has tp_size {ranks} on "
                f"{device}, where SGLang sums the parts of each rank by a kernel of its own; leave verify_weights out"
            )
        self._known = server


def sums_of(path: Path) -> dict[str, str]:
    """The sums of a file's weights as SGLang's, by its names. Raises ModelError: it cannot be read."""
    header = read_header(path)
    sums: dict[str, str] = {}
    with path.open("rb", buffering=0) as file:
        start = body_at(file)
        for name, parts in joined(header).items():
            digest = hashlib.sha256()
            for part in parts:
                begin, end = cast(tuple[int, int], header[part]["data_offsets"])
                file.seek(start + begin)
                left = end - begin
                while left:
                    piece = file.read(min(left, PIECE))
                    if not piece:
                        raise ModelError(f"{path} ends amid {part}")
                    digest.update(piece)
                    left -= len(piece)
            sums[name] = digest.hexdigest()[:DIGITS]
    return sums


def joined(names: Header | Iterable[str]) -> dict[str, list[str]]:
    """SGLang's tensors: the name of each, and the checkpoint's weights that it is made of, in order."""
    found: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for name in names:
        if name == "__metadata__":
            continue
        if match := EXPERT.fullmatch(name):
            kept, place = OF_EXPERTS[match["part"]]
            found[f"{match['before']}.{kept}_{match['kind']}"].append((int(match["number"]), place, name))
        elif match := PART.fullmatch(name):
            kept, place = JOINED[match["part"]]
            found[f"{match['before']}.{kept}.{match['kind']}"].append((0, place, name))
        else:
            found[name].append((0, 0, name))
    return {name: [part for _, _, part in sorted(parts)] for name, parts in found.items()}


def _checksums_in(reply: Table) -> Mapping[str, str]:
    (rank,) = cast(list[Mapping[str, Mapping[str, str]]], reply["ranks"])
    return rank["checksums"]


WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf")
"""How files of weights end, and what says where they are."""


@dataclass(frozen=True, slots=True)
class Published:
    """A version that was sent; see `slime_engine_sglang.weights.Source`."""

    folder: Folder  # The model directory that was made for it
    file: Path  # The transport's file, to which the directory has a link
    slots: tuple[WeightSlot, ...]  # Slots that the file must hold
    version: int  # The version of the weights
    checksums: Checksums | None = None  # Compares the server's weights after the load; None: not wanted
    lasts: ClassVar[bool] = True

    async def load(self, server: Server, version: str, *, flush: bool) -> None:
        await asyncio.to_thread(check_file, self.file, self.slots, self.version)
        await self.folder.load(server, version, flush=flush)
        if self.checksums is not None:
            await self.checksums.compare(server, self.file)


class Publications:
    """The directories of the newest versions, inside one folder."""

    def __init__(self, model: Path, folder: Path, *, verified: bool = False) -> None:
        self._model, self._folder = model.absolute(), folder.absolute()
        self._own: Mapping[str, tuple[int, ...]] | None = None
        self._checked: WeightChannel | None = None
        self._verified = verified
        self._checksums: Checksums | None = None

    def prepare(self, channel: WeightChannel, version: int) -> Published:
        """A version that was sent, in a directory. Raises ModelError: its weights are not those of the model."""
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
        """See that a channel without files is of the model's weights; what compares them, where that is wanted."""
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
    """See that slots are a model's weights (a `tied` head may be missing): SGLang passes over unknown names."""
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
    """See that a file holds these slots, and the version if it says one. Raises ModelError: it does not."""
    header = read_header(path)
    metadata = cast(Mapping[str, str], header.get("__metadata__", {}))
    said = str(metadata.get("version", version)).strip()
    if said != str(version):
        raise ModelError(f"{path} does not hold version {version} of the weights, but {said}")
    found = shapes_in(header)
    for slot in slots:
        if found.get(slot.name) != slot.shape:
            raise ModelError(f"{path} holds no {slot}: its shape there is {found.get(slot.name)}")
