"""What an engine is given in a run, for its tests: a launcher of processes, and versions of a model's weights.

Example:

    model = write_tiny_model(scratch / "model")
    setup = EngineSetup(self.make, 1, hf_checkpoint=model, eos_token_ids=frozenset({2}),
                        launcher=make_launcher(scratch), scratch=scratch)
    channel = publish_model(model, scratch, version=1)          # for `engine.load_weights(channel, 1)`
"""

import json
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from unittest import SkipTest

from slime_core.processes.launcher import LocalLauncher
from slime_core.roles import Launcher, LauncherSetup, WeightChannel, WeightSlot


def make_launcher(scratch: Path) -> Launcher:
    """The core's own launcher, which starts processes of this machine; their logs are in `scratch`."""
    return LocalLauncher(LauncherSetup(_nothing, 0, scratch=scratch))


def publish_model(model: Path, folder: Path, version: int) -> WeightChannel:
    """Publish a version of a model by the transport `shared-buffer`, as a trainer does.

    Args:
        model: a directory with safetensors files.
        folder: where what is published lies; the same one for all versions of a model.
        version: 0 is the model's own weights; in any other one all are zero, so that every token is as likely.

    Raises:
        SkipTest: slime-train is not installed, which has the transport.
    """
    try:
        from slime_train.shared_buffer import SharedBufferChannel
    except ImportError:
        raise SkipTest("needs slime-train, whose transport shared-buffer publishes the weights") from None
    weights = {slot: numbers for path in sorted(model.glob("*.safetensors")) for slot, numbers in _weights(path)}
    channel = SharedBufferChannel("shared-buffer", tuple(weights), folder)
    for each in channel.files():
        if not each.path.exists():
            each.make()
    file = channel.begin(version)
    with file.path.open("r+b") as written:
        for slot, offset in file.places():
            written.seek(file.start + offset)
            written.write(weights[slot] if version == 0 else bytes(slot.nbytes))
    channel.end(file, version)
    return channel


def _weights(path: Path) -> Iterator[tuple[WeightSlot, bytes]]:
    """Each tensor of a safetensors file, with its bytes."""
    from slime_train.weight_file import CODES

    dtypes = {code: dtype for dtype, code in CODES.items()}
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        (length,) = struct.unpack("<Q", content[:8])
        start = 8 + length
        for name, about in json.loads(content[8:start]).items():
            if name != "__metadata__":
                begin, end = about["data_offsets"]
                slot = WeightSlot(name, tuple(about["shape"]), dtypes[about["dtype"]])
                yield slot, content[start + begin : start + end]


def _nothing(role: str, name: str, **settings: object) -> object:
    raise LookupError(f"there is no {role} {name!r} here")
