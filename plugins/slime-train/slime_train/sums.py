"""Sums: adds up the losses and metrics of a rank's micro-batches for the step's report.

Example:

    sums = Sums()
    sums.add(algorithm.micro_batch(share, samples, log_probs_T, entropy_T))
    sums.result(share, {"grad_norm": norm})         # a StepResult
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from slime_core.roles import LossInput, StepResult
from slime_train.share import Share


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Some samples' loss, and what to report of it."""

    loss: torch.Tensor
    """Their part of the step's loss, a number with the gradient: parts of all micro-batches and shares add up to it."""
    metrics: Mapping[str, float]
    """Sums over their trained tokens."""
    tokens: int
    """How many these are."""
    over_all_tokens: frozenset[str]
    """Metrics to which a token that is not computed for want of an advantage would add 0."""
    log_ratio_T: torch.Tensor
    """Log-probs minus the sampler's, of the trained tokens."""

    @classmethod
    def of(
        cls,
        loss: torch.Tensor,
        metrics_T: Mapping[str, torch.Tensor],
        over_all_tokens: frozenset[str],
        given: LossInput,
    ) -> "MicroBatch":
        """Sum metrics [T] over the trained tokens of what the loss was given."""
        mask_T = given.loss_mask_T
        metrics = {name: float((values_T.detach() * mask_T).sum()) for name, values_T in metrics_T.items()}
        log_ratio_T = (given.log_probs_T.detach() - given.rollout_log_probs_T)[mask_T > 0]
        return cls(loss, metrics, int(mask_T.sum()), over_all_tokens, log_ratio_T)


class Sums:
    """Adds up the micro-batches of a share."""

    def __init__(self) -> None:
        """No micro-batch was added yet."""
        self._metrics: defaultdict[str, float] = defaultdict(float)
        self._tokens = 0
        self._over_all_tokens: frozenset[str] = frozenset()
        self._log_ratios = [torch.empty(0)]

    def add(self, part: MicroBatch) -> None:
        """Add one micro-batch."""
        self._tokens += part.tokens
        self._over_all_tokens |= part.over_all_tokens
        self._log_ratios.append(part.log_ratio_T)
        for name, value in part.metrics.items():
            self._metrics[name] += value

    def log_ratios(self) -> torch.Tensor:
        """Log-probs minus the sampler's, of all trained tokens that were computed [T]; for `mismatch_extremes`."""
        return torch.cat(self._log_ratios)

    def result(self, share: Share, scalars: Mapping[str, float]) -> StepResult:
        """The rank's report of its share."""
        return StepResult(dict(self._metrics), self._tokens, scalars, share.scores(), self._over_all_tokens)
