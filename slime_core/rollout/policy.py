"""What a rollout is told: its policy, and which generator and rewards its samples meet."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from slime_core.catalog.used import Used
from slime_core.roles import Extra, Generator, GroupReward, Reward, RewardGrain, SamplingParams
from slime_core.rollout.lifecycle import Lifecycle

ScorerT = TypeVar("ScorerT", bound=Reward | GroupReward, covariant=True)


class RewardOnError(enum.Enum):
    """What becomes of a sample that could not be generated or scored."""

    DROP = "drop"
    """It leaves its group; a group of which fewer than two samples are left is dropped."""
    MASK = "mask"
    """It stays in its group, where it can be looked at: not normalised with the others, not trained on."""
    RAISE = "raise"
    """It ends the run."""


@dataclass(frozen=True, slots=True)
class UsedGenerator(Used[Generator]):
    """A generator, within its own limits."""

    lifecycle: Lifecycle | None = None
    """Starts and closes it, if it has something to start."""


@dataclass(frozen=True, slots=True)
class UsedReward(Used[ScorerT]):
    """A reward or a group reward, within its own limits; its name is that of its metrics."""

    weight: float = 1.0
    """Its factor in the weighted sum; 0 only measures."""
    grain: RewardGrain = RewardGrain.EXECUTION
    """What it is asked about."""
    reads_own: bool = False
    """Whether it is what reads a generator's own score."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """All that scores a sample: a weighted sum over both."""

    rewards: Sequence[UsedReward[Reward]] = ()
    """Each asked about the sample alone."""
    group_rewards: Sequence[UsedReward[GroupReward]] = ()
    """Each asked about all finished samples of its group."""
    keeps_parts: bool = False
    """Whether a sample's reward keeps what each of them said beside the sum, for an estimator that reads it."""

    @property
    def reads_own(self) -> bool:
        """Whether a generator's own score has a weight."""
        return any(each.reads_own for each in self.rewards)


@dataclass(frozen=True, slots=True)
class RolloutPolicy:
    """How rollouts are run."""

    seed: int
    """The run's seed."""
    sampling: SamplingParams
    """How training samples."""
    over_sampling_batch_size: int | None = None
    """Groups drawn at a time when a group filter is on; None: as many as are wanted."""
    max_concurrency: int = 4096
    """Samples being generated at once."""
    max_filter_waves: int = 16
    """Waves of draws after which a rollout that still comes up short gives up."""
    reward_on_error: RewardOnError = RewardOnError.DROP
    """What becomes of failed samples."""
    max_error_rate: float = 0.05
    """Share of failed samples in a rollout over which it stops."""
    max_staleness: int = 1
    """Where generation goes on while weights change: most versions that a group's oldest trainable token may be behind
    the version that is trained, when it is handed over."""
    partial_rollout: bool = False
    """Whether samples in flight are interrupted before the weights change, and go on with the new ones."""
    mask_offpolicy_in_partial_rollout: bool = False
    """Whether tokens that older weights made are then left out of the loss."""
    want: frozenset[Extra] = frozenset()
    """What training wants of an engine's answers beyond tokens and log-probs; evaluation wants nothing."""
    max_context: int | None = None
    """Tokens of a prompt and its answer together; None: as many as the engine takes."""
    max_turns: int | None = None
    """Engine calls of one sample; None: as many as its generator makes."""
    vocab_size: int | None = None
    """Tokens that the model has; a sample with another one has failed. None: nobody knows."""
