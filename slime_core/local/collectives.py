"""Collectives: what the ranks of a local trainer make together; alone, one rank is all of them.

Example:

    whole_T = gather_over_ranks(mine_T)         # called on every rank
"""

import torch
import torch.distributed as dist


def sum_over_ranks(tensor: torch.Tensor) -> torch.Tensor:
    """The sum of a tensor of one shape, a new tensor; the same bits on every rank."""
    total = tensor.clone()
    if dist.is_initialized():
        dist.all_reduce(total)
    return total


def gather_over_ranks(values: torch.Tensor) -> torch.Tensor:
    """The ranks' values [T], of any number on each, one after another."""
    if not dist.is_initialized():
        return values
    size, rank = dist.get_world_size(), dist.get_rank()
    lengths = torch.zeros(size, dtype=torch.int64)
    lengths[rank] = len(values)
    dist.all_reduce(lengths)
    mine = values.new_zeros(int(lengths.max()))
    mine[: len(values)] = values
    parts = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(parts, mine)
    return torch.cat([part[:length] for part, length in zip(parts, lengths.tolist(), strict=True)])
