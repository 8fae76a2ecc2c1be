"""Collectives: sums, gathers and broadcasts over the ranks of a group.

Example:

    whole_T = gathered(mine_T, ps.get_data_parallel_group())     # called on every rank of the group
"""

import json
from typing import cast

import torch
import torch.distributed as dist

Group = dist.ProcessGroup


def backend() -> str:
    """The backend of process groups: gloo, with NCCL for tensors on GPUs."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def alone() -> None:
    """Create a process group with only this process, unless it is in one."""
    if not dist.is_initialized():
        dist.init_process_group(backend(), store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]


def summed(tensor: torch.Tensor, group: Group | None = None) -> torch.Tensor:
    """Sum over ranks of a tensor of equal shape, a new tensor, bitwise equal on each. None: over all ranks."""
    total = tensor.clone()
    dist.all_reduce(total, group=group)
    return total


def largest(number: int, group: Group | None = None) -> int:
    """The largest of the ranks' numbers."""
    found = torch.tensor(number, dtype=torch.int64)
    dist.all_reduce(found, op=dist.ReduceOp.MAX, group=group)
    return int(found)


def gathered(values: torch.Tensor, group: Group) -> torch.Tensor:
    """Concatenated values [N] of the ranks, which may have different lengths."""
    size = dist.get_world_size(group)
    if size == 1:
        return values
    lengths = torch.zeros(size, dtype=torch.int64)
    lengths[dist.get_rank(group)] = len(values)
    dist.all_reduce(lengths, group=group)
    mine = values.new_zeros(int(lengths.max()))
    mine[: len(values)] = values
    parts = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(parts, mine, group=group)
    return torch.cat([part[:length] for part, length in zip(parts, lengths.tolist(), strict=True)])


def told_by(said: object, source: int, group: Group) -> object:
    """Broadcast plain data from one rank; returns it on all ranks of a group.

    Args:
        said: the data on the source; ignored on the others.
        source: the source's global rank.
        group: the ranks that receive the data.
    """
    if dist.get_world_size(group) == 1:
        return said
    speaks = dist.get_rank() == source
    # On the CPU, not the default device: it is decoded to text.
    text = torch.tensor(list(json.dumps(said).encode()) if speaks else [], dtype=torch.uint8, device="cpu")
    length = torch.tensor(text.numel(), device="cpu")
    dist.broadcast(length, src=source, group=group)
    heard = text if speaks else torch.empty(int(length), dtype=torch.uint8, device="cpu")
    dist.broadcast(heard, src=source, group=group)
    return cast(object, json.loads(bytes(heard.tolist())))
