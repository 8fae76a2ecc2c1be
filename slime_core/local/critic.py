"""LocalCritic: the model of values on a rank: a decoder of its own with a value head, and its own AdamW.

Its weights are one flat vector, the decoder's and then the head's, which begins at 0: the first values are 0.

Example:

    values_T = critic.values(packs, tokens=412)                     # before the rollout's training
    critic.backward(packs, target)                                  # then `norm`, and `step` if all is finite
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from slime_core.errors import NonFiniteError
from slime_core.local.model import GroupTokens, LocalModel, load_model
from slime_core.local.optimizer import FlatAdamW
from slime_core.roles import Critic
from slime_core.train.value_loss import value_loss

SUMS = ("tokens", "critic-value_loss", "critic-value_clipfrac", "values", "returns")


@dataclass(frozen=True, slots=True)
class Pack:
    """Some samples of a batch, for one forward."""

    tokens: torch.Tensor
    """Places of their response tokens in the batch, int64 [T]."""
    groups: Sequence[GroupTokens]
    """The same tokens with their prompts, in that order."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the values of a batch's T tokens are to become."""

    old_values_T: torch.Tensor
    """Values before the rollout's training."""
    returns_T: torch.Tensor
    """What they are to become."""
    mask_T: torch.Tensor
    """1 where trained on."""
    weight_T: torch.Tensor
    """Weight of each token's loss in the step's."""


class LocalCritic:
    """One rank's copy of the critic."""

    def __init__(self, critic: Critic, sum_over_ranks: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Load the decoder and add the head.

        Raises:
            ModelError: it cannot be loaded.
        """
        self._critic, self._sum_over_ranks = critic, sum_over_ranks
        self.model: LocalModel = load_model(critic.load)
        """Its decoder."""
        size = self.model.numel
        self._weights = torch.zeros(size + self.model.hidden_size)
        self.model.read_into(self._weights[:size])
        self._old = self._weights.clone()
        self._gradient = torch.zeros_like(self._weights)
        self._sums = torch.zeros(len(SUMS), dtype=torch.float64)
        matrices = [slot for slot in self.model.layout if len(slot.shape) > 1]
        decayed = [slice(slot.offset, slot.offset + slot.numel) for slot in matrices]
        self._optimizer = FlatAdamW(self._weights, [*decayed, slice(size, len(self._weights))], critic.optim)
        self._rollout_id: int | None = None

    def begin(self, rollout_id: int) -> None:
        """A step on a rollout begins: its first one sets what its values are compared with."""
        if rollout_id != self._rollout_id:
            self._old.copy_(self._weights)
            self._rollout_id = rollout_id

    def values(self, packs: Sequence[Pack], tokens: int) -> torch.Tensor:
        """Values [T] before the rollout's training, of the samples in packs; 0 for other tokens of the batch."""
        found_T = torch.zeros(tokens)
        head = self._bind(self._old)
        for pack in packs:
            found_T[pack.tokens] = self.model.values(pack.groups, head)
        return found_T

    def backward(self, packs: Sequence[Pack], target: Target) -> None:
        """The gradient and the sums of a rank's share, kept for `step`.

        Raises:
            NonFiniteError: the loss is not finite.
        """
        self._gradient.zero_()
        self._sums.zero_()
        head = self._bind(self._weights).requires_grad_()
        size = self.model.numel
        head.grad = self._gradient[size:]
        for pack in packs:
            part = pack.tokens
            values_T = self.model.values(pack.groups, head, grad=self._gradient[:size])
            returns_T, mask_T = target.returns_T[part], target.mask_T[part]
            loss_T, clipped_T = value_loss(values_T, target.old_values_T[part], returns_T, self._critic.value_clip)
            loss = (loss_T * target.weight_T[part]).sum()
            if not torch.isfinite(loss):
                raise NonFiniteError(f"the critic's loss of a micro-batch is {loss.item()}")
            loss.backward()  # type: ignore[no-untyped-call]
            columns = (torch.ones_like(mask_T), loss_T.detach(), clipped_T, values_T.detach(), returns_T)
            self._sums += (torch.stack(columns) * mask_T).double().sum(1)

    def norm(self) -> float:
        """Adds up gradient and sums over the ranks; the gradient's norm."""
        self._gradient.copy_(self._sum_over_ranks(self._gradient))
        self._sums.copy_(self._sum_over_ranks(self._sums))
        return float(self._gradient.norm())

    def step(self, norm: float) -> Mapping[str, float]:
        """One step of the optimizer; what to report of it, equal on all ranks."""
        lr = self._optimizer.step(self._gradient, norm)
        tokens, *sums = self._sums.tolist()
        means = {name: total / max(1.0, tokens) for name, total in zip(SUMS[1:], sums, strict=True)}
        return {**means, "critic-grad_norm": norm, "critic-lr-pg_0": lr}

    def save(self, directory: Path) -> None:
        """Write exact weights and moments."""
        self._optimizer.save(directory)

    def load(self, directory: Path) -> None:
        """The inverse of `save`.

        Raises:
            CheckpointError: there is none, or it is of another model.
        """
        self._optimizer.load(directory)

    def _bind(self, weights: torch.Tensor) -> torch.Tensor:
        """Compute with these weights from now on; their head, a view [d]."""
        size = self.model.numel
        self.model.bind(weights[:size])
        return weights[size:].detach()
