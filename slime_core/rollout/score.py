"""Scoring: all rewards of one finished sample, alone and among its group, as a weighted sum.

A failed scorer is never 0: the sample then has no reward, and a `Failure` says why.

Example:

    hearings = [await hear(sample, scoring, ctx, waiting) for sample in finished]
    await hear_together(hearings, scoring.group_rewards, ctx, waiting)
    scored = [hearing.close() for hearing in hearings]
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakSet

from slime_core.catalog.checks import check_verdict, check_verdicts
from slime_core.errors import ContractError, said_by, shortened
from slime_core.isolation import StartError
from slime_core.roles import RewardContext
from slime_core.rollout.policy import GroupRewardUse, RewardUse, Scoring
from slime_core.rollout.waiting import Waiting, within
from slime_core.sample import SCORE, Sample, Status
from slime_core.score import Score, Unscored, Verdict

AnswerT = TypeVar("AnswerT")
_CANCELLED: "WeakSet[asyncio.Task[object]]" = WeakSet()
LONGEST_REASON = 200
"""Characters of a reason, which becomes the name of a metric."""
ATTEMPTS = 2
"""Calls that a retryable failure is worth."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a sample carries no training signal."""

    reason: str
    """Short and countable; becomes `rollout/errors/<reason>`."""
    detail: str = ""
    """What happened to the first such sample, for error texts."""
    cause: Exception | None = None
    """The exception behind it, for its traceback."""
    retryable: bool = False
    """Whether asking again may succeed."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A finished sample and what the rewards said of it."""

    sample: Sample
    """With its reward, if it has one."""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """Answers by `reward/<name>` and `group_reward/<name>`; none if generation failed or the generator scored."""
    failure: Failure | None = None
    """Set when it has no reward."""


class Hearing:
    """What was said so far of one finished sample, until `close` sums it up."""

    __slots__ = ("_applied", "_keeps_parts", "_parts", "_total", "failure", "is_open", "sample", "verdicts")

    def __init__(self, sample: Sample, keeps_parts: bool = False) -> None:
        """Open, unless its generator already scored it (`sample.reward`), failed or was interrupted."""
        self.sample = sample
        """The sample; only `close` changes it."""
        self.is_open = sample.status not in (Status.FAILED, Status.ABORTED) and sample.reward is None
        """Whether rewards have a say."""
        self.verdicts: dict[str, Verdict] = {}
        """Answers by metric."""
        self.failure: Failure | None = None
        """The first one that counts."""
        if sample.status is Status.FAILED:
            self.failure = Failure("generator_failed", "the generator set Status.FAILED")
        self._total, self._applied = 0.0, False
        self._keeps_parts, self._parts = keeps_parts, dict[str, float]()

    def add(self, metric: str, use: RewardUse | GroupRewardUse, answer: Verdict | Failure) -> None:
        """Enter one answer: `NotApplicable` adds nothing, and what fails or is Unscored with a weight costs the sum."""
        verdict = Unscored(answer.reason, answer.retryable, answer.detail) if isinstance(answer, Failure) else answer
        if isinstance(verdict, Unscored):  # it goes into every row, name and transcript that tells of the sample
            verdict = Unscored(verdict.reason[:LONGEST_REASON], verdict.retryable, shortened(verdict.detail))
        self.verdicts[f"{metric}/{use.name}"] = verdict
        self._parts[use.name] = 0.0
        if isinstance(verdict, Score):
            self._parts[use.name] = verdict.value
            self._parts |= {f"{use.name}/{part}": value for part, value in verdict.components.items()}
            self._total += use.weight * verdict.value
            self._applied = self._applied or use.weight != 0.0
        elif isinstance(verdict, Unscored) and use.weight != 0.0 and self.failure is None:
            self.failure = answer if isinstance(answer, Failure) else _declined(use, verdict)

    def close(self) -> Scored:
        """Give the sample its reward, or the reason why it has none; a sample that no reward applies to has none."""
        if self.is_open:
            if self.failure is None and not self._applied:
                asked = ", ".join(each.partition("/")[2] for each in self.verdicts)
                self.failure = Failure("no_reward_applies", f"none of {asked or 'no rewards'} scored it")
            if self.failure is None:
                self.sample.reward = {SCORE: self._total, **self._parts} if self._keeps_parts else self._total
            else:
                self.sample.status = Status.FAILED
        return Scored(self.sample, self.verdicts, self.failure)


async def hear(sample: Sample, scoring: Scoring, ctx: RewardContext, waiting: Waiting) -> Hearing:
    """Ask the rewards of a sample, one after another."""
    hearing = Hearing(sample, scoring.keeps_parts)
    if hearing.is_open:
        for use in scoring.rewards:
            hearing.add("reward", use, await _verdict(use, sample, ctx, waiting))
    return hearing


async def hear_together(
    hearings: Sequence[Hearing], uses: Sequence[GroupRewardUse], ctx: RewardContext, waiting: Waiting
) -> None:
    """Ask the group rewards about all finished samples of a group; a generator's own score stands beside them."""
    present = [each for each in hearings if each.sample.status not in (Status.FAILED, Status.ABORTED)]
    if not any(each.is_open for each in present):
        return
    for use in uses:
        answers = await _verdicts(use, [each.sample for each in present], ctx, waiting)
        for hearing, answer in zip(present, answers, strict=True):
            if hearing.is_open:
                hearing.add("group_reward", use, answer)


async def _verdict(use: RewardUse, sample: Sample, ctx: RewardContext, waiting: Waiting) -> Verdict | Failure:
    """One reward's answer; a retryable failure gets a second chance."""

    def check(returned: object) -> Verdict:
        return check_verdict(returned, plugin=use.plugin, sample=sample)

    for _ in range(ATTEMPTS):
        answer = await _ask(use, lambda: use.reward(sample, ctx), check, waiting)
        if not (isinstance(answer, Failure | Unscored) and answer.retryable):
            break
    return answer


async def _verdicts(
    use: GroupRewardUse, samples: Sequence[Sample], ctx: RewardContext, waiting: Waiting
) -> Sequence[Verdict | Failure]:
    """One group reward's answers; a failure is every sample's, and one retryable answer asks again about all."""

    def check(returned: object) -> Sequence[Verdict]:
        return check_verdicts(returned, plugin=use.plugin, samples=samples)

    for _ in range(ATTEMPTS):
        answer = await _ask(use, lambda: use.reward(samples, ctx), check, waiting)
        answers = [answer] * len(samples) if isinstance(answer, Failure) else answer
        if not any(isinstance(each, Failure | Unscored) and each.retryable for each in answers):
            break
    return answers


async def _ask(
    use: RewardUse | GroupRewardUse,
    call: Callable[[], Awaitable[object]],
    check: Callable[[object], AnswerT],
    waiting: Waiting,
) -> AnswerT | Failure:
    """One call of a scorer: its checked answer, or why there is none."""
    try:
        return check(await within(call(), waiting, f"reward {use.name}"))
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


def _declined(use: RewardUse | GroupRewardUse, verdict: Unscored) -> Failure:
    return Failure(f"{use.name}_{'_'.join(verdict.reason.split())}", verdict.detail or verdict.reason)


def cancel(task: asyncio.Task[object]) -> None:
    """Cancel a task so that it knows who did: not its plugin."""
    _CANCELLED.add(task)
    task.cancel()


def cancelled_from_outside() -> bool:
    """Whether this task is to end; if not, its plugin cancelled it, or some task of its own, and that is undone."""
    task = asyncio.current_task()
    if task is None or task in _CANCELLED:
        return True
    while task.cancelling():
        task.uncancel()
    return False
