"""SGLang on a CPU: a script that replaces `python -m sglang.launch_server` and takes the same arguments.

SGLang's wheel imports packages that exist only as CUDA builds, but does not call them on its plain PyTorch paths. This
script installs stubs for the missing packages, which raise when called, and starts the server. multiprocessing's spawn
runs the main script in each of SGLang's processes, so all of them have the stubs. With CUDA it only starts the server.

It runs in the servers' Python, so it imports neither this package nor slime-core.

Example:

    python -P on_cpu.py --device cpu --attention-backend torch_native --model-path DIR --port 30000
"""

import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import platform
import runpy
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch

STUBBED_PACKAGES = ("sgl_kernel", "soundfile", "torchvision")
"""Packages that SGLang imports and that have no build for a CPU torch."""
STUBS = ("_platform_stubs.py", "_triton_stub.py")  # SGLang's own stub of triton: since 0.5.17, and before
TESTED_WITH = "SGLang 0.5.23 with torch 2.13"
SEED_FLAG = "--enable-deterministic-inference"
ROWS = 16  # Fixed number of rows per matrix product, so that a result does not depend on the batch size
LOW32 = 0xFFFFFFFF


class StubName:
    """Stub for any name in a missing package. It can be imported, subclassed and used as a decorator; a call raises."""

    def __init__(self, name: str, *bases: object) -> None:
        self._name = name

    def __call__(self, *args: object, **kwargs: object) -> object:
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]  # as a decorator
        raise NotImplementedError(f"{self._name} was called, which is only a stub on the CPU")

    def __getattr__(self, name: str) -> "StubName":
        if name.startswith("__"):
            raise AttributeError(name)
        return StubName(f"{self._name}.{name}")

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (object,)


class StubModule(types.ModuleType):
    """Stub of a missing package or module."""

    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> StubName:
        if name.startswith("__"):
            raise AttributeError(name)
        return StubName(f"{self.__name__}.{name}")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds stubs for imports that no other finder resolves."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        known = fullname.partition(".")[0] in STUBBED_PACKAGES
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if known else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return StubModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: a stub has no code."""


class Cudart:
    """Stubs of the CUDA runtime calls by which SGLang pins memory even on a CPU; they do nothing."""

    class cudaError:  # noqa: N801  # CUDA's name
        """Error codes."""

        success = 0

    def cudaHostRegister(self, *args: object) -> int:  # noqa: N802
        return self.cudaError.success

    def cudaHostUnregister(self, *args: object) -> int:  # noqa: N802
        return self.cudaError.success


def install() -> None:
    """Make SGLang importable in this process. Raises SystemExit: impossible, with a fix in the message."""
    os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
    sys.meta_path.append(Finder())
    torch.cuda.cudart = Cudart
    try:
        _stub_triton()
        if SEED_FLAG in sys.argv:
            _enable_seeds()
    except Exception as error:  # another release of torch or SGLang may differ in any way
        raise SystemExit(
            f"SGLang {_version('sglang')} cannot start on the CPU with torch {torch.__version__} of "
            f"{sys.executable}: {type(error).__name__}: {error}. "
            f"CPU servers need {TESTED_WITH}. "
            "Run `make servers` in a checkout of slime-core, and set --sglang-python .venv-sglang/bin/python"
        ) from error


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(which is not installed)"


def _stub_triton() -> None:
    """Install SGLang's own stub of triton, which was written for Apple machines."""
    if importlib.util.find_spec("triton") is not None:
        return
    found = importlib.util.find_spec("sglang")
    places = found.submodule_search_locations if found is not None else None
    if not places:
        raise SystemExit(f"{sys.executable} has no sglang. Set [engine.sglang] python to a Python that has it")
    stubs = next(path for name in STUBS if (path := Path(places[0], name)).exists())
    spec = importlib.util.spec_from_file_location("_sglang_platform_stubs", stubs)
    assert spec is not None, "the path ends in .py"
    assert spec.loader is not None, "the path ends in .py"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    if stubs.name == STUBS[-1]:
        module.install()
        return
    with (
        mock.patch.object(module, "_patch_non_blocking"),
        mock.patch.object(sys, "platform", "darwin"),
        mock.patch.object(platform, "machine", return_value="arm64"),
        mock.patch.object(torch.backends.mps, "is_available", return_value=True),
    ):
        module.install_platform_stubs()


def _enable_seeds() -> None:
    """Allow `--enable-deterministic-inference` without its GPU kernels, which plain PyTorch does not need."""
    import sglang.srt.batch_invariant_ops as package
    from sglang.srt.arg_groups import choices
    from sglang.srt.layers import sampler

    choices.DETERMINISTIC_ATTENTION_BACKEND_CHOICES.append("torch_native")
    package.enable_batch_invariant_mode = make_rows_independent
    sampler.murmur_hash32 = murmur_hash32
    sampler.multinomial_with_seed = getattr(
        sampler.multinomial_with_seed, "_torchdynamo_orig_callable", sampler.multinomial_with_seed
    )
    sampler.top_k_top_p_min_p_sampling_from_probs_torch = sample_by_id(
        sampler.top_k_top_p_min_p_sampling_from_probs_torch, lambda *args: sampler.multinomial_with_seed(*args)
    )


