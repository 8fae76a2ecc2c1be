"""LocalCritic: the value model on a rank: a separate decoder with a value head, and a separate AdamW.

Its weights are one flat vector: the decoder's, then the head's. The head starts at 0, so the first values are 0.

Example:

    values_T = critic.values(packs, tokens=412)                     # before the rollout's training
    critic.backward(packs, share)                                   # then `norm`, and `step` if all is finite
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from slime_core.errors import NonFiniteError
from slime_core.roles import Critic
from slime_local.model import GroupTokens, LocalModel, load_model
from slime_local.optimizer import FlatAdamW
from slime_train import Share, check_weights_finite, gradient_norm, value_loss

SUMS = ("tokens", "critic-value_loss", "critic-value_clipfrac", "values", "returns")


@dataclass(frozen=True, slots=True)
class Pack:
    """Some samples of a batch, for one forward."""

    tokens: torch.Tensor
    """Places of their response tokens in the batch, int64 [T]."""
    groups: Sequence[GroupTokens]
    """The same tokens with their prompts, in that order."""


class LocalCritic:
    """One rank's copy of the critic."""

    def __init__(
        self, critic: Critic, sum_over_ranks: Callable[[torch.Tensor], torch.Tensor], *, bf16: bool = False
    ) -> None:
        """Load the decoder and add the head.

        Raises:
            ModelError: it cannot be loaded.
        """
        self._critic, self._sum_over_ranks = critic, sum_over_ranks
        self.model: LocalModel = load_model(critic.load, bf16=bf16)
        """Its decoder."""
        size = self.model.numel
        self._weights = torch.zeros(size + self.model.hidden_size)
        self.model.read_into(self._weights[:size])
        self.model.bind(self._weights[:size])
        self._gradient = torch.zeros_like(self._weights)
        self._sums = torch.zeros(len(SUMS), dtype=torch.float64)
        matrices = [slot for slot in self.model.layout if len(slot.shape) > 1]
        decayed = [slice(slot.offset, slot.offset + slot.numel) for slot in matrices]
        self._optimizer = FlatAdamW(self._weights, [*decayed, slice(size, len(self._weights))], critic.optim)

    def begin_rollout(self) -> None:
        """Prepare for training on a rollout."""
        self._optimizer.begin_rollout()

    def values(self, packs: Sequence[Pack], tokens: int) -> torch.Tensor:
        """Values [T] of the samples in packs; 0 for other tokens of the batch."""
        found_T = torch.zeros(tokens)
        head = self._head()
        for pack in packs:
            found_T[pack.tokens] = self.model.values(pack.groups, head)
        return found_T

    def backward(self, packs: Sequence[Pack], share: Share) -> None:
        """Compute gradient and sums of a rank's share, which has values and returns, for `step`.

        Raises:
            NonFiniteError: the loss is not finite.
        """
        self._gradient.zero_()
        self._sums.zero_()
        assert share.values_T is not None
        assert share.returns_T is not None
        head = self._head().requires_grad_()
        size = self.model.numel
        head.grad = self._gradient[size:]
        for pack in packs:
            part = pack.tokens
            values_T = self.model.values(pack.groups, head, grad=self._gradient[:size])
            returns_T, mask_T = share.returns_T[part], share.mask_T[part]
            loss_T, clipped_T = value_loss(values_T, share.values_T[part], returns_T, self._critic.value_clip)
            loss = (loss_T * share.weight_T[part]).sum()
            if not torch.isfinite(loss):
                raise NonFiniteError(f"the critic's loss of a micro-batch is {loss.item()}")
            loss.backward()  # type: ignore[no-untyped-call]  # torch's and transformers' own are untyped
            columns = (torch.ones_like(mask_T), loss_T.detach(), clipped_T, values_T.detach(), returns_T)
            self._sums += (torch.stack(columns) * mask_T).double().sum(1)

    def norm(self) -> float:
        """Sum gradient and sums over the ranks; returns the gradient's norm."""
        self._gradient.copy_(self._sum_over_ranks(self._gradient))
        self._sums.copy_(self._sum_over_ranks(self._sums))
        return gradient_norm(self._gradient)

    def step(self, norm: float) -> Mapping[str, float]:
        """Take an optimizer step; returns metrics, equal on all ranks.

        Raises:
            NonFiniteError: a weight is not finite after it.
        """
        lr = self._optimizer.step(self._gradient, norm)
        if not self._weights.sum().isfinite():
            check_weights_finite(self._named(), self._optimizer.steps, "the critic's ")
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

    def _named(self) -> Iterator[tuple[str, torch.Tensor]]:
        for slot in self.model.layout:
            yield slot.name, self._weights[slot.offset : slot.offset + slot.numel]
        yield "value_head", self._head()

    def _head(self) -> torch.Tensor:
        """A view of the head's weights [d]."""
        return self._weights[self.model.numel :].detach()
