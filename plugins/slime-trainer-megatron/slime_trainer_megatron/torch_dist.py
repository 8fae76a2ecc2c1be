"""torch_dist: Megatron's checkpoint format, which stores each global tensor as pieces from ranks.

torch.distributed.checkpoint saves in two phases: it first copies the pieces, then writes their files while training
continues.

Example:

    saving = Saving(folder, pieces)
    saving.finish(wait=True)                        # on all ranks
    StoredCheckpoint(folder).read(pieces)
"""

import pickle  # noqa: TID251 -- read by an unpickler with an allow-list
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory, is_main_replica
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.storage import WriteResult
from torch.utils.serialization import config

from slime_core.errors import CheckpointError
from slime_trainer_megatron.model import Policy


@dataclass(frozen=True)
class Piece:
    """A part of a tensor."""

    key: str
    """The tensor's name in the whole model."""
    shape: tuple[int, ...]
    """Shape of the whole tensor."""
    offset: tuple[int, ...]
    """Where the part begins."""
    sizes: tuple[int, ...]
    """The part's shape, of as many dimensions."""
    dtype: torch.dtype
    """Dtype in the file."""
    value: Callable[[], torch.Tensor]
    """Returns the part, of shape `sizes`; a read copies into it."""
    padded: bool = False
    """Whether the stored tensor may be longer or shorter: a vocabulary is padded for its layout."""


class Saving:
    """A checkpoint that is being written. Every method is called on all ranks together."""

    def __init__(self, folder: Path, pieces: Sequence[Piece], *, copies: bool = True) -> None:
        """Plan the checkpoint and copy the pieces.

        Args:
            folder: the new folder to create.
            pieces: this rank's pieces; only one rank passes a replicated piece.
            copies: whether to copy the pieces and write them in a thread. If false, pieces are fetched one at a time,
                and all files are complete on return.

        Raises:
            CheckpointError: a piece overlaps another, or the whole has a gap.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._writer = folder, _Writer(folder, single_file_per_rank=True)
        self._planner = _SavePlanner([_copied(piece) for piece in pieces] if copies else pieces)
        first = dist.get_rank() == 0
        self._planner.set_up_planner({}, is_coordinator=first)
        self._writer.set_up_storage_writer(first)
        plan = self._writer.prepare_local_plan(self._planner.create_local_plan())
        self._metadata, plan = self._planned(plan)
        self._plan = self._planner.finish_plan(plan)
        self._results, self._error = list[WriteResult](), ""
        self._thread = threading.Thread(target=self._write, name="checkpoint", daemon=True)
        if copies:
            self._thread.start()
        else:
            # torch writes the checksum and never reads it.
            with config.patch("save.compute_crc32", False):  # type: ignore[attr-defined]
                self._write()
        self._finished = False

    def finish(self, *, wait: bool) -> bool:
        """Whether the files are complete; with `wait`, waits until they are.

        Raises:
            CheckpointError: a rank could not write its files.
        """
        if self._finished:
            return True
        if wait and self._thread.ident is not None:
            self._thread.join()
        busy = torch.tensor(int(self._thread.is_alive()))
        dist.all_reduce(busy)
        if int(busy):
            return False
        outcomes: list[tuple[list[WriteResult], str]] = [([], "")] * dist.get_world_size()
        dist.all_gather_object(outcomes, (self._results, self._error))
        self._finished = True
        if errors := [f"rank {rank}: {error}" for rank, (_, error) in enumerate(outcomes) if error]:
            raise CheckpointError(f"{self._folder} cannot be written: {'; '.join(errors)}")
        if self._metadata is not None:
            self._writer.finish(self._metadata, [results for results, _ in outcomes])
        dist.barrier()
        return True

    def _planned(self, plan: SavePlan) -> tuple[Metadata | None, SavePlan]:
        """Global metadata, on rank 0, and this rank's plan, from the plans of all ranks."""
        plans: list[SavePlan] = [plan] * dist.get_world_size()
        dist.all_gather_object(plans, plan)
        # Every rank computes the same result from the same plans, so results and errors need no broadcast.
        try:
            plans, metadata = self._planner.create_global_plan(plans)
        except ValueError as error:
            raise CheckpointError(f"{self._folder} would be incomplete: {error}") from None
        own = self._writer.prepare_global_plan(plans)[dist.get_rank()]
        return metadata if dist.get_rank() == 0 else None, own

    def _write(self) -> None:
        try:
            self._results = self._writer.write_data(self._plan, self._planner).value()
        except Exception as error:  # any error of the file system; `finish` raises it on all ranks
            self._error = f"{type(error).__name__}: {error}"
        finally:
            self._planner.forget()


class _Writer(FileSystemWriter):
    """Writer that omits path and time from the metadata, so that equal checkpoints are bitwise equal."""

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta()


