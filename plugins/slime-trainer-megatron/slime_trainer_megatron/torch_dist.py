"""torch_dist: Megatron's format of checkpoints, in which every tensor is one whole that ranks hold pieces of.

Written by torch.distributed.checkpoint in two phases: a copy of the pieces is taken at once, their files are written
beside the training.

Example:

    saving = Saving(folder, pieces)
    saving.finish(wait=True)                        # on all ranks
    Stored(folder).read(pieces)                     # of stored.py
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import WriteResult
from torch.utils.serialization import config

from slime_core.errors import CheckpointError


@dataclass(frozen=True)
class Piece:
    """A part of a tensor."""

    key: str
    """The tensor's name in the whole model."""
    shape: tuple[int, ...]
    """Its shape there."""
    offset: tuple[int, ...]
    """Where the part begins."""
    sizes: tuple[int, ...]
    """The part's shape, of as many dimensions."""
    dtype: torch.dtype
    """What it is written in."""
    value: Callable[[], torch.Tensor]
    """The part, of its sizes; what is read is copied into it."""
    padded: bool = False
    """Whether the whole may be longer or shorter where it was written: a vocabulary is padded for its layout."""


class Saving:
    """A checkpoint that is being written. Every method is called on all ranks together."""

    def __init__(self, folder: Path, pieces: Sequence[Piece], *, copies: bool = True) -> None:
        """Plan it, and take a copy of the pieces.

        Args:
            folder: its own; made.
            pieces: this rank's; one that others have too is given by one of them.
            copies: whether they are copied and written by a thread. Without, they are asked for one at a time, and
                all is written when this returns.

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
            # The checksum is one that torch writes and never reads.
            with config.patch("save.compute_crc32", False):  # type: ignore[attr-defined]
                self._write()
        self._finished = False

    def finish(self, *, wait: bool) -> bool:
        """Whether the files stand; with `wait`, once they do.

        Raises:
            CheckpointError: a rank could not write its own.
        """
        if self._finished:
            return True
        if wait and self._thread.ident is not None:
            self._thread.join()
        busy = torch.tensor(int(self._thread.is_alive()))
        dist.all_reduce(busy)
        if int(busy):
            return False
        said: list[tuple[list[WriteResult], str]] = [([], "")] * dist.get_world_size()
        dist.all_gather_object(said, (self._results, self._error))
        self._finished = True
        if errors := [f"rank {rank}: {error}" for rank, (_, error) in enumerate(said) if error]:
            raise CheckpointError(f"{self._folder} cannot be written: {'; '.join(errors)}")
        if self._metadata is not None:
            self._writer.finish(self._metadata, [results for results, _ in said])
        dist.barrier()
        return True

    def _planned(self, plan: SavePlan) -> tuple[Metadata | None, SavePlan]:
        """What rank 0 makes of all plans: the whole on rank 0, and each rank's own."""
        plans: list[SavePlan] = [plan] * dist.get_world_size()
        dist.all_gather_object(plans, plan)
        # Every rank makes the same of the same: so nothing has to be told, and what fails fails on all.
        try:
            plans, metadata = self._planner.create_global_plan(plans)
        except ValueError as error:
            raise CheckpointError(f"{self._folder} would not be whole: {error}") from None
        own = self._writer.prepare_global_plan(plans)[dist.get_rank()]
        return metadata if dist.get_rank() == 0 else None, own

    def _write(self) -> None:
        try:
            self._results = self._writer.write_data(self._plan, self._planner).value()
        except Exception as error:  # of a file system, and told on all ranks
            self._error = f"{type(error).__name__}: {error}"
        finally:
            self._planner.forget()


class _Writer(FileSystemWriter):
    """Leaves place and time out of the metadata, so that equal checkpoints are equal bytes."""

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta()


class _SavePlanner(DefaultSavePlanner):
    """Writes pieces."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._pieces = {(piece.key, piece.offset): piece for piece in pieces}

    def create_local_plan(self) -> SavePlan:
        self.plan = SavePlan([_item_of(piece) for piece in self._pieces.values()])
        return self.plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        plans, metadata = super().create_global_plan(all_plans)
        for key, each in metadata.state_dict_metadata.items():
            assert isinstance(each, TensorStorageMetadata), "pieces are of tensors"
            if sum(chunk.sizes.numel() for chunk in each.chunks) != each.size.numel():
                raise ValueError(f"pieces of {key!r} are missing")
        return plans, metadata

    def lookup_object(self, index: MetadataIndex) -> torch.Tensor:
        assert index.offset is not None, "pieces have a place"
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
