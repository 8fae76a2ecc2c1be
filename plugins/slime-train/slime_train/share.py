"""Share: a rank's batch as tensors, with what models and the advantage estimator add to it before its step.

Example:

    share = Share.of(batch, setup)
    share.batch.group_index_S, share.mask_T, share.tokens_of([0, 2])      # of two samples, their places in [T]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from slime_core.roles import RankSetup, TrainBatch
from slime_train.reduce import token_weights


@dataclass(frozen=True, slots=True)
class Share:
    """Shape legend: S samples, T response tokens; float32 unless said otherwise.

    The fields from `old_log_probs_T` to `values_T` are the trainer's to fill (`dataclasses.replace`), those after them
    `Algorithm.estimate` fills.
    """

    batch: TrainBatch
    """As it came from the driver."""
    lengths_S: torch.Tensor
    """Response tokens of each sample, int64 [S]."""
    starts_S: Sequence[int]
    """Where each sample's tokens begin in [T], and at last where they end: S + 1 numbers."""
    sample_T: torch.Tensor
    """Sample of each token, int64 [T]."""
    mask_T: torch.Tensor
    """1 where trained on [T]."""
    weight_T: torch.Tensor
    """Weight of each token's loss in the step's [T]; see `token_weights`."""
    rollout_log_probs_T: torch.Tensor
    """The sampler's log-probs [T]."""
    columns_S: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Columns of batch transforms with one number a sample [S]."""
    columns_T: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Columns of batch transforms with one number a token [T]."""
    old_log_probs_T: torch.Tensor | None = None
    """The policy's own log-probs before the rollout was trained on [T], of samples with a signal; None: as they are at
    the step, which is the same in a rollout's first one."""
    ref_log_probs_T: torch.Tensor | None = None
    """The reference's log-probs [T], of samples with a trained token; None without a reference."""
    teacher_log_probs_T: torch.Tensor | None = None
    """Those of a teacher that the trainer holds, likewise; samples may bring them as a column instead."""
    values_T: torch.Tensor | None = None
    """The critic's values before the rollout was trained on [T], of samples with a trained token; None without one."""
    kl_penalty_T: torch.Tensor | None = None
    """What the KL to the reference takes off the rewards [T]; 0 where the mask is 0."""
    reverse_kl_T: torch.Tensor | None = None
    """The reverse KL to the teacher in nats, estimated by k1 [T]; 0 where the mask is 0."""
    advantages_T: torch.Tensor | None = None
    """From the advantage estimator [T]."""
    returns_T: torch.Tensor | None = None
    """What the critic's values are to become [T]; None without a critic."""

    @classmethod
    def of(cls, batch: TrainBatch, setup: RankSetup) -> "Share":
        """The batch's columns, on torch's default device."""
        lengths_S = torch.tensor(batch.response_lengths_S, dtype=torch.int64)
        sample_T = torch.arange(len(lengths_S)).repeat_interleave(lengths_S)
        mask_T = torch.tensor(batch.loss_mask_T, dtype=torch.float32)
        weight_T = token_weights(
            mask_T,
            sample_T,
            torch.tensor(batch.weights_S, dtype=torch.float32),
            torch.tensor(batch.rollout_index_S, dtype=torch.int64),
            step_tokens=batch.step_tokens,
            step_samples=batch.step_samples,
            per_token=setup.calculate_per_token_loss,
            constant_length=setup.constant_loss_length,
        )
        rollout_log_probs_T = torch.tensor(batch.rollout_log_probs_T, dtype=torch.float32)
        columns = _tensors(batch.columns_S), _tensors(batch.columns_T)
        starts_S = [0, *lengths_S.cumsum(0).tolist()]
        return cls(batch, lengths_S, starts_S, sample_T, mask_T, weight_T, rollout_log_probs_T, *columns)

    def tokens_of(self, samples: Sequence[int]) -> torch.Tensor:
        """Places of some samples' response tokens, one sample after another, int64 [their tokens]."""
        return torch.cat([torch.arange(self.starts_S[each], self.starts_S[each + 1]) for each in samples])

    def samples_with(self, signal_T: torch.Tensor) -> list[int]:
        """The samples that have a token with a signal over 0."""
        live_S = torch.zeros(len(self.lengths_S)).index_add_(0, self.sample_T, signal_T)
        return [sample for sample, signal in enumerate(live_S.tolist()) if signal > 0]

    def scores(self) -> dict[int, float]:
        """Mean absolute advantage over each group's trained tokens; advantages are estimated by now."""
        assert self.advantages_T is not None
        group_T = torch.tensor(self.batch.group_index_S, dtype=torch.int64)[self.sample_T]
        size = int(group_T.max()) + 1 if len(group_T) else 0
        total = torch.zeros(size).index_add_(0, group_T, self.advantages_T.abs() * self.mask_T)
        count = torch.zeros(size).index_add_(0, group_T, self.mask_T).clamp_min_(1.0)
        mean = (total / count).tolist()
        return {group: mean[group] for group in sorted(set(self.batch.group_index_S))}


def _tensors(columns: Mapping[str, Sequence[float]]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(values, dtype=torch.float32) for name, values in columns.items()}