class _SavePlanner(DefaultSavePlanner):
    """Planner for writing pieces."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._pieces = {(piece.key, piece.offset): piece for piece in pieces}

    def create_local_plan(self) -> SavePlan:
        self.plan = SavePlan([_item_of(piece) for piece in self._pieces.values()])
        return self.plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        plans, metadata = super().create_global_plan(all_plans)
        for key, each in metadata.state_dict_metadata.items():
            assert isinstance(each, TensorStorageMetadata), "all pieces are tensors"
            if sum(chunk.sizes.numel() for chunk in each.chunks) != each.size.numel():
                raise ValueError(f"pieces of {key!r} are missing")
        return plans, metadata

    def lookup_object(self, index: MetadataIndex) -> torch.Tensor:
        assert index.offset is not None, "all pieces have an offset"
        piece = self._pieces[index.fqn, tuple(index.offset)]
        return piece.value().detach().to(piece.dtype).view(piece.sizes)

    def forget(self) -> None:
        self._pieces.clear()


def _item_of(piece: Piece) -> WriteItem:
    chunk = ChunkStorageMetadata(torch.Size(piece.offset), torch.Size(piece.sizes))
    data = TensorWriteData(chunk, TensorProperties(piece.dtype), torch.Size(piece.shape))
    return WriteItem(MetadataIndex(piece.key, chunk.offsets), WriteItemType.SHARD, tensor_data=data)


def _copied(piece: Piece) -> Piece:
    copy = piece.value().detach().to("cpu", piece.dtype, copy=True).contiguous()
    return Piece(piece.key, piece.shape, piece.offset, piece.sizes, piece.dtype, lambda: copy, piece.padded)


@dataclass(frozen=True)
class RankParameter:
    """A parameter of this rank, or the bias of a router."""

    parameter: torch.Tensor
    """The parameter or the bias itself."""
    sharded: ShardedTensor | ShardedTensorFactory
    """megatron-core's description of its place in the whole tensor."""

    @property
    def is_written(self) -> bool:
        """Whether this rank, of all ranks with the same tensor, writes it."""
        return bool(is_main_replica(self.sharded.replica_id))

    def with_moments(self) -> torch.nn.Parameter | None:
        """The parameter; None for the bias of a router, which has no moments."""
        return self.parameter if isinstance(self.parameter, torch.nn.Parameter) else None

    def pieces(self, value: torch.Tensor, prefix: str = "") -> list[Piece]:
        """Pieces of a tensor of the parameter's shape, such as a moment, as views: a read fills the tensor."""
        sharded = self.sharded
        key = f"{prefix}{sharded.key}"
        if isinstance(sharded, ShardedTensorFactory):
            parts = list(replace(sharded, key=key, data=value).build())
        else:
            parts = [replace(sharded, key=key, data=value, dtype=value.dtype)]
        return [_piece_of(part) for part in parts]


def rank_parameters(policy: Policy) -> Iterator[RankParameter]:
    """Every parameter of this rank, and every bias of its routers."""
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    for sharded in policy.sharded_state_dict(metadata={"dp_cp_group": group}).values():
        # Other entries belong to quantization, which this trainer does not support.
        if isinstance(sharded, ShardedTensor | ShardedTensorFactory):
            assert sharded.data is not None, sharded.key
            yield RankParameter(sharded.data, sharded)


def _piece_of(part: ShardedTensor) -> Piece:
    sizes = (1,) * part.prepend_axis_num + tuple(part.local_shape)
    return Piece(
        part.key,
        tuple(part.global_shape),
        tuple(part.global_offset),
        sizes,
        part.dtype,
        partial(part.data.detach().view, sizes),
        part.allow_shape_mismatch,
    )


METADATA = ".metadata"


ALLOWED_NAMES = {
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
"""Modules and names allowed in `.metadata`; unpickling other names could run arbitrary code."""


class StoredCheckpoint:
    """A complete checkpoint."""

    def __init__(self, folder: Path) -> None:
        """Read the metadata.

        Raises:
            CheckpointError: the folder is not a checkpoint, is incomplete, or has forbidden names in its metadata.
        """
        self._folder, self._reader = folder, FileSystemReader(folder)
        path = folder / METADATA
        try:
            with path.open("rb") as file:
                self._metadata: Metadata = _Unpickler(file).load()
            files = {info.relative_path for info in self._metadata.storage_data.values()}
        except (OSError, pickle.UnpicklingError, AttributeError, EOFError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{path} cannot be read ({error}): the checkpoint is incomplete, or is not a torch_dist checkpoint"
            ) from None
        for name in sorted(files):
            if Path(name).name != name or not (folder / name).is_file():
                raise CheckpointError(f"{folder} is incomplete: it has no file {name!r}, which {path} lists")
        self._reader.set_up_storage_reader(self._metadata, is_coordinator=False)

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor's whole shape, by name."""
        found = self._metadata.state_dict_metadata.items()
        return {key: tuple(each.size) for key, each in found if isinstance(each, TensorStorageMetadata)}

    def dtype_of(self, piece: Piece) -> torch.dtype:
        """Dtype of a piece's tensor in the file; errors as in `read`."""
        dtype: torch.dtype = self._found(piece).properties.dtype
        return dtype

    def read(self, pieces: Sequence[Piece]) -> None:
        """Fill the pieces.

        Raises:
            CheckpointError: a tensor is missing or has another shape, or its file is truncated.
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
            raise CheckpointError(f"{self._folder} is incomplete: {error}") from None

    def _found(self, piece: Piece) -> TensorStorageMetadata:
        stored = self._metadata.state_dict_metadata.get(piece.key)
        if not isinstance(stored, TensorStorageMetadata):
            raise CheckpointError(f"{self._folder} belongs to another model: it has no tensor {piece.key!r}")
        if tuple(stored.size)[piece.padded :] != piece.shape[piece.padded :]:
            raise CheckpointError(
                f"{self._folder} belongs to another model: its {piece.key!r} is of shape {tuple(stored.size)}; "
                f"expected {piece.shape}"
            )
        return stored


class _LoadPlanner(DefaultLoadPlanner):
    """Planner that reads into the target tensors."""

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
        if name not in ALLOWED_NAMES.get(module, ()):
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not part of a checkpoint")
        return cast(object, super().find_class(module, name))
