"""The roles of the training algorithm: advantage, loss and off-policy correction, all on the trainer's ranks.

The suffix of a name is its shape: `_S` has one entry per sample, `_T` one per response token. A loss returns one
value per token, and the trainer reduces it.

Example:

    class Centered:
        def __call__(self, batch):
            mean_G = ...                       # always by group_index_S, never by position
            return (batch.rewards_S - mean_G[batch.group_index_S])[batch.sample_index_T]
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from slime_core.roles.spec import Settings, Spec

if TYPE_CHECKING:
    import torch


# Advantage: turns the rewards of a rollout into one advantage per response token, on the ranks.


@dataclass(frozen=True, slots=True)
class AdvantageInput:
    """Shape legend: S samples, T response tokens. Whole groups only; a rank may have none."""

    rewards_S: "torch.Tensor"
    """Rewards, float32 [S]."""
    group_index_S: "torch.Tensor"
    """Group of each sample, int64 [S]."""
    rollout_index_S: "torch.Tensor"
    """Rollout of each sample, int64 [S]. Samples that one generator call returned share a number."""
    sample_index_T: "torch.Tensor"
    """Sample of each token, int64 [T]; a sample's tokens are contiguous and in order."""
    loss_mask_T: "torch.Tensor"
    """1 where trained on, float32 [T]."""
    columns_S: "Mapping[str, torch.Tensor]" = field(default_factory=dict)
    """Columns of batch transforms with one number a sample, float32 [S]."""
    columns_T: "Mapping[str, torch.Tensor]" = field(default_factory=dict)
    """Columns of batch transforms with one number a token, float32 [T]."""
    sum_over_ranks: "Callable[[torch.Tensor], torch.Tensor]" = lambda tensor: tensor
    """All-reduce (sum) over the ranks, for statistics of the whole rollout. Every rank must call it equally often."""
    kl_penalty_T: "torch.Tensor | None" = None
    """`kl_coef` times each token's KL to the reference, 0 where masked, float32 [T]; None without `kl_coef`."""
    values_T: "torch.Tensor | None" = None
    """The critic's value before each token is drawn, float32 [T]; None unless the spec `uses_values`."""


@runtime_checkable
class Advantage(Protocol):
    """A pure function of one rank's shares of all steps of a rollout."""

    def __call__(self, batch: AdvantageInput) -> "torch.Tensor":
        """Advantages, float32 [T], finite."""


@runtime_checkable
class ValueAdvantage(Advantage, Protocol):
    """An estimator that also computes the critic's targets."""

    def returns(self, batch: AdvantageInput) -> "torch.Tensor":
        """Regression targets of the critic at the trained tokens, float32 [T], finite."""


@dataclass(frozen=True)
class AdvantageSpec(Spec[Advantage]):
    """Offers an advantage estimator (`--advantage-estimator`)."""

    role: ClassVar[str] = "advantage"
    also_chosen_by: ClassVar[str] = "advantage_estimator"

    uses_kl_penalty: bool = False
    """Whether it subtracts `kl_penalty_T` from the rewards; `kl_coef` needs it."""
    reward_keys: Callable[[Settings], Sequence[str]] = lambda settings: ()
    """Reward parts that it reads, from `columns_S["reward/KEY"]`: KEY is `NAME`, `NAME/COMPONENT` or a dict's key."""
    token_columns: Sequence[str] = ()
    """Columns that it reads from `columns_T`; batch transforms must make them."""
    compares_samples: Callable[[Settings], bool] = lambda settings: False
    """Whether a sample alone in its group has advantage 0, so that `n_samples_per_prompt` must be over 1."""
    uses_values: bool = False
    """Whether it needs a critic: it reads `values_T` and is a `ValueAdvantage`."""


# Loss: one loss per response token, differentiable in `log_probs_T`; reduction is the trainer's.


