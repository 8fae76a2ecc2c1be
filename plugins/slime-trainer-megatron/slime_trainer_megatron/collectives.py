"""Collectives: sums, gathers and broadcasts over the ranks of a group.

Example:

    whole_T = gather_values(own_T, ps.get_data_parallel_group())     # called on every rank of the group
"""

import json
from typing import cast

import torch
import torch.distributed as dist

Group = dist.ProcessGroup


def backend() -> str:
    """The backend of process groups: gloo, with NCCL for tensors on GPUs."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def init_single_process() -> None:
    """Create a process group with only this process, unless it is in one."""
    if not dist.is_initialized():
        dist.init_process_group(backend(), store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]


def sum_over_ranks(tensor: torch.Tensor, group: Group | None = None) -> torch.Tensor:
    """A new tensor with the sum over the group's ranks, bitwise equal on each. None: over all ranks."""
    total = tensor.clone()
    dist.all_reduce(total, group=group)
    return total


def max_over_ranks(number: int, group: Group | None = None) -> int:
    """The largest of the ranks' numbers."""
    largest = torch.tensor(number, dtype=torch.int64)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    return int(largest)


def gather_values(values: torch.Tensor, group: Group) -> torch.Tensor:
    """Concatenated values [N] of the ranks, which may have different lengths."""
    size = dist.get_world_size(group)
    if size == 1:
        return values
    lengths = torch.zeros(size, dtype=torch.int64)
    lengths[dist.get_rank(group)] = len(values)
    dist.all_reduce(lengths, group=group)
    padded = values.new_zeros(int(lengths.max()))
    padded[: len(values)] = values
    parts = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part[:length] for part, length in zip(parts, lengths.tolist(), strict=True)])


def broadcast_json(data: object, source: int, group: Group) -> object:
    """Broadcast plain data from one rank; returns it on all ranks of a group.

    Args:
        data: the data on the source; ignored on other ranks.
        source: the source's global rank.
        group: the ranks that receive the data.
    """
    if dist.get_world_size(group) == 1:
        return data
    is_source = dist.get_rank() == source
    # On the CPU instead of the default device, because the bytes are decoded to text.
    text = torch.tensor(list(json.dumps(data).encode()) if is_source else [], dtype=torch.uint8, device="cpu")
    length = torch.tensor(text.numel(), device="cpu")
    dist.broadcast(length, src=source, group=group)
    received = text if is_source else torch.empty(int(length), dtype=torch.uint8, device="cpu")
    dist.broadcast(received, src=source, group=group)
    return cast(object, json.loads(bytes(received.tolist())))