def sample_by_id(draw: Callable[..., Any], drawn_with_seed: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """SGLang's sampler with top-k and top-p, with a seed's noise assigned by token id instead of by rank.

    If one request of a batch is greedy or has a top-k or top-p, SGLang assigns the noise by rank for the whole batch.
    With a health check in the batch, eight requests of a run then sampled other tokens than in the run before.
    """

    def by_id(
        probs: torch.Tensor,
        top_ks: torch.Tensor,
        top_ps: torch.Tensor,
        min_ps: torch.Tensor,
        need_min_p_sampling: bool,
        sampling_seed: torch.Tensor | None,
        positions: torch.Tensor,
        **kwargs: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        result = draw(probs, top_ks, top_ps, min_ps, need_min_p_sampling, sampling_seed, positions, **kwargs)
        if sampling_seed is None:
            return result
        kept, ids = probs.sort(dim=-1, descending=True)
        before = kept.cumsum(dim=-1) - kept
        ranks = torch.arange(probs.shape[-1])
        kept[(ranks >= top_ks[:, None]) | (before > top_ps[:, None])] = 0.0
        # Rounded sums could truncate a distribution with top_p = 1.
        whole = (top_ks >= probs.shape[-1]) & (top_ps >= 1.0)
        weights = torch.where(whole[:, None], probs, torch.zeros_like(probs).scatter_(1, ids, kept))
        drawn = drawn_with_seed(weights.log(), sampling_seed, positions)
        tokens = drawn.view(-1).to(torch.int32)
        if not kwargs.get("return_filtered_probs"):
            return tokens
        _, filtered, order, _ = result
        return tokens, filtered, order, weights.gather(1, drawn).view(-1)

    return by_id


def make_rows_independent(enable_bmm: bool = True) -> None:
    """Make matrix products round each row in the same way for any number of rows in the batch.

    Libraries choose a kernel by the number of rows, so log-probs would depend on a server's other requests. SGLang has
    batch-invariant kernels for GPUs only.
    """
    _LIBRARY.impl("mm", product, "CPU", allow_override=True)  # type: ignore[no-untyped-call]
    _LIBRARY.impl("addmm", sum_and_product, "CPU", allow_override=True)  # type: ignore[no-untyped-call]


_LIBRARY = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
"""Overrides of torch operators in this process, active while this object exists."""


def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """`left @ right` of [n, k] and [k, m], computed in blocks of exactly `ROWS` rows."""
    rows, output = left.shape[0], left.new_empty(left.shape[0], right.shape[1])
    for start in range(0, rows, ROWS):
        block = left[start : start + ROWS]
        count = len(block)
        if count < ROWS:
            block = torch.cat([block, block.new_zeros(ROWS - count, block.shape[1])])
        # With `out`, torch calls another operator, which is not overridden.
        products = torch.mm(block.contiguous(), right, out=left.new_empty(ROWS, right.shape[1]))
        output[start : start + count] = products[:count]
    return output


def sum_and_product(
    term: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """`beta * term + alpha * left @ right`, computed with `product`."""
    return beta * term + alpha * product(left, right)


def murmur_hash32(seed: torch.Tensor, positions: torch.Tensor, col_indices: torch.Tensor) -> torch.Tensor:
    """MurmurHash3 of (seed's low half, seed's high half, position, column), as in SGLang's kernel: [n, m] of int64."""
    wide = seed.view(torch.int64) if seed.dtype == torch.uint64 else seed.to(torch.int64)
    hashed = _mixed(torch.zeros_like(wide), wide & LOW32)
    hashed = _mixed(hashed, (wide >> 32) & LOW32)
    hashed = _mixed(hashed, positions.to(torch.int64) & LOW32)[:, None]
    hashed = _mixed(hashed, col_indices.to(torch.int64)[None, :] & LOW32) ^ 16
    hashed = (hashed ^ (hashed >> 16)) * 0x85EBCA6B & LOW32
    hashed = (hashed ^ (hashed >> 13)) * 0xC2B2AE35 & LOW32
    return hashed ^ (hashed >> 16)


def _mixed(hashed: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
    block = _rotated(block * 0xCC9E2D51 & LOW32, 15) * 0x1B873593 & LOW32
    return (_rotated(hashed ^ block, 13) * 5 + 0xE6546B64) & LOW32


def _rotated(bits: torch.Tensor, by: int) -> torch.Tensor:
    return ((bits << by) | (bits >> (32 - by))) & LOW32


if __name__ in ("__main__", "__mp_main__") and not torch.cuda.is_available():
    install()
if __name__ == "__main__":
    runpy.run_module("sglang.launch_server", run_name="__main__")
