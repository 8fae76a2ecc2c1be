"""AdamW on one flat vector: a handful of calls update weights and both moments of any model.

Example:

    optimizer = FlatAdamW(vector_K, decayed=[slice(0, 64)], optim=setup.optim)
    lr = optimizer.step(gradient_K, norm=float(gradient_K.norm()))
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from slime_core.errors import CheckpointError
from slime_core.roles import Optim
from slime_train import learning_rate


class FlatAdamW:
    """AdamW with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2), the gradient clipped first."""

    FILE = "adamw.safetensors"

    def __init__(self, weights: torch.Tensor, decayed: Sequence[slice], optim: Optim) -> None:
        """Start with zero moments; `weights` [K] is updated in place, weight decay reaches the slices `decayed`."""
        self._weights, self._decayed, self._optim = weights, decayed, optim
        self._m, self._v = torch.zeros_like(weights), torch.zeros_like(weights)
        self.steps = self._counted = 0

    def begin_rollout(self) -> None:
        """Reset both moments if the settings ask for it, and their bias correction; the schedule continues."""
        if self._optim.reset_optimizer_states:
            self._m.zero_()
            self._v.zero_()
            self._counted = 0

    def step(self, gradient: torch.Tensor, norm: float) -> float:
        """Apply one gradient [K], which is scaled in place to the norm limit; returns the learning rate used."""
        optim = self._optim
        lr = learning_rate(optim, self.steps)
        self.steps += 1
        self._counted += 1
        if optim.clip_grad and norm > optim.clip_grad:
            gradient.mul_(optim.clip_grad / (norm + 1e-6))
        self._m.lerp_(gradient, 1 - optim.adam_beta1)
        self._v.mul_(optim.adam_beta2).addcmul_(gradient, gradient, value=1 - optim.adam_beta2)
        if optim.weight_decay:
            for part in self._decayed:
                self._weights[part].mul_(1 - lr * optim.weight_decay)
        correction_m, correction_v = 1 - optim.adam_beta1**self._counted, 1 - optim.adam_beta2**self._counted
        denominator = (self._v / correction_v).sqrt_().add_(optim.adam_eps)
        self._weights.addcdiv_(self._m, denominator, value=-lr / correction_m)
        return lr

    def save(self, directory: Path) -> None:
        """Write weights, moments and the step count."""
        directory.mkdir(parents=True)
        tensors = {"weights": self._weights, "m": self._m, "v": self._v, "steps": torch.tensor(self.steps)}
        save_file({name: each.cpu() for name, each in tensors.items()}, directory / self.FILE)

    def load(self, directory: Path) -> None:
        """The inverse of `save`.

        Raises:
            CheckpointError: it is of another model, or of other trained weights.
        """
        tensors = load_file(directory / self.FILE)
        if tensors["weights"].shape != self._weights.shape:
            saved, mine = tensors["weights"].numel(), self._weights.numel()
            raise CheckpointError(
                f"{directory / self.FILE} has {saved} trained weights, and this run has {mine}: use its settings"
            )
        self._weights.copy_(tensors["weights"])
        self._m.copy_(tensors["m"])
        self._v.copy_(tensors["v"])
        self.steps = self._counted = int(tensors["steps"])  # `begin_rollout` resets the count if needed