@dataclass(frozen=True, slots=True)
class LossInput:
    """Shape legend: S samples, T response tokens of one micro-batch; float32 [T] unless said otherwise."""

    log_probs_T: "torch.Tensor"
    """Log-probs under the weights being trained; carries the gradient."""
    old_log_probs_T: "torch.Tensor"
    """Denominator of the ratio: the sampler's log-probs or, with a correction, the trainer's before the rollout."""
    rollout_log_probs_T: "torch.Tensor"
    """The sampler's log-probs, with or without a correction."""
    advantages_T: "torch.Tensor"
    """From the advantage estimator."""
    loss_mask_T: "torch.Tensor"
    """1 where trained on."""
    entropy_T: "torch.Tensor"
    """Entropy of each token's distribution in nats. Carries a gradient, which costs nothing if unused."""
    sample_index_T: "torch.Tensor"
    """Sample of each token, int64 [T], from 0 within the micro-batch."""
    columns_S: "Mapping[str, torch.Tensor]" = field(default_factory=dict)
    """Columns of batch transforms with one number a sample of the micro-batch, float32 [S]."""
    columns_T: "Mapping[str, torch.Tensor]" = field(default_factory=dict)
    """Columns of batch transforms with one number a token, float32 [T]."""


@dataclass(frozen=True, slots=True)
class LossOutput:
    """The per-token loss and its metrics."""

    loss_T: "torch.Tensor"
    """Loss of each token [T]; masked and reduced by the trainer."""
    metrics_T: "Mapping[str, torch.Tensor]" = field(default_factory=dict)
    """Per-token values [T] to average over trained tokens, reported as `train/<name>`."""
    regularizer_T: "torch.Tensor | None" = None
    """Loss of each token [T] that is added after the off-policy correction, such as an entropy bonus."""
    zero_without_advantage: frozenset[str] = frozenset()
    """Metrics that are 0 at zero advantage, such as a clipped share. Their means include trained tokens that were
    skipped; the means of other metrics, such as entropy, are over computed tokens only."""


@runtime_checkable
class Loss(Protocol):
    """A pure function of one micro-batch."""

    def __call__(self, batch: LossInput) -> LossOutput:
        """Return the per-token loss and metrics."""


@dataclass(frozen=True)
class LossSpec(Spec[Loss]):
    """Offers a loss (`--loss-type`)."""

    role: ClassVar[str] = "loss"
    also_chosen_by: ClassVar[str] = "loss_type"
    zero_without_advantage: Callable[[Settings], bool] = lambda settings: False
    """Whether tokens of zero advantage add nothing to loss and gradient, so that their groups need no forward pass."""
    uses_advantages: bool = True
    """Whether it reads `advantages_T`. If not, advantage keys are rejected, and the run needs no reward."""
    estimator: str = ""
    """The matching estimator, if slime's `advantage_estimator = NAME` selects this loss."""


# Correction: weighs or masks tokens whose sampler disagrees with the trainer (off-policy correction, TIS, rejection).


@dataclass(frozen=True, slots=True)
class CorrectionInput:
    """Shape legend: T response tokens of one micro-batch; samples are never split. No gradient flows."""

    log_probs_T: "torch.Tensor"
    """Log-probs under the trainer's weights from before this rollout's training, float32 [T]."""
    rollout_log_probs_T: "torch.Tensor"
    """The sampler's log-probs, float32 [T]."""
    loss_mask_T: "torch.Tensor"
    """1 where trained on, float32 [T]."""
    sample_index_T: "torch.Tensor"
    """Sample of each token, int64 [T], from 0 within the micro-batch."""


@dataclass(frozen=True, slots=True)
class CorrectionOutput:
    """Weight and mask of each token's loss."""

    weights_T: "torch.Tensor"
    """Factor of each token's loss, finite and non-negative, float32 [T]."""
    loss_mask_T: "torch.Tensor"
    """1 where still trained on; may only remove tokens. The loss's denominators do not change."""
    metrics_T: "Mapping[str, torch.Tensor]" = field(default_factory=dict)
    """Per-token values [T] to average over trained tokens, reported as `train/<name>`."""


@runtime_checkable
class Correction(Protocol):
    """A pure function of one micro-batch."""

    def __call__(self, batch: CorrectionInput) -> CorrectionOutput:
        """Return weights, mask and metrics."""


@dataclass(frozen=True)
class CorrectionSpec(Spec[Correction]):
    """Offers an off-policy correction (slime: `--use-tis`, `--custom-tis-function-path`).

    With a correction, the loss's ratio uses the trainer's log-probs before the rollout, so the mismatch counts once.
    """

    role: ClassVar[str] = "correction"
