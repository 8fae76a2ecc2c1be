"""Autograd functions with types: the context they keep, and their call."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx


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
    """Room for the gradient of a matrix that is trained; None for one that is not, whose product is left out."""
    return torch.zeros_like(like) if wanted else None
