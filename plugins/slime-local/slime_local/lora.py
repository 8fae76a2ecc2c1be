"""LoRA: low-rank updates of matrices, trained through the merged weights.

W = W0 + (lora_alpha / r) B A, with A [r, in] and B [out, r] (Hu et al. 2021, arXiv:2106.09685, section 4.1). Model and
engine both compute with W, so that their results are bitwise equal. The chain rule maps the gradient of W to
dA = (lora_alpha / r) B^T dW and dB = (lora_alpha / r) dW A^T. Models need no change.

    parameters = LoraParameters(model, weights_N, LocalTrainerSettings(lora_rank=8), seed=0)
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from slime_core.errors import ModelError
from slime_core.seeds import derive_seed
from slime_local.model import LocalModel, Slot
from slime_local.settings import ALL_LINEAR, LocalTrainerSettings

EXPERTS_NAMES = frozenset({"gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"})
NOT_FOR_PEFT = """\
This folder has no adapters in peft's format. The layers named {names} have one adapter each, but the model's experts
are fused tensors. peft would take these names for the experts and ignore the adapters without an error. Use the model
in ../hf, which has the adapters merged.
"""


@dataclass(frozen=True, slots=True)
class Adapter:
    """The update of one matrix; A and B are views into the vector that is optimized."""

    slot: Slot
    """The matrix's place among the weights."""
    base: torch.Tensor
    """W0 [rows, columns]."""
    a: torch.Tensor
    """[r, columns]."""
    b: torch.Tensor
    """[rows, r]."""


class LoraParameters:
    """The adapters as one vector; `apply` merges them."""

    def __init__(self, model: LocalModel, weights: torch.Tensor, settings: LocalTrainerSettings, seed: int) -> None:
        """Place an adapter on every matrix that the settings name; B starts at 0, so that the model is unchanged.

        Raises:
            ModelError: a name fits no linear layer of the model.
        """
        assert settings.lora_rank is not None, "checked by the caller"
        self._model, self._weights, self._settings = model, weights, settings
        self._rank, self._scale = settings.lora_rank, settings.lora_alpha / settings.lora_rank
        slots = _targets(model, settings.lora_target_modules)
        sizes = [size for slot in slots for size in (self._rank * slot.shape[1], slot.shape[0] * self._rank)]
        self.vector = torch.zeros(sum(sizes))
        ends = torch.tensor(sizes).cumsum(0).tolist()
        self.decayed = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
        self.trained = frozenset(slot.name for slot in slots)
        pairs = self._pairs(self.vector, slots)
        self._adapters = [
            Adapter(slot, slot.view(weights).clone(), *pair) for slot, pair in zip(slots, pairs, strict=True)
        ]
        for adapter in self._adapters:
            draw = torch.Generator("cpu").manual_seed(derive_seed(seed, "lora", adapter.slot.name))
            bound = 1 / math.sqrt(adapter.a.shape[1])  # Kaiming's uniform for a = sqrt(5), as peft starts
            # Drawn on the CPU, so that a seed gives the same numbers on every device.
            drawn = torch.empty(adapter.a.shape, device="cpu").uniform_(-bound, bound, generator=draw)
            adapter.a.copy_(drawn)

    def gradient(self, gradient_N: torch.Tensor) -> torch.Tensor:
        """Gradient of A and B from the gradient of the merged weights."""
        product = torch.empty_like(self.vector)
        pairs = self._pairs(product, [adapter.slot for adapter in self._adapters])
        for adapter, (d_a, d_b) in zip(self._adapters, pairs, strict=True):
            d_w = adapter.slot.view(gradient_N)
            torch.mm(adapter.b.t(), d_w, out=d_a)
            torch.mm(d_w, adapter.a.t(), out=d_b)
        return product.mul_(self._scale)

    def apply(self) -> None:
        """Merge each adapter into a fresh copy of its base matrix, so that rounding does not accumulate."""
        for adapter in self._adapters:
            merged = adapter.slot.view(self._weights)
            torch.addmm(adapter.base, adapter.b, adapter.a, alpha=self._scale, out=merged)

    def export(self, directory: Path) -> None:
        """Write only the adapters to `adapter/` in peft's format; or a note, if peft would load them wrongly."""
        to = directory / "adapter"
        to.mkdir(parents=True)
        if taken := self._taken_for_experts():
            (to / "README.txt").write_text(NOT_FOR_PEFT.format(names=", ".join(taken)), encoding="utf-8")
            return
        tensors, modules = {}, set[str]()
        for adapter in self._adapters:
            module = adapter.slot.name.removesuffix(".weight")
            modules.add(module.rpartition(".")[2])
            a, b = adapter.a.cpu(), adapter.b.cpu()
            if adapter.slot.name in self._model.transposed:
                a, b = b.t(), a.t()
            tensors[f"base_model.model.{module}.lora_A.weight"] = a.contiguous().clone()
            tensors[f"base_model.model.{module}.lora_B.weight"] = b.contiguous().clone()
        save_file(tensors, to / "adapter_model.safetensors", metadata={"format": "pt"})
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": str(self._model.source),
            "r": self._rank,
            "lora_alpha": self._settings.lora_alpha,
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": bool(self._model.transposed),
            "target_modules": sorted(modules),
            "inference_mode": True,
        }
        (to / "adapter_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")

    def _taken_for_experts(self) -> list[str]:
        """Last names of adapted layers that peft (0.21) confuses with fused experts, which have no adapter."""
        if not any(len(slot.shape) == 3 for slot in self._model.layout):
            return []
        names = {adapter.slot.name.removesuffix(".weight").rpartition(".")[2] for adapter in self._adapters}
        return sorted(names & EXPERTS_NAMES)

    def _pairs(self, vector: torch.Tensor, slots: Sequence[Slot]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        pairs, offset = [], 0
        for rows, columns in (slot.shape for slot in slots):
            a = vector.narrow(0, offset, self._rank * columns).view(self._rank, columns)
            b = vector.narrow(0, offset + a.numel(), rows * self._rank).view(rows, self._rank)
            pairs.append((a, b))
            offset += a.numel() + b.numel()
        return pairs


def _targets(model: LocalModel, wanted: Sequence[str]) -> list[Slot]:
    """The linear layers of these names; a name is a module's last part or whole path, as in peft."""
    linear = [slot for slot in model.layout if slot.name in model.linear]
    modules = {slot.name: slot.name.removesuffix(".weight") for slot in linear}
    if list(wanted) == [ALL_LINEAR]:
        return linear

    def fits(module: str, name: str) -> bool:
        return module == name or module.endswith(f".{name}")

    for name in wanted:
        if not any(fits(module, name) for module in modules.values()):
            there = sorted({module.rpartition(".")[2] for module in modules.values()})
            several = f"; write several as a list, {json.dumps(name.split(','))}" if "," in name else ""
            raise ModelError(
                f"lora_target_modules: {model.source} has no linear layer {name!r}; it has {', '.join(there)}; "
                f"{ALL_LINEAR} selects all of them{several}"
            )
    return [slot for slot in linear if any(fits(modules[slot.name], name) for name in wanted)]
