"""Products in fp32 or bf16, RMSNorm, and typed autograd functions: what the layers of the fast path are made of.

The second factor of a product decides: `rounded` makes it bf16, and the first is rounded to fit. Layers walk over the
tokens in chunks that stay in the core's cache: on a CPU these models are bound by memory traffic.

    w = rounded(weights.qkv, bf16)
    qkv = times(h, w.t())                # fp32 either way
"""

import os
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx
from torch.nn.functional import linear

# Read at the first product of a process. Without it, MKL takes another kernel for a product of few rows, whose results
# differ in the last bits: for fewer than 6 to 16 rows with AVX-512, fewer than 56 with AVX2.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")


def rounded(weight: Tensor, bf16: bool) -> Tensor:
    """The weight as a factor: itself, or a bf16 copy."""
    return weight.bfloat16() if bf16 else weight


def times(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """The product a b of [n, k] and [k, m], in the type of a."""
    if a.dtype == b.dtype:
        return torch.mm(a, b, out=out)
    product = torch.mm(a.to(b.dtype), b)
    return product.to(a.dtype) if out is None else out.copy_(product)


def plus_times(x: Tensor, a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """The sum x + a b, in the type of x."""
    if a.dtype == b.dtype:
        return torch.addmm(x, a, b, out=out)
    return torch.add(x, torch.mm(a.to(b.dtype), b), out=out)


def add_product(total: Tensor, a: Tensor, b: Tensor, bf16: bool) -> None:
    """Add a b to an fp32 gradient, so that the sum of bf16 products over chunks is not rounded to bf16."""
    if bf16:
        total.add_(torch.mm(a.bfloat16(), b.bfloat16()))
    else:
        total.addmm_(a, b)


def project(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The layer x W^T + bias without a gradient, in the type of x."""
    if x.dtype == weight.dtype:
        return linear(x, weight, bias)
    out = linear(x.to(weight.dtype), weight).to(x.dtype)
    return out if bias is None else out.add_(bias)


class Context(FunctionCtx):
    """What a function's forward keeps for its backward; subclasses add their own numbers."""

    saved_tensors: tuple[Any, ...]
    """What `save_for_backward` was given, tensors or None."""
    needs_input_grad: tuple[bool, ...]
    """For each argument of the forward, whether its gradient is wanted."""


def call(function: type[Function], *args: object) -> Tensor:
    """The output of an autograd function that has one."""
    out: Tensor = function.apply(*args)  # type: ignore[no-untyped-call]  # torch's and transformers' own are untyped
    return out


def zeros_if(wanted: bool, like: Tensor) -> Tensor | None:
    """A zero gradient for a trained matrix; None for a frozen one, whose product is skipped."""
    return torch.zeros_like(like) if wanted else None


CHUNK = 512
"""Tokens a chunk: wide enough for full matrix throughput, small enough for a 1 MB cache at width 320."""
WIDE_CHUNK = 8192
"""Tokens a chunk on other devices, where the number of kernel launches is the bound."""


def chunk_rows(x: Tensor) -> int:
    """Tokens a chunk on the device of `x`."""
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
