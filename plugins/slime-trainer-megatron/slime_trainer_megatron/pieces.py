"""Pieces: what a rank has of a model and its moments, as Megatron names and places them in a checkpoint.

Which part of which tensor a parameter is, megatron-core's modules say themselves; a checkpoint has Megatron's own keys.

Example:

    for held in held_by(policy):
        pieces = held.pieces(moment, "optimizer.state.exp_avg.")
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from megatron.core import parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory, is_main_replica

from slime_trainer_megatron.model import Policy
from slime_trainer_megatron.torch_dist import Piece


@dataclass(frozen=True)
class Held:
    """A parameter of this rank, or the bias of a router."""

    parameter: torch.Tensor
    """The parameter or the bias itself."""
    sharded: ShardedTensor | ShardedTensorFactory
    """megatron-core's description of its place in the whole tensor."""

    @property
    def is_given(self) -> bool:
        """Whether this rank writes it, of all ranks that hold the same."""
        return bool(is_main_replica(self.sharded.replica_id))

    def with_moments(self) -> torch.nn.Parameter | None:
        """The parameter; None for the bias of a router, which has no moments."""
        return self.parameter if isinstance(self.parameter, torch.nn.Parameter) else None

    def pieces(self, value: torch.Tensor, prefix: str = "") -> list[Piece]:
        """The pieces of a tensor of its shape, itself or a moment; views, so that reading into them fills it."""
        sharded = self.sharded
        key = f"{prefix}{sharded.key}"
        if isinstance(sharded, ShardedTensorFactory):
            parts = list(replace(sharded, key=key, data=value).build())
        else:
            parts = [replace(sharded, key=key, data=value, dtype=value.dtype)]
        return [_piece_of(part) for part in parts]


def held_by(policy: Policy) -> Iterator[Held]:
    """Every parameter of this rank, and every bias of its routers."""
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    for sharded in policy.sharded_state_dict(metadata={"dp_cp_group": group}).values():
        # What is not a tensor belongs to quantization, which this trainer does not support.
        if isinstance(sharded, ShardedTensor | ShardedTensorFactory):
            assert sharded.data is not None, sharded.key
            yield Held(sharded.data, sharded)


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
