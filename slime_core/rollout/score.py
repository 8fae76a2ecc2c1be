"""Scoring: all rewards of one execution's samples, alone and among their group, as a weighted sum.

Example:

    heard = [await hear(samples, scoring, ctx) for samples in finished]
    await hear_together(heard, scoring.group_rewards, ctx)
    scored = [execution.close() for execution in heard]
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from slime_core.catalog.checks import check_verdict, check_verdicts
from slime_core.errors import ContractError, said_by
from slime_core.isolation import StartError
from slime_core.roles import GroupReward, Reward, RewardContext, RewardGrain
from slime_core.rollout.environment import ENVIRONMENT, own_score
from slime_core.rollout.hearing import Execution, Failure
from slime_core.rollout.policy import Scoring, UsedReward
from slime_core.rollout.waiting import within
from slime_core.sample import Sample
from slime_core.score import Score, Unscored, Verdict
from slime_core.tasks import cancelled_from_outside

AnswerT = TypeVar("AnswerT")
ATTEMPTS = 2
"""Calls that a retryable failure is worth."""


async def hear(samples: Sequence[Sample], scoring: Scoring, ctx: RewardContext) -> Execution:
    """Ask the rewards of the samples of one execution, one after another: about its main sample, or about each."""
    execution = Execution(samples, scoring.keeps_parts)
    for use in scoring.rewards:
        if use.grain is RewardGrain.EXECUTION:
            if execution.main.is_open:
                execution.add("reward", use, await _verdict(use, execution.main.sample, ctx))
            continue
        for hearing in execution.hearings:
            if hearing.is_open:
                hearing.add("reward", use, await _verdict(use, hearing.sample, ctx))
    if not scoring.reads_own:
        for hearing in execution.hearings:
            if isinstance(own := own_score(hearing.sample), Score):
                hearing.verdicts[f"reward/{ENVIRONMENT}"] = own  # measured, and of no weight
    return execution


async def hear_together(
    executions: Sequence[Execution], uses: Sequence[UsedReward[GroupReward]], ctx: RewardContext
) -> None:
    """Ask the group rewards about the main samples of a group's executions, or about all of its samples."""
    open_ones = [each for each in executions if each.main.is_open]
    hearings = [hearing for each in executions for hearing in each.hearings if hearing.is_open]
    for use in uses if open_ones else ():
        if use.grain is RewardGrain.EXECUTION:
            answers = await _verdicts(use, [each.main.sample for each in open_ones], ctx)
            for execution, answer in zip(open_ones, answers, strict=True):
                execution.add("group_reward", use, answer)
        else:
            answers = await _verdicts(use, [each.sample for each in hearings], ctx)
            for hearing, answer in zip(hearings, answers, strict=True):
                hearing.add("group_reward", use, answer)


async def _verdict(use: UsedReward[Reward], sample: Sample, ctx: RewardContext) -> Verdict | Failure:
    """One reward's answer; a retryable failure gets a second chance."""

    def check(returned: object) -> Verdict:
        return check_verdict(returned, plugin=use.plugin, sample=sample)

    for _ in range(ATTEMPTS):
        answer = await _ask(use, lambda: use.part(sample, ctx), check)
        if not (isinstance(answer, Failure | Unscored) and answer.retryable):
            break
    return answer


async def _verdicts(
    use: UsedReward[GroupReward], samples: Sequence[Sample], ctx: RewardContext
) -> Sequence[Verdict | Failure]:
    """One group reward's answers; a failure is every sample's, and one retryable answer asks again about all."""

    def check(returned: object) -> Sequence[Verdict]:
        return check_verdicts(returned, plugin=use.plugin, samples=samples)

    for _ in range(ATTEMPTS):
        answer = await _ask(use, lambda: use.part(samples, ctx), check)
        answers = [answer] * len(samples) if isinstance(answer, Failure) else answer
        if not any(isinstance(each, Failure | Unscored) and each.retryable for each in answers):
            break
    return answers


async def _ask(
    use: UsedReward[Reward | GroupReward],
    call: Callable[[], Awaitable[object]],
    check: Callable[[object], AnswerT],
) -> AnswerT | Failure:
    """One call of a scorer: its checked answer, or why there is none."""
    try:
        return check(await within(call(), f"reward {use.name}"))
    except TimeoutError as error:
        return Failure(f"{use.name}_timeout", said_by(error), error, retryable=True)
    except asyncio.CancelledError:
        if cancelled_from_outside():
            raise
        return Failure(f"{use.name}_cancelled", "the reward cancelled itself")
    except StartError:
        raise  # no call of this reward will ever be answered
    except ContractError as error:
        return Failure(f"{use.name}_contract", said_by(error), error)
    except Exception as error:
        return Failure(f"{use.name}_{type(error).__name__}", said_by(error), error)
