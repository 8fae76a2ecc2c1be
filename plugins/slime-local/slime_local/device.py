"""Device: where a process of the local engine or trainer computes.

The device is the process's default, so that a plugin's new tensors are created on it. Data from files, numpy and other
ranks is moved there.

Example:

    device = use_device("cuda", rank=1)         # before other torch calls; the second GPU if there are several
"""

import torch
import torch.distributed as dist

from slime_core.errors import ModelError


def sum_over_ranks(tensor: torch.Tensor) -> torch.Tensor:
    """Sum over ranks of a tensor of equal shape, as a new tensor; bitwise equal on every rank."""
    total = tensor.clone()
    add_over_ranks(total)
    return total


def add_over_ranks(tensor: torch.Tensor) -> None:
    """Sum a tensor over ranks in place."""
    if dist.is_initialized():
        shared = tensor.cpu()
        dist.all_reduce(shared)
        if shared is not tensor:
            tensor.copy_(shared)


def gather_over_ranks(values: torch.Tensor) -> torch.Tensor:
    """Concatenated values [T] of all ranks, which may have different lengths."""
    if not dist.is_initialized():
        return values
    size, rank = dist.get_world_size(), dist.get_rank()
    lengths = torch.zeros(size, dtype=torch.int64, device="cpu")
    lengths[rank] = len(values)
    dist.all_reduce(lengths)
    mine = torch.zeros(int(lengths.max()), dtype=values.dtype, device="cpu")
    mine[: len(values)] = values
    parts = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(parts, mine)
    gathered = torch.cat([part[:length] for part, length in zip(parts, lengths.tolist(), strict=True)])
    return gathered.to(values.device)


def use_device(name: str, rank: int) -> torch.device:
    """Set the device to compute on, number `rank` modulo the device count; torch uses one CPU thread.

    Raises:
        ModelError: torch finds no such device.
    """
    torch.set_num_threads(1)
    if name == "cpu":
        return torch.device("cpu")
    module = torch.get_device_module(name)
    if not module.is_available():
        raise ModelError(
            f"device = {name!r}: torch {torch.__version__} finds no such device; install a build of torch for it "
            '(https://pytorch.org/get-started/locally), or set device = "cpu"'
        )
    device = torch.device(name, rank % module.device_count())
    torch.set_default_device(device)
    return device
