"""Files of Hugging Face models: reads and writes one weight at a time to save memory.

Example:

    HfWeights(directory)["model.norm.weight"]           # fp32
    with HfWriter(target, slots, shard_bytes=5 * 10**9) as writer:
        writer.add("model.norm.weight", tensor)         # in the order of the slots
"""

import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

import torch
from safetensors import safe_open

from slime_core.errors import ModelError
from slime_core.roles import WeightSlot
from slime_train import not_trainable

CODES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
"""safetensors' names of dtypes."""
DTYPES = {code: cast(torch.dtype, getattr(torch, name)) for name, code in CODES.items()}


class HfWeights:
    """A model directory's weights by name.

    Opens the file for each read, because data that was read stays in memory while a file is open.
    """

    def __init__(self, directory: Path) -> None:
        """Find the file of each weight."""
        self._directory = directory
        self._files: dict[str, Path] = {}
        for path in sorted(directory.glob("*.safetensors")):
            with safe_open(path, "pt") as file:
                self._files |= dict.fromkeys(file.keys(), path)

    def __getitem__(self, name: str) -> torch.Tensor:
        """A weight in fp32."""
        return self.as_written(name).float()

    def as_written(self, name: str) -> torch.Tensor:
        """A weight in the dtype of its file."""
        with safe_open(self._path(name), "pt") as file:
            return cast(torch.Tensor, file.get_tensor(name))

    def __contains__(self, name: str) -> bool:
        """Whether the directory has a weight of this name."""
        return name in self._files

    def _path(self, name: str) -> Path:
        if name not in self._files:
            raise ModelError(f"{self._directory} has no weight {name!r}, which its config.json requires")
        return self._files[name]

    def _header(self, name: str) -> tuple[tuple[int, ...], str]:
        with safe_open(self._path(name), "pt") as file:
            found = file.get_slice(name)
            return tuple(found.get_shape()), str(found.get_dtype())

    def dtype(self, name: str) -> torch.dtype:
        """The dtype that a weight is written in.

        Raises:
            ModelError: the dtype is not among `CODES`.
        """
        code = self._header(name)[1]
        if code not in DTYPES:
            raise not_trainable(self._directory, name, code)
        return DTYPES[code]

    def check(self, slots: Sequence[WeightSlot]) -> None:
        """Check that all weights exist with their shapes.

        Raises:
            ModelError: a weight is missing or has another shape.
        """
        for slot in slots:
            shape = self._header(slot.name)[0]
            if shape != slot.shape:
                raise ModelError(
                    f"{self._directory}: weight {slot.name!r} has shape {shape}; its config.json requires {slot.shape}"
                )


class HfWriter:
    """Writes weights into safetensors files of limited size, in order of arrival."""

    def __init__(self, directory: Path, slots: Sequence[WeightSlot], shard_bytes: int, stem: str = "model") -> None:
        """Assign the slots to files in order of arrival; only a file with a single weight may exceed the size."""
        self._directory, self._stem = directory, stem
        self._shards: list[list[WeightSlot]] = [[]]
        size = 0
        for slot in slots:
            if self._shards[-1] and size + slot.nbytes > shard_bytes:
                self._shards.append([])
                size = 0
            self._shards[-1].append(slot)
            size += slot.nbytes
        self._number, self._left = -1, list[WeightSlot]()
        self._file: BinaryIO | None = None

    def __enter__(self) -> "HfWriter":
        self._directory.mkdir(parents=True, exist_ok=True)
        return self

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Add the next weight."""
        if not self._left:
            self._next()
        slot = self._left.pop(0)
        assert self._file is not None, "a shard is open"
        assert (name, tuple(tensor.shape)) == (slot.name, slot.shape), f"{name} came for {slot}"
        data = tensor.detach().to("cpu", DTYPES[CODES[slot.dtype.value]]).contiguous()
        self._file.write(data.view(torch.uint8).numpy().data)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        if kind is None:
            assert not self._left, f"{self._left[0].name} did not come"
            if len(self._shards) > 1:
                self._write_index()

    def _next(self) -> None:
        if self._file is not None:
            self._file.close()
        self._number += 1
        self._left = list(self._shards[self._number])
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        at = 0
        for slot in self._left:
            code, end = CODES[slot.dtype.value], at + slot.nbytes
            header[slot.name] = {"dtype": code, "shape": list(slot.shape), "data_offsets": [at, end]}
            at = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self._file = (self._directory / self._name(self._number)).open("wb")
        self._file.write(len(text).to_bytes(8, "little") + text)

    def _name(self, shard: int) -> str:
        if len(self._shards) == 1:
            return f"{self._stem}.safetensors"
        return f"{self._stem}-{shard + 1:05}-of-{len(self._shards):05}.safetensors"

    def _write_index(self) -> None:
        where = {slot.name: self._name(number) for number, shard in enumerate(self._shards) for slot in shard}
        total = sum(slot.nbytes for shard in self._shards for slot in shard)
        index = {"metadata": {"total_size": total}, "weight_map": where}
        path = self._directory / f"{self._stem}.safetensors.index.json"
        path.write_text(json.dumps(index, indent=2), "utf-8")
