"""Advantage: turns the rewards of a rollout into one advantage per response token, on the ranks.

Example:

    class Centered:
        def __call__(self, batch):
            mean_G = ...                       # always by group_index_S, never by position
            return (batch.rewards_S - mean_G[batch.group_index_S])[batch.sample_index_T]
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from slime_core.roles._spec import Settings, Spec, Stability

if TYPE_CHECKING:
    import torch


def _alone(tensor: "torch.Tensor") -> "torch.Tensor":
    """The sum over one rank."""
    return tensor


@dataclass(frozen=True, slots=True)
class AdvantageInput:
    """Shape legend: S samples, T response tokens. Whole groups only; a rank may have none."""

    rewards_S: "torch.Tensor"
    """Rewards, float32 [S]."""
    group_index_S: "torch.Tensor"
    """Group of each sample, int64 [S]."""
    rollout_index_S: "torch.Tensor"
    """Rollout of each sample, int64 [S]: those that one execution fanned out into share a number."""
    sample_index_T: "torch.Tensor"
    """Sample of each token, int64 [T]; a sample's tokens are neighbours, in their order."""
    loss_mask_T: "torch.Tensor"
    """1 where trained on, float32 [T]."""
    columns_S: "Mapping[str, torch.Tensor]" = field(default_factory=dict)
    """Columns of batch transforms with one number a sample, float32 [S]."""
    columns_T: "Mapping[str, torch.Tensor]" = field(default_factory=dict)
    """Columns of batch transforms with one number a token, float32 [T]."""
    sum_over_ranks: "Callable[[torch.Tensor], torch.Tensor]" = _alone
    """Adds up a tensor over the ranks, for what is of the whole rollout; every rank calls it equally often."""
    kl_penalty_T: "torch.Tensor | None" = None
    """What the KL to the reference takes off each token's reward, `kl_coef` times the KL, float32 [T]; 0 where the mask
    is 0. None without `kl_coef`."""
    values_T: "torch.Tensor | None" = None
    """The critic's estimate of what is still to come before each token is drawn, float32 [T]; None unless the spec
    `uses_values`."""


@runtime_checkable
class Advantage(Protocol):
    """A pure function of one rank's shares of all steps of a rollout."""

    def __call__(self, batch: AdvantageInput) -> "torch.Tensor":
        """Advantages, float32 [T], finite."""
        ...


@runtime_checkable
class ValueAdvantage(Advantage, Protocol):
    """An estimator that also says what the critic should have found."""

    def returns(self, batch: AdvantageInput) -> "torch.Tensor":
        """What the values of the trained tokens are to become, float32 [T], finite."""
        ...


@dataclass(frozen=True)
class AdvantageSpec(Spec[Advantage]):
    """Offers an advantage estimator (`--advantage-estimator`)."""

    role: ClassVar[str] = "advantage"
    also_chosen_by: ClassVar[str] = "advantage_estimator"
    stability: ClassVar[Stability] = Stability.PROVISIONAL

    uses_kl_penalty: bool = False
    """Whether it takes `kl_penalty_T` off the rewards; if not, `kl_coef` is refused."""
    reward_keys: Callable[[Settings], Sequence[str]] = lambda settings: ()
    """Which parts of a sample's reward it reads, with these settings: names of rewards, `NAME/COMPONENT`, or keys of a
    reward that is a dict; `columns_S` has each as `reward/KEY`."""
    token_columns: Sequence[str] = ()
    """Columns of batch transforms that it reads from `columns_T`: a run in which none makes one of them is refused."""
    compares_samples: Callable[[Settings], bool] = lambda settings: False
    """Whether, with these settings, a sample's advantage is relative to others of its group, so that one alone has 0: a
    run with `n_samples_per_prompt = 1` is refused then."""
    uses_values: bool = False
    """Whether it needs a critic: it reads `values_T` and is a `ValueAdvantage`."""
