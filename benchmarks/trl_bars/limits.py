"""Limits of a device, measured: products of matrices, and copies from memory to memory.

matmul_flops("cuda")            # 7.9e14 on an H100, bf16
"""

import time
from collections.abc import Callable

import torch


def matmul_flops(device: str) -> float:
    """Operations a second of large products of random matrices: fp32 on a CPU, bf16 on a GPU; the best of 20."""
    size, dtype = (1024, torch.float32) if device == "cpu" else (8192, torch.bfloat16)
    left, right = (torch.rand(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / _least(lambda: torch.mm(left, right), device)


def read_bytes(device: str) -> float:
    """Bytes a second of reading a GiB once, by one thread on a CPU; the best of 20."""
    source = torch.rand(1 << 28, device=device)
    return source.nbytes / _least(source.sum, device)


def copy_bytes(device: str, there: str) -> float:
    """Bytes a second of copying a GiB from a device's memory to another's, counted once; the best of 20."""
    source = torch.rand(1 << 28, device=device)
    target = torch.empty_like(source, device=there)
    return source.nbytes / _least(lambda: target.copy_(source), device)


def _least(call: Callable[[], object], device: str) -> float:
    """Seconds of the fastest of 20 calls."""
    times = []
    for _ in range(20):
        _wait(device)
        begun = time.perf_counter()
        call()
        _wait(device)
        times.append(time.perf_counter() - begun)
    return min(times)


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()
