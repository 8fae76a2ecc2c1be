"""Runs Megatron without CUDA: megatron's modules get a `torch` whose CUDA calls use the CPU.

megatron-core hard-codes CUDA as the model's device. Patching torch itself would affect all libraries, and some would
silently load wrong weights. Each megatron module therefore gets a proxy for `torch`, which replaces the names below
and forwards all others. On a GPU nothing is patched.

Example:

    import megatron.core
    replace_cuda(torch.device("cpu"))        # idempotent; call it again after further imports of megatron
"""

import functools
import logging
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

_MODEL = {"device": torch.device("cpu")}
"""The model's device."""
FACTORIES = ("arange", "empty", "empty_like", "full", "ones", "tensor", "zeros", "zeros_like")
"""Functions of torch that megatron calls with `device="cuda"`."""
PACKAGE = "megatron.core"


class ModuleProxy(types.ModuleType):
    """A module that forwards to another module except for some names."""

    def __init__(self, real: types.ModuleType, names: dict[str, object]) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(names)
        self.__dict__["_real"] = real

    def __getattr__(self, name: str) -> object:
        return getattr(self.__dict__["_real"], name)


class NoStream:
    """A stream and event for the CPU, where all operations run in order."""

    def __init__(self, *given: object, **options: object) -> None:
        pass

    def __enter__(self) -> "NoStream":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name == "record_event":
            return NoStream
        if name not in ("record", "synchronize", "wait", "wait_event", "wait_stream"):
            raise AttributeError(name)
        return _nothing


def replace_cuda(device: torch.device) -> None:
    """Replace `torch` in every imported module of megatron-core, if the model is not on a GPU.

    Args:
        device: the model's device.
    """
    _MODEL["device"] = device
    if device.type == "cuda":
        return
    for name, module in list(sys.modules.items()):
        if name.startswith(PACKAGE) and module.__dict__.get("torch") is torch:
            module.__dict__["torch"] = _torch()
    # Without Transformer Engine, the module uses an undefined name.
    sys.modules[f"{PACKAGE}.transformer.moe.moe_utils"].__dict__.setdefault("te_general_gemm", None)
    dispatcher = sys.modules[f"{PACKAGE}.transformer.moe.token_dispatcher"]
    dispatcher.__dict__["maybe_move_tensor_to_cpu"] = _as_on_cpu
    mappings = sys.modules[f"{PACKAGE}.tensor_parallel.mappings"].__dict__
    if mappings["_gather_along_first_dim"] is not _gather_parts:
        _REAL.update(gather=mappings["_gather_along_first_dim"], scatter=mappings["_reduce_scatter_along_first_dim"])
        mappings.update(_gather_along_first_dim=_gather_parts, _reduce_scatter_along_first_dim=_reduce_scatter_parts)
    rng = sys.modules[f"{PACKAGE}.tensor_parallel.random"]
    rng.__dict__["_set_cuda_rng_state"] = _set_rng_state
    linear = sys.modules[f"{PACKAGE}.tensor_parallel.layers"].__dict__[
        "linear_with_grad_accumulation_and_async_allreduce"
    ]
    linear.warned = True  # suppresses a warning about an environment variable that only GPUs need
    # The filtered warning reports a change of the CPU's random state, which is intended here.
    logger = logging.getLogger(rng.__name__)
    if not logger.filters:
        logger.addFilter(lambda record: "CPU RNG state changed" not in record.getMessage())


@contextmanager
def suppress_import_warnings() -> Iterator[None]:
    """Import megatron-core without its warnings of missing packages and deprecated calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """Suppress megatron-core's warnings of missing packages and of future changes, which a user cannot fix."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"megatron\.|torch\.distributed|contextlib")
        yield


