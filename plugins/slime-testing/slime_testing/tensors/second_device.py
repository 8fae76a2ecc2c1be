"""A second torch device for machines that have only a CPU; the CPU computes for it.

As with CUDA, torch functions raise if tensors of this device and CPU tensors are mixed. So code that runs on this
device leaves no tensor on the CPU. The device uses torch's hook for backends that are written in Python.

    register()
    torch.ones(2, device="second_device") + torch.ones(2)     # RuntimeError: aten.add.Tensor of tensors on cpu and ...
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any, Self, TypeAlias, TypeVar, cast
from unittest import SkipTest

import torch
from torch import library
from torch.utils import backend_registration
from torch.utils._pytree import tree_leaves, tree_map

NAME = "second_device"
CPU = torch.device("cpu")
INDEXING = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default, torch.ops.aten.index_put.default)
"""Functions that accept CPU indices, as with CUDA."""
COPY, MOVE = torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default

Function: TypeAlias = Callable[..., object]
BatchT = TypeVar("BatchT")


class DeviceTensor(torch.Tensor):
    """A tensor on this device; `cpu_tensor` has its data."""

    cpu_tensor: torch.Tensor

    @staticmethod
    def __new__(cls: type[Self], data: torch.Tensor) -> Self:
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, data.size(), data.stride(), data.storage_offset(), dtype=data.dtype, device=torch.device(NAME, 0)
        )
        tensor.cpu_tensor = data
        return tensor

    def __repr__(self) -> str:  # type: ignore[override]  # torch's takes tensor_contents
        return f"DeviceTensor({self.cpu_tensor!r})"

    def tolist(self) -> list[Any]:
        """The values; torch's method does not support tensors of Python backends."""
        return self.cpu_tensor.tolist()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's own is a placeholder
        cls, func: Function, types: object, args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        kwargs = dict(kwargs or {})
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        bound = tree_leaves((args[0], args[2:3])) if func in INDEXING else tensors if func not in (COPY, MOVE) else []
        if any(isinstance(each, torch.Tensor) and not isinstance(each, DeviceTensor) and each.dim() for each in bound):
            raise RuntimeError(f"{func} of tensors on {' and '.join(sorted({str(each.device) for each in tensors}))}")
        leaves = func is MOVE and kwargs.get("device") == CPU
        if kwargs.get("device") is not None:
            kwargs["device"] = CPU
        answer = func(*tree_map(_unwrap, args), **tree_map(_unwrap, kwargs))
        if leaves or (func is COPY and not isinstance(tensors[0], DeviceTensor)):
            return answer
        owners = {id(each.cpu_tensor): each for each in tensors if isinstance(each, DeviceTensor)}
        return tree_map(lambda each: _wrap(each, owners), answer)


def _unwrap(value: object) -> object:
    return value.cpu_tensor if isinstance(value, DeviceTensor) else value


def _wrap(value: object, owners: Mapping[int, DeviceTensor]) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    owner = owners.get(id(value))
    return DeviceTensor(value) if owner is None else owner


def _factories() -> Iterator[tuple[str, Function]]:
    for full in torch._C._dispatch_get_all_op_names():
        space, _, name = full.partition("::")
        packet, _, overload = name.partition(".")
        found = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if space != "aten" or found is None:
            continue
        kinds = {argument.name: str(argument.type) for argument in found._schema.arguments}
        makes_one = [str(each.type) for each in found._schema.returns] == ["Tensor"]
        if makes_one and "device" in kinds and not any("Tensor" in kind for kind in kinds.values()):
            yield name, found


def _on_this_device(function: Function) -> Callable[..., DeviceTensor]:
    def make(*args: object, **kwargs: object) -> DeviceTensor:
        return DeviceTensor(cast(torch.Tensor, function(*args, **{**kwargs, "device": CPU})))

    return make


def _copy(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    cast(torch.Tensor, _unwrap(target)).copy_(cast(torch.Tensor, _unwrap(source)))
    return target


class _Module(backend_registration._DummyBackendModule):
    def __init__(self) -> None:
        self.available = False

    def is_available(self) -> bool:
        """Whether `available()` is entered. Otherwise, code that searches for a device must not find this one.

        For example, `torch.distributed.checkpoint` would copy CPU tensors to it.
        """
        return self.available

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


_module = _Module()
_registered: list[library.Library] = []


def register() -> None:
    """Register the device with torch, once per process and permanently.

    A backward pass needs `torch.autograd.set_multithreading_enabled(False)`: torch starts its device threads in the
    first backward pass, and has none for a device that is registered later.

    Raises:
        SkipTest: this torch does not support such devices, or has another one of this kind.
    """
    if _registered:
        return
    set_up = getattr(backend_registration, "_setup_privateuseone_for_python_backend", None)
    if set_up is None or torch._C._get_privateuse1_backend_name() != "privateuseone":
        raise SkipTest(f"torch {torch.__version__} does not support another device that is written in Python")
    set_up(NAME, backend_module=_module)
    aten = library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]  # torch's own is untyped
    for name, function in _factories():
        aten.impl(name, _on_this_device(function), "PrivateUse1")  # type: ignore[no-untyped-call]  # torch's own is untyped
    aten.impl("_copy_from", _copy, "PrivateUse1")  # type: ignore[no-untyped-call]  # torch's own is untyped
    _registered.append(aten)  # registrations end with the object


@contextmanager
def available() -> Iterator[str]:
    """Make torch report the device as available; yields its name.

    Raises:
        SkipTest: see `register`.
    """
    register()
    _module.available = True
    try:
        yield NAME
    finally:
        _module.available = False


def to_second_device(batch: BatchT) -> BatchT:
    """A copy of the batch with all tensors on the device. Leaf tensors that require gradients stay leaves."""
    register()
    assert is_dataclass(batch)
    changes = {each.name: _move(getattr(batch, each.name)) for each in fields(batch)}
    return cast(BatchT, replace(batch, **changes))  # type: ignore[type-var]  # the assertion above says so


def to_cpu(value: torch.Tensor) -> torch.Tensor:
    """A result from the device, copied to the CPU.

    Raises:
        AssertionError: it is on another device.
    """
    if not isinstance(value, DeviceTensor):
        raise AssertionError(f"the batch is on device {NAME}:0, but a result is on {value.device}")
    return value.detach().cpu()


def _move(value: object) -> object:
    if isinstance(value, dict):
        return {key: _move(each) for key, each in value.items()}
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().to(NAME).requires_grad_(value.requires_grad)
