"""RMSNorm and its gradient, on a chunk of tokens.

The layers built on it walk over the tokens in chunks that stay in the core's cache: on a CPU these models are bound
by memory traffic as soon as a matrix product is followed by element-wise work over all tokens.
"""

import torch
from torch import Tensor

CHUNK = 512
"""Tokens a chunk: wide enough for full matrix throughput, small enough for a 1 MB cache at width 320."""
WIDE_CHUNK = 8192
"""The same on other devices, which are bound by how many kernels are launched."""


def chunk_rows(x: Tensor) -> int:
    """Tokens a chunk where `x` lies."""
    return CHUNK if x.is_cpu else WIDE_CHUNK


def rms_scale(x: Tensor, eps: float) -> Tensor:
    """1 / sqrt(mean(x^2) + eps) over the last dimension, kept as a dimension of 1."""
    square: Tensor = torch.linalg.vecdot(x, x)
    return square.mul_(1.0 / x.shape[-1]).add_(eps).rsqrt_().unsqueeze(-1)


def norm_backward(d: Tensor, x_hat: Tensor, weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of y = x_hat * weight, x_hat = x * scale(x), given dy: (dx, dweight)."""
    d_hat = d * x_hat
    d_weight = d_hat.flatten(0, -2).sum(0)
    mean = torch.matmul(d_hat, weight).mul_(1.0 / weight.shape[0]).unsqueeze(-1)
    return torch.mul(d, weight).addcmul_(x_hat, mean, value=-1).mul_(scale), d_weight