@contextmanager
def fake_cuda() -> Iterator[None]:
    """Make CPU tensors report that they are on a GPU while a model or an optimizer is built.

    Megatron moves the embedding to compare it between stages. Its distributed optimizer checks each parameter's type,
    and its offloading optimizer checks the device: `cpu()` must not return a GPU tensor. The patch affects the tensor
    methods of all libraries, so it lasts only for this block.
    """
    if _MODEL["device"].type == "cuda":
        yield
        return
    real_cuda, real_type, real_cpu, real_pin = (
        torch.Tensor.cuda, torch.Tensor.type, torch.Tensor.cpu, torch.Tensor.pin_memory
    )  # fmt: skip

    def type_of(tensor: torch.Tensor, *given: object, **options: object) -> object:
        if given or options:
            return real_type(tensor, *given, **options)  # type: ignore[call-overload]
        return f"torch.cuda.{str(real_type(tensor)).rpartition('.')[2]}"

    def to_cpu(tensor: torch.Tensor) -> torch.Tensor:
        copy = real_cpu(tensor)
        copy.is_cpu_copy = True  # type: ignore[attr-defined]
        return copy

    torch.Tensor.cuda = lambda tensor, *given, **options: tensor  # type: ignore[method-assign]
    torch.Tensor.type = type_of  # type: ignore[method-assign, assignment]
    torch.Tensor.cpu = to_cpu  # type: ignore[method-assign, assignment]
    torch.Tensor.pin_memory = lambda tensor: tensor  # type: ignore[method-assign, assignment, misc]
    torch.Tensor.is_cuda = property(lambda tensor: not hasattr(tensor, "is_cpu_copy"))  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.Tensor.cuda, torch.Tensor.type = real_cuda, real_type  # type: ignore[method-assign]
        torch.Tensor.cpu, torch.Tensor.pin_memory = real_cpu, real_pin  # type: ignore[method-assign]
        del torch.Tensor.is_cuda


@functools.cache
def _torch() -> ModuleProxy:
    random = ModuleProxy(torch.cuda.random, {"get_rng_state": _rng_state})
    cuda: dict[str, object] = {
        "Event": NoStream,
        "Stream": NoStream,
        "current_device": lambda: _MODEL["device"],
        "current_stream": NoStream,
        "empty_cache": _nothing,
        "get_rng_state": _rng_state,
        "manual_seed": torch.manual_seed,
        "random": random,
        "set_rng_state": _set_rng_state,
        "stream": NoStream,
        "synchronize": _nothing,
    }
    factories: dict[str, object] = {name: _on_model_device(name) for name in FACTORIES}
    return ModuleProxy(torch, {"cuda": ModuleProxy(torch.cuda, cuda), **factories})


def _on_model_device(name: str) -> Callable[..., torch.Tensor]:
    factory: Callable[..., torch.Tensor] = getattr(torch, name)

    @functools.wraps(factory)
    def create(*given: object, **options: object) -> torch.Tensor:
        if str(options.get("device")).startswith("cuda"):
            options["device"] = _MODEL["device"]
        options.pop("pin_memory", None)
        return factory(*given, **options)

    return create


_REAL: dict[str, Callable[..., torch.Tensor]] = {}
"""Megatron's original functions, for parts of equal size."""


def _gather_parts(
    part: torch.Tensor, group: dist.ProcessGroup, sizes: list[int] | None = None, *rest: object, **options: object
) -> torch.Tensor:
    if sizes is None:
        return _REAL["gather"](part, group, None, *rest, **options)
    padded = part.new_zeros(max(sizes), *part.shape[1:])
    padded[: len(part)] = part
    gathered = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(gathered, padded, group=group)
    return torch.cat([each[:size] for each, size in zip(gathered, sizes, strict=True)])


def _reduce_scatter_parts(
    whole: torch.Tensor, group: dist.ProcessGroup, sizes: list[int] | None = None, *rest: object, **options: object
) -> torch.Tensor:
    if sizes is None:
        return _REAL["scatter"](whole, group, None, *rest, **options)
    total = whole.clone()
    dist.all_reduce(total, group=group)
    return torch.split(total, sizes)[group.rank()].contiguous()


def _as_on_cpu(tensor: object, as_numpy: bool = False, record_stream: bool = False) -> object:
    return tensor.numpy() if as_numpy and isinstance(tensor, torch.Tensor) else tensor


def _rng_state(device: object = None) -> torch.Tensor:
    return torch.get_rng_state()


def _set_rng_state(state: torch.Tensor, device: object = None, graph_safe: bool = False) -> None:
    torch.set_rng_state(state)


def _nothing(*given: object, **options: object) -> None:
    pass
