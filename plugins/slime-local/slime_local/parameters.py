"""Parameters: the vector that is optimized, and its mapping to the model's weights.

All weights (the vector is the weights), a choice of them by name, or the adapters of `slime_local.lora`.

Example:

    parameters = trained_parameters(model, weights_N, settings, seed=0)
    optimizer.step(parameters.gradient(gradient_N), norm)
    parameters.apply()                                    # the optimizer has changed parameters.vector
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch

from slime_core.errors import ModelError
from slime_local.lora import LoraParameters
from slime_local.model import LocalModel, Slot
from slime_local.settings import LocalTrainerSettings


class Parameters(Protocol):
    """The optimized vector of K numbers, which determines the model's N weights."""

    @property
    def vector(self) -> torch.Tensor:
        """[K] fp32, changed in place by the optimizer."""

    @property
    def decayed(self) -> Sequence[slice]:
        """Slices of the vector with weight decay: the matrices."""

    @property
    def trained(self) -> frozenset[str]:
        """Names of the weights whose gradient `gradient` reads."""

    def gradient(self, gradient_N: torch.Tensor) -> torch.Tensor:
        """Gradient [K] of the vector from the gradient [N] of the weights; may share its memory."""

    def apply(self) -> None:
        """Update the model's weights from the vector."""

    def export(self, directory: Path) -> None:
        """Write files for other tools, such as an adapter, next to the whole model; may write none."""


class AllWeights:
    """All weights: the vector is the model's weights."""

    def __init__(self, weights: torch.Tensor, layout: Sequence[Slot]) -> None:
        self.vector = weights
        self.decayed = [slice(slot.offset, slot.offset + slot.numel) for slot in layout if len(slot.shape) > 1]
        self.trained = frozenset(slot.name for slot in layout)

    def gradient(self, gradient_N: torch.Tensor) -> torch.Tensor:
        """Return the gradient unchanged."""
        return gradient_N

    def apply(self) -> None:
        """Do nothing: vector and weights share memory."""

    def export(self, directory: Path) -> None:
        """Nothing."""


class SomeWeights:
    """A vector of the chosen weights; all others are frozen."""

    def __init__(self, weights: torch.Tensor, chosen: Sequence[Slot]) -> None:
        self._weights, self._chosen = weights, chosen
        self.trained = frozenset(slot.name for slot in chosen)
        self.vector = self.gradient(weights)
        self._parts = torch.split(self.vector, [slot.numel for slot in chosen])
        ends = torch.tensor([slot.numel for slot in chosen]).cumsum(0).tolist()
        self.decayed = [slice(end - slot.numel, end) for slot, end in zip(chosen, ends, strict=True) if slot.shape[1:]]

    def gradient(self, gradient_N: torch.Tensor) -> torch.Tensor:
        """Gradient of the chosen weights."""
        return torch.cat([gradient_N[slot.offset : slot.offset + slot.numel] for slot in self._chosen])

    def apply(self) -> None:
        """Copy each chosen weight into the model."""
        for slot, part in zip(self._chosen, self._parts, strict=True):
            self._weights[slot.offset : slot.offset + slot.numel] = part

    def export(self, directory: Path) -> None:
        """Nothing."""


def trained_parameters(
    model: LocalModel, weights: torch.Tensor, settings: LocalTrainerSettings, seed: int
) -> Parameters:
    """The `Parameters` that the settings choose of `weights` [N], to which the model is bound; equal on every rank.

    Raises:
        ModelError: a name or a pattern fits none of the model's weights, or nothing is left to train.
    """
    if settings.lora_rank is not None:
        return LoraParameters(model, weights, settings, seed)
    names = [slot.name for slot in model.layout]
    only, frozen = settings.only_train_params_name_list, settings.freeze_params_name_list
    for pattern in (*only, *frozen):
        if not any(re.search(pattern, name) for name in names):
            raise ModelError(f"no weight of {model.source} matches {pattern!r}; its weights are {_some(names)}")
    if not only and not frozen:
        return AllWeights(weights, model.layout)

    def is_trained(name: str) -> bool:
        return (
            any(re.search(pattern, name) for pattern in only) if only else not any(re.search(p, name) for p in frozen)
        )

    chosen = [slot for slot in model.layout if is_trained(slot.name)]
    if not chosen:
        raise ModelError(
            f"freeze_params_name_list = {frozen} freezes all weights of {model.source}; leave some to train"
        )
    return SomeWeights(weights, chosen)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
