"""Reward: scores one finished sample.

Example:

    def exact(sample, ctx):                                 # `def`: in a worker process; `async def`: on the event loop
        return Score(float(sample.response.strip() == sample.label))

    RewardSpec.from_function("exact", exact, summary="1.0 when the stripped response equals the label")
"""

import enum
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from functools import update_wrapper
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles._isolation import CallSpec
from slime_core.roles._spec import Settings, Setup
from slime_core.roles.foreign_shape import misfit
from slime_core.sample import Sample
from slime_core.score import Verdict


class RewardGrain(enum.Enum):
    """What a reward is asked about."""

    EXECUTION = "execution"
    """Once about each execution of a generator, whatever it fanned out into: about the sample that is marked by
    `metadata["main"]`, else the last. All its samples have the answer."""
    SAMPLE = "sample"
    """About each sample."""


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
        """Return `Score`, `Unscored` or `NotApplicable`. A float, a bool or a scalar counts as a `Score`."""
        ...


@runtime_checkable
class SyncReward(Protocol):
    """The same as a plain function; the core isolates it, and everybody else sees a `Reward`."""

    def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Return `Score`, `Unscored` or `NotApplicable`."""
        ...


@runtime_checkable
class ChecksLabels(Protocol):
    """A reward that can tell from a row alone whether any response can earn full marks; optional.

    `slime plan` and the start of a run ask it about every row, so that a label which cannot be scored is found before
    training. Pure and fast: it reads the prompt, the label and the metadata, and runs where the reward runs.

    Example:

        def exact(sample, ctx): ...
        exact.check_label = lambda sample: None if isinstance(sample.label, str) else "the label is not a text"
    """

    def check_label(self, sample: Sample) -> str | None:
        """Return None if the gold answer, given as a response, earns full marks; else why not, in a few words.

        Args:
            sample: pending; `label` is None where the run reads no labels.
        """
        ...


@dataclass(frozen=True)
class RewardSpec(CallSpec[Reward | SyncReward]):
    """Offers a reward."""

    role: ClassVar[str] = "reward"

    grain: RewardGrain = RewardGrain.EXECUTION
    """What it is asked about."""
    models: Callable[[Settings], Collection[str]] = lambda settings: ()
    """Which models of the run it asks with these settings, by their names in `served_models`: `setup.models`."""

    @classmethod
    def from_function(
        cls,
        name: str,
        function: Callable[[Sample, RewardContext], Verdict | float | Coroutine[object, object, Verdict | float]],
        summary: str = "",
    ) -> "RewardSpec":
        """A spec for a plain `def` or `async def` without settings.

        Raises:
            TypeError: it cannot be called as a reward; the text has an adapter for functions of TRL, verl and others.
        """
        if (why := misfit(function, getattr(function, "__name__", name), "reward")) is not None:
            raise TypeError(why)

        def factory(settings: Settings, setup: Setup) -> Reward | SyncReward:
            return function  # type: ignore[return-value]  # parameter names are the caller's own

        # The origin that is printed is the function's, not this factory's.
        return cls(name, update_wrapper(factory, function, updated=()), summary=summary)
