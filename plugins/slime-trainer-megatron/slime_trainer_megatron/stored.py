"""Stored: a torch_dist checkpoint that stands, of which any pieces are read, whatever pieces were written.

Its `.metadata` is a pickle by its format: it is read by an unpickler that makes nothing but what such a file is made
of. Tensors are read by torch with `weights_only`.

Example:

    Stored(folder).read(pieces)                     # into their tensors
"""

import pickle  # noqa: TID251 -- by an unpickler that knows what there may be
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, ReadItem
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from slime_core.errors import CheckpointError
from slime_trainer_megatron.torch_dist import Piece

METADATA = ".metadata"
MADE_OF = {
    "torch": ("Size", "device", "float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool"),
    "torch.serialization": ("_get_layout",),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    "torch.distributed.checkpoint.metadata": (
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    ),
    "megatron.core.dist_checkpointing.strategies.torch": ("MCoreMetadata",),
    "pathlib": ("PosixPath",),
    "pathlib._local": ("PosixPath",),
    "collections": ("OrderedDict",),
}
"""Modules and names that `.metadata` may name; anything else may run what it likes."""


class Stored:
    """A checkpoint that stands."""

    def __init__(self, folder: Path) -> None:
        """Read what there is.

        Raises:
            CheckpointError: it is not a checkpoint, is half written, or names what no checkpoint of tensors does.
        """
        self._folder, self._reader = folder, FileSystemReader(folder)
        path = folder / METADATA
        try:
            with path.open("rb") as file:
                self._metadata: Metadata = _Unpickler(file).load()
            files = {info.relative_path for info in self._metadata.storage_data.values()}
        except (OSError, pickle.UnpicklingError, AttributeError, EOFError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{path} cannot be read ({error}): the checkpoint is half written, or is not a torch_dist checkpoint"
            ) from None
        for name in sorted(files):
            if Path(name).name != name or not (folder / name).is_file():
                raise CheckpointError(f"{folder} is not whole: it has no file {name!r}, which {path} names")
        self._reader.set_up_storage_reader(self._metadata, is_coordinator=False)

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor's whole shape, by name."""
        found = self._metadata.state_dict_metadata.items()
        return {key: tuple(each.size) for key, each in found if isinstance(each, TensorStorageMetadata)}

    def dtype_of(self, piece: Piece) -> torch.dtype:
        """What a piece's tensor is written in; errors as of `read`."""
        dtype: torch.dtype = self._found(piece).properties.dtype
        return dtype

    def read(self, pieces: Sequence[Piece]) -> None:
        """Fill the pieces.

        Raises:
            CheckpointError: a tensor is not there, of another shape, or its file is cut.
        """
        items, targets = list[ReadItem](), dict[MetadataIndex, torch.Tensor]()
        for piece in pieces:
            stored = self._found(piece)
            target = piece.value().view(piece.sizes)
            wanted = ChunkStorageMetadata(torch.Size(piece.offset), torch.Size(piece.sizes))
            reads = create_read_items_for_chunk_list(piece.key, stored, [wanted])
            if sum(torch.Size(read.lengths).numel() for read in reads) < target.numel():
                target.zero_()  # the padding of a vocabulary
            for read in reads:
                targets[read.dest_index] = target
            items += reads
        try:
            self._reader.read_data(LoadPlan(items), _LoadPlanner(targets)).wait()
        except (OSError, RuntimeError, AssertionError, pickle.UnpicklingError, EOFError, ValueError) as error:
            raise CheckpointError(f"{self._folder} is not whole: {error}") from None

    def _found(self, piece: Piece) -> TensorStorageMetadata:
        stored = self._metadata.state_dict_metadata.get(piece.key)
        if not isinstance(stored, TensorStorageMetadata):
            raise CheckpointError(f"{self._folder} is of another model: it has no tensor {piece.key!r}")
        if tuple(stored.size)[piece.padded :] != piece.shape[piece.padded :]:
            raise CheckpointError(
                f"{self._folder} is of another model: its {piece.key!r} is of shape {tuple(stored.size)}; expected "
                f"{piece.shape}"
            )
        return stored


class _LoadPlanner(DefaultLoadPlanner):
    """Reads into given tensors."""

    def __init__(self, targets: Mapping[MetadataIndex, torch.Tensor]) -> None:
        super().__init__()
        self._targets = targets

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        target = self._targets[read_item.dest_index]
        for axis, (start, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths, strict=True)):
            target = target.narrow(axis, start, length)
        return target

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        pass


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if name not in MADE_OF.get(module, ()):
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not part of a checkpoint")
        return cast(object, super().find_class(module, name))
