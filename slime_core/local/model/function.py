"""Autograd functions with types: the context they keep, and their call."""

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx


class Context(FunctionCtx):
    """What a function's forward keeps for its backward; subclasses add their own numbers."""

    saved_tensors: tuple[Any, ...]
    """What `save_for_backward` was given, tensors or None."""


def call(function: type[Function], *args: object) -> Tensor:
    """The output of an autograd function that has one."""
    out: Tensor = function.apply(*args)  # type: ignore[no-untyped-call]
    return out
