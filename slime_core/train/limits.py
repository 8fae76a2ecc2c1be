"""Limits: how far the trainer's log-probs may be from the sampler's before the run stops. No torch.

Example:

    MismatchLimits(mean=1e-2, largest=None).check(metrics, rollout_id=7)
"""

from collections.abc import Mapping
from dataclasses import dataclass

from slime_core.errors import ContractError, MismatchError

MEAN = "train/train_rollout_logprob_abs_diff"
LARGEST = "train/train_rollout_logprob_abs_diff_max"


@dataclass(frozen=True, slots=True)
class MismatchLimits:
    """In nats, over the trained tokens of an optimizer step; None: any."""

    mean: float | None = None
    """Of the mean distance (`max_mean_logprob_abs_diff`)."""
    largest: float | None = None
    """Of the largest one (`max_logprob_abs_diff`)."""

    def check(self, metrics: Mapping[str, float], rollout_id: int, tokens: int) -> None:
        """Look at a rollout's first optimizer step, whose weights are those that sampled, unless generation went on.

        Args:
            metrics: of the step.
            rollout_id: its rollout.
            tokens: how many were computed; of none there is nothing to say.

        Raises:
            MismatchError: over a limit.
            ContractError: the trainer reports no such metric.
        """
        for key, name, limit in (
            ("max_mean_logprob_abs_diff", MEAN, self.mean),
            ("max_logprob_abs_diff", LARGEST, self.largest),
        ):
            if limit is None or not tokens:
                continue
            if name not in metrics:
                raise ContractError(
                    f"the trainer reports no {name}, which {key} = {limit:g} is a limit of: leave it out"
                )
            if metrics[name] > limit:
                raise MismatchError(
                    f"rollout {rollout_id}, first optimizer step: {name} is {metrics[name]:.3g} nats, over {key} = "
                    f"{limit:g} (mean {_said(metrics, MEAN)}, largest {_said(metrics, LARGEST)}): trainer and engine "
                    "disagree about the same tokens. Look for other weights, precision, temperature or chat template "
                    "in one of them; the newest checkpoint is from before this step."
                )


def _said(metrics: Mapping[str, float], name: str) -> str:
    return f"{metrics[name]:.3g}" if name in metrics else "unknown"
