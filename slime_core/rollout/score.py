"""score: all of a run's rewards on one finished sample, as a weighted sum with a time limit on each.

A failed scorer is never 0: the sample then has no reward, and a `Failure` says why.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slime_core.catalog.checks import check_verdict
from slime_core.errors import ContractError
from slime_core.roles import RewardContext
from slime_core.rollout.policy import RewardUse
from slime_core.rollout.waiting import Waiting, within
from slime_core.sample import Sample, Status
from slime_core.score import Score, Unscored, Verdict


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a sample carries no training signal."""

    reason: str
    """Short and countable; becomes `rollout/errors/<reason>`."""
    detail: str = ""
    """What happened to the first such sample, for error texts."""
    cause: Exception | None = None
    """The exception behind it, for its traceback."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A finished sample and what the rewards said of it."""

    sample: Sample
    """With its reward, if it has one."""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """Answers by reward; empty when generation failed or the generator scored by itself."""
    failure: Failure | None = None
    """Set when it has no reward."""


async def score(sample: Sample, uses: Sequence[RewardUse], ctx: RewardContext, waiting: Waiting) -> Scored:
    """Score a sample, unless its generator already did (`sample.reward`) or failed.

    `NotApplicable` adds nothing to the sum; any `Unscored` of non-zero weight leaves the sample without a reward, and
    so does a sample that no reward applies to.
    """
    if sample.status is Status.FAILED:
        return Scored(sample, failure=Failure("generator_failed", "the generator set Status.FAILED"))
    if sample.status is Status.ABORTED or sample.reward is not None:
        return Scored(sample)
    verdicts: dict[str, Verdict] = {}
    failure: Failure | None = None
    total, applied = 0.0, False
    for use in uses:
        verdict, failed = await _ask_twice(use, sample, ctx, waiting)
        verdicts[use.name] = verdict
        if isinstance(verdict, Score):
            total += use.weight * verdict.value
            applied = applied or use.weight != 0.0
        elif isinstance(verdict, Unscored) and use.weight != 0.0:
            failure = failure or failed
    if failure is None and not applied:
        failure = Failure("no_reward_applies", f"none of {', '.join(verdicts) or 'no rewards'} scored it")
    if failure is None:
        sample.reward = total
    else:
        sample.status = Status.FAILED
    return Scored(sample, verdicts, failure)


async def _ask_twice(
    use: RewardUse, sample: Sample, ctx: RewardContext, waiting: Waiting
) -> tuple[Verdict, Failure | None]:
    """One reward's answer; a retryable failure gets a second chance."""
    verdict, failure = await _ask(use, sample, ctx, waiting)
    if isinstance(verdict, Unscored) and verdict.retryable:
        verdict, failure = await _ask(use, sample, ctx, waiting)
    return verdict, failure


async def _ask(use: RewardUse, sample: Sample, ctx: RewardContext, waiting: Waiting) -> tuple[Verdict, Failure | None]:
    try:
        answer = await within(use.reward(sample, ctx), use.timeout_s, waiting, f"reward {use.name}")
        verdict = check_verdict(answer, plugin=use.plugin, sample=sample)
    except TimeoutError as error:
        failure = Failure(f"{use.name}_timeout", str(error) or f"no answer in {use.timeout_s:g} s", error)
        return Unscored(failure.reason, retryable=True), failure
    except asyncio.CancelledError:
        if cancelled_from_outside():
            raise
        failure = Failure(f"{use.name}_cancelled", "the reward cancelled itself")
    except ContractError as error:
        failure = Failure(f"{use.name}_contract", str(error), error)
    except Exception as error:
        failure = Failure(f"{use.name}_{type(error).__name__}", str(error), error)
    else:
        if isinstance(verdict, Unscored):
            return verdict, Failure(f"{use.name}_{'_'.join(verdict.reason.split())}", verdict.reason)
        return verdict, None
    return Unscored(failure.reason), failure


def cancelled_from_outside() -> bool:
    """Whether somebody cancelled this task, rather than a plugin some task of its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
