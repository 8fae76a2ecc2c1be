"""Reward: scores one finished sample.

Example:

    async def exact(sample, ctx):
        return Score(float(sample.response.strip() == sample.label))

    RewardSpec.from_function("exact", exact, summary="1.0 when the stripped response equals the label")
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import update_wrapper
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles._spec import Settings, Setup, Spec
from slime_core.sample import Sample
from slime_core.score import Verdict


@dataclass(frozen=True, slots=True)
class RewardContext:
    """What a reward may know besides the sample."""

    rollout_id: int
    """Number of the rollout, from 0."""
    evaluation: bool
    """Whether this is for evaluation."""
    seed: int
    """A seed of this sample's own, for rewards that draw."""


@runtime_checkable
class Reward(Protocol):
    """Scores a sample without changing it; raising makes the sample Unscored."""

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Return `Score`, `Unscored` or `NotApplicable`."""
        ...


@dataclass(frozen=True)
class RewardSpec(Spec[Reward]):
    """Offers a reward."""

    role: ClassVar[str] = "reward"
    many: ClassVar[bool] = True

    timeout_s: float = 30.0
    """Seconds after which a call is given up and the sample is Unscored (retryable)."""

    @classmethod
    def from_function(
        cls,
        name: str,
        function: Callable[[Sample, RewardContext], Coroutine[object, object, Verdict]],
        summary: str = "",
    ) -> "RewardSpec":
        """A spec for a plain `async def reward(sample, ctx)` without settings."""

        def factory(settings: Settings, setup: Setup) -> Reward:
            return function  # type: ignore[return-value]  # parameter names are the caller's own

        # The origin that is printed is the function's, not this factory's.
        return cls(name, update_wrapper(factory, function, updated=()), summary=summary)
