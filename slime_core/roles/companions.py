"""Companions: the models that a trainer holds beside the policy, and what each is for.

Example:

    RankSetup(..., reference=Reference(Path("base"), use_kl_loss=True, kl_loss_coef=0.001, kl_loss_type="low_var_kl"))
"""

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slime_core.roles.optim import Optim

KlType = Literal["k1", "k2", "k3", "low_var_kl", "k1+", "k3+", "low_var_kl+"]
"""Estimators of a KL divergence from one sample a token, slime's `--kl-loss-type`; with a plus, verl's, the value is of
that estimator and the gradient that of `k2`."""


class Companion(enum.Enum):
    """A kind of model beside the policy."""

    REFERENCE = "reference"
    """What the policy is kept near: `use_kl_loss`, `kl_coef`."""
    TEACHER = "teacher"
    """What the policy is distilled from: `use_opd`."""
    CRITIC = "critic"
    """What estimates values: the advantage estimator `ppo`."""
    OLD_ACTOR = "old policy's"
    """What generated the rollout that is trained on: `keep_old_actor`."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The reference model and the KL terms that need it."""

    load: Path
    """Model directory in HF format; of the policy's vocabulary."""
    update_interval: int | None = None
    """Rollouts after which it becomes the policy of that moment; None: never."""
    use_kl_loss: bool = False
    """Whether the KL to it is computed in the loss."""
    kl_loss_coef: float = 0.0
    """Weight of that term, in units of loss a nat; 0 reports it only."""
    kl_loss_type: KlType = "k1"
    """How a token's KL is estimated, in loss and rewards."""
    use_unbiased_kl: bool = False
    """Whether the loss's estimate is weighed by the ratio of the policy to the sampler, gradient included."""
    kl_coef: float = 0.0
    """What a nat of KL takes off a token's reward; 0: rewards are left alone."""


@dataclass(frozen=True, slots=True)
class Teacher:
    """On-policy distillation."""

    load: Path | None
    """Model directory in HF format, of the policy's vocabulary; None: samples bring `teacher_log_probs`."""
    kl_coef: float
    """What a nat of reverse KL takes off a token's advantage."""


@dataclass(frozen=True, slots=True)
class Critic:
    """The model of values, trained beside the policy."""

    load: Path
    """Model directory in HF format of the policy's vocabulary, to which a value head is added."""
    optim: Optim
    """Its optimizer's keys."""
    value_clip: float
    """How far a value may move from what it was before the rollout's training, before moving on pays no more."""
    num_critic_only_steps: int
    """Rollouts, from the first, in which the policy is not trained."""


@dataclass(frozen=True, slots=True)
class OldActor:
    """The weights that generated the rollout that is trained on."""

    lag: int
    """Rollouts that are generated ahead: 0, or 1 where the next one is generated while the trainer works."""
