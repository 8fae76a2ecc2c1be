"""Schedule: when the learning rate's warm-up and decay end, which the length of a run decides where no key does.

Example:

    Schedule.of(config.optim, train_steps=100).warmup
"""

from dataclasses import dataclass
from typing import Self

from slime_core.config.families import OptimArgs

ENDLESS = ("constant", "inverse-square-root")
"""Styles that never end."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """In optimizer steps of the run."""

    warmup: int
    """Steps of the policy's warm-up."""
    decay: int | None
    """Step at which the policy's decay has ended; None: it never ends."""
    critic_decay: int | None
    """The same of a critic that is trained alone at first."""

    @classmethod
    def of(cls, keys: OptimArgs, train_steps: int, critic_only: int = 0) -> Self:
        """The schedule that the keys describe.

        Args:
            keys: of the run.
            train_steps: optimizer steps of the whole run.
            critic_only: rollouts at the start that train the critic alone.
        """
        warmup, ends = keys.lr_warmup_iters, keys.lr_decay_style not in ENDLESS
        if keys.lr_warmup_fraction is not None:
            warmup = round(keys.lr_warmup_fraction * (keys.lr_decay_iters or train_steps))
        without = critic_only * keys.num_steps_per_rollout
        return cls(
            warmup,
            (keys.lr_decay_iters or train_steps - without) if ends else None,
            (keys.lr_decay_iters or train_steps) if ends and without else None,
        )
