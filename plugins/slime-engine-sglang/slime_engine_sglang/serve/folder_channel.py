"""FolderChannel: a model directory as published weights, for an engine that is told of files over HTTP.

Example:

    await engine.load_weights(FolderChannel.of(Path("checkpoints/hf")), 3)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from slime_core.errors import ModelError
from slime_core.roles import WeightChannel, WeightDtype, WeightReceiver, WeightSlot
from slime_engine_sglang.checkpoint import HEAD, config_of, read_header

if TYPE_CHECKING:
    import torch

DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Of floats, as safetensors files and the core call them."""


@dataclass(frozen=True, slots=True)
class FolderChannel(WeightChannel):
    """One version, in files."""

    files: tuple[Path, ...]
    """Safetensors files."""

    @classmethod
    def of(cls, folder: Path) -> "FolderChannel":
        """What a directory has; the head of a model whose embedding it is is left out.

        Raises:
            ModelError: it is not a model directory, or has weights that are not floats.
        """
        if not folder.is_dir():
            raise ModelError(f"no model directory {folder}: model_path must be one that this machine can read")
        files = tuple(sorted(folder.absolute().glob("*.safetensors")))
        if not files:
            raise ModelError(f"{folder} has no *.safetensors")
        tied = bool(config_of(folder).get("tie_word_embeddings"))
        slots = []
        for name, about in ((n, a) for file in files for n, a in read_header(file).items() if n != "__metadata__"):
            if str(about["dtype"]) not in DTYPES:
                raise ModelError(f"{folder}: {name} is of {about['dtype']}; expected one of {', '.join(DTYPES)}")
            if not (tied and name == HEAD):
                shape = tuple(cast(list[int], about["shape"]))
                slots.append(WeightSlot(name, shape, WeightDtype(DTYPES[str(about["dtype"])])))
        return cls("files", tuple(slots), files)

    def receiver(self, engine: int, worker: int = 0) -> WeightReceiver:
        """Reads the files."""
        return FolderReceiver(self)


class FolderReceiver:
    """Implements `slime_core.roles.WeightReceiver`."""

    lasting = False

    def __init__(self, channel: FolderChannel) -> None:
        """Nothing is read yet."""
        self._channel = channel

    def read(self, version: int) -> "Iterator[tuple[str, torch.Tensor]]":
        """All weights, a file after the other."""
        from safetensors import safe_open

        wanted = {slot.name for slot in self._channel.slots}
        for file in self._channel.files:
            with safe_open(file, "pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118  # it is not a mapping
                    if name in wanted:
                        yield name, tensors.get_tensor(name)

    def close(self) -> None:
        """Nothing is held."""
