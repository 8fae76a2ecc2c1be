"""Checksums: whether the weights that a server says it has are, byte for byte, those that were sent.

SGLang sums its own tensors, SHA-256 cut to 64 bits on a CPU, and keeps some of a checkpoint's as one: queries, keys and
values; gates and ups; all experts. What it sums is summed here from the file, a piece at a time.

Example:

    checksums = Checksums(tied=True)
    await checksums.compare(server, Path("version_000003/model.safetensors"))
"""

import asyncio
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from slime_core.errors import ModelError, WorkerError
from slime_engine_sglang.checkpoint import HEAD, Header, body_at, read_header
from slime_engine_sglang.server import Server, Table

DIGITS = 16
"""How much of a SHA-256, in hexadecimal."""
PIECE = 2**20
"""Bytes that are in memory at once."""
JOINED = {
    "q_proj": ("qkv_proj", 0),
    "k_proj": ("qkv_proj", 1),
    "v_proj": ("qkv_proj", 2),
    "gate_proj": ("gate_up_proj", 0),
    "up_proj": ("gate_up_proj", 1),
}
"""What a layer's part is kept in, and as which of its pieces."""
OF_EXPERTS = {"gate_proj": ("w13", 0), "up_proj": ("w13", 1), "down_proj": ("w2", 0)}
EXPERT = re.compile(r"(?P<before>.*\.experts)\.(?P<number>\d+)\.(?P<part>gate_proj|up_proj|down_proj)\.(?P<kind>\w+)")
PART = re.compile(r"(?P<before>.*)\.(?P<part>q_proj|k_proj|v_proj|gate_proj|up_proj)\.(?P<kind>\w+)")


class Checksums:
    """Compares; asks a server once what it is."""

    def __init__(self, *, tied: bool) -> None:
        """Ask nothing yet; `tied`: the model's head is its embedding."""
        self._tied = tied
        self._known: Server | None = None

    async def compare(self, server: Server, path: Path) -> None:
        """See that a server has the weights of a safetensors file.

        Raises:
            ModelError: its sums cannot be compared; says why.
            WorkerError: it has others; names the first.
        """
        served, own = await asyncio.gather(self._asked(server), asyncio.to_thread(sums_of, path))
        self._require(server, served, own)

    async def compare_with(self, server: Server, own: Mapping[str, str]) -> None:
        """See that a server has weights of these sums.

        Raises:
            ModelError, WorkerError: as `compare` does.
        """
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
    """The sums of a file's weights as SGLang's, by its names.

    Raises:
        ModelError: it cannot be read.
    """
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
