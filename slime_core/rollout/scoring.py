"""Scores finished samples: combines all rewards into a weighted sum and counts failures against a limit.

A failed reward never becomes a score of 0. The reward `environment`, the generator's own score, is also here.

Example:

    heard = [await hear(samples, scoring, ctx) for samples in finished]
    await hear_together(heard, scoring.group_rewards, ctx)
    scored = [execution.close() for execution in heard]
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from slime_core.aio import cancelled_from_outside
from slime_core.catalog import check_verdict
from slime_core.catalog.checks import check_verdicts
from slime_core.errors import ContractError, RolloutError, said_by, shortened
from slime_core.processes import StartError
from slime_core.roles import GroupReward, Reward, RewardContext, RewardGrain
from slime_core.rollout.calls import within
from slime_core.rollout.policy import Scoring, UsedReward
from slime_core.sample import SCORE, Json, Sample, Status, scalar_reward
from slime_core.score import NotApplicable, Score, Unscored, Verdict

__all__ = [
    "MAIN",
    "execution_rewards",
    "executions",
    "main_of",
]


# Environment: the reward `environment`: what a sample's generator scored itself, weighed like any other reward.

ENVIRONMENT = "environment"
"""Its name."""
NO_SCORE = (
    "environment is the reward that the generator itself gives, and it gave none. Of an agent: the agent returned "
    'None, and a number is expected, or numbers by name, as {"score": 1.0, "steps": 0.4}; or choose a reward that '
    "judges the answer, such as math: a command returns none, and always needs one"
)
"""What to say of a sample that it alone was to score, and could not."""
NO_SCORE_AT_LIMIT = (
    "environment is the reward that the generator itself gives, and it gave none for a sample that was cut off at a "
    "limit of the run. Of an agent: it returned None; return what the sample is worth, as 0.0; or raise the limit: "
    "rollout_max_response_len, rollout_max_turns, or those in the generator's section"
)
"""The same of one that is TRUNCATED."""


class Environment:
    """Implements `slime_core.roles.Reward`."""

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """The generator's own score, its other parts as components."""
        return own_score(sample)


def own_score(sample: Sample) -> Score | NotApplicable:
    """What the generator scored, before the rewards have closed the sample."""
    if sample.reward is None:
        return NotApplicable()
    parts = sample.reward if isinstance(sample.reward, dict) else {}
    return Score(scalar_reward(sample), {name: value for name, value in parts.items() if name != SCORE})


# Executions: one drawn sample run once, whatever number of samples it fanned out into; they share `rollout_id`.

MAIN = "main"
"""Key of a sample's metadata: true for the one that its execution is judged by."""


def executions(samples: Iterable[Sample]) -> list[list[Sample]]:
    """Samples by execution, in order; one without `rollout_id` is one of its own."""
    found: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        key = ("sample", id(sample)) if sample.rollout_id is None else ("execution", sample.rollout_id)
        found.setdefault(key, []).append(sample)
    return list(found.values())


def main_of(siblings: Sequence[Sample]) -> Sample:
    """The one marked by `metadata["main"]`, else the last."""
    return next((sample for sample in siblings if sample.metadata.get(MAIN) is True), siblings[-1])


def execution_rewards(samples: Iterable[Sample]) -> list[float]:
    """The reward of each execution of which any sample is scored: that of its main one, if it is among them."""
    scored = executions(sample for sample in samples if sample.reward is not None)
    return [scalar_reward(main_of(siblings)) for siblings in scored]


# Hearing: what was said so far of one finished sample, until it is closed with a reward, or a reason why it has none.

LONGEST_REASON = 200
"""Characters of a reason, which becomes the name of a metric."""


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
    """Answers by `reward/<name>` and `group_reward/<name>`; what was said of its execution is with the main sample."""
    failure: Failure | None = None
    """Set when it has no reward."""


class Hearing:
    """What was said so far of one finished sample."""

    __slots__ = ("_applied", "_asked", "_keeps_parts", "_parts", "_total", "failure", "is_open", "sample", "verdicts")

    def __init__(self, sample: Sample, keeps_parts: bool = False) -> None:
        """Open, unless its generator failed or was interrupted."""
        self.sample = sample
        """The sample; its reward is the generator's own, if any, until `close`."""
        self.is_open = sample.status not in (Status.FAILED, Status.ABORTED)
        """Whether rewards have a say."""
        self.verdicts: dict[str, Verdict] = {}
        """Answers by metric."""
        self.failure: Failure | None = None
        """The first one that counts."""
        if sample.status is Status.FAILED:
            reason = sample.failure_reason or "generator_failed"
            self.failure = Failure(countable(reason), _told(reason, sample.metadata.get("failure_detail")))
        self._total, self._applied = 0.0, False
        self._keeps_parts, self._parts, self._asked = keeps_parts, dict[str, float](), list[str]()

    def add(
        self, metric: str, use: UsedReward[Reward | GroupReward], answer: Verdict | Failure, *, counted: bool = True
    ) -> None:
        """Enter one answer: `NotApplicable` adds nothing, and what fails or is Unscored with a weight costs the sum.

        It is not counted in the metrics where it was said of a sibling.
        """
        verdict = Unscored(answer.reason, answer.retryable, answer.detail) if isinstance(answer, Failure) else answer
        if isinstance(verdict, Unscored):  # it goes into every row, name and transcript that tells of the sample
            verdict = Unscored(verdict.reason[:LONGEST_REASON], verdict.retryable, shortened(verdict.detail))
        if counted:
            self.verdicts[f"{metric}/{use.name}"] = verdict
        self._asked.append(use.name)
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
        sample = self.sample
        if self.is_open and self.failure is None and not self._applied:
            asked = ", ".join(self._asked)
            why = NO_SCORE_AT_LIMIT if sample.status is Status.TRUNCATED else NO_SCORE
            own = f"; {why}" if ENVIRONMENT in self._asked else ""
            self.failure = Failure("no_reward_applies", f"none of {asked or 'no rewards'} scored it{own}")
        sample.reward = None
        if self.failure is not None:
            sample.status, sample.failure_reason = Status.FAILED, self.failure.reason
        elif self.is_open:
            sample.reward = {SCORE: self._total, **self._parts} if self._keeps_parts else self._total
        return Scored(sample, self.verdicts, self.failure)


class Execution:
    """The hearings of all samples that one execution fanned out into; what is said of the main one is said of all."""

    __slots__ = ("hearings", "main")

    def __init__(self, samples: Sequence[Sample], keeps_parts: bool) -> None:
        """Begin. Siblings without a score of the generator's own have the main sample's; they end as it did."""
        self.hearings = [Hearing(sample, keeps_parts) for sample in samples]
        """One a sample, in order."""
        chosen = main_of(samples)
        self.main = next(each for each in self.hearings if each.sample is chosen)
        """The main sample's."""
        for each in self.hearings:
            if each.is_open and each.sample.reward is None:
                each.sample.reward = chosen.reward
            if each.is_open and not self.main.is_open:
                each.is_open, each.failure = False, self.main.failure

    def add(self, metric: str, use: UsedReward[Reward | GroupReward], answer: Verdict | Failure) -> None:
        """Enter what was said of the main sample for all that are open."""
        for each in self.hearings:
            if each.is_open:
                each.add(metric, use, answer, counted=each is self.main)

    def close(self) -> list[Scored]:
        """What became of each sample; no verdict can be added any more."""
        return [each.close() for each in self.hearings]


def _told(reason: str, detail: Json) -> str:
    """What a generator wrote about a sample that it gave up."""
    told = f"the generator set Status.FAILED ({shortened(reason)})"
    return f"{told}: {shortened(str(detail)).strip()}" if detail else told


def countable(reason: str) -> str:
    """A reason as a part of a metric's name."""
    return "_".join(reason.split())[:LONGEST_REASON]


def _declined(use: UsedReward[Reward | GroupReward], verdict: Unscored) -> Failure:
    return Failure(f"{use.name}_{countable(verdict.reason)}", verdict.detail or verdict.reason)


# Scoring: all rewards of one execution's samples, alone and among their group, as a weighted sum.

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


# Allowance: how many samples of a wave may fail; one more, and there is no need to wait for the rest.

MOST_REASONS = 3
"""Reasons that an error text gives, the commonest first."""


class Failures:
    """Samples that failed, by reason, with the first of each."""

    def __init__(self) -> None:
        """No sample has failed yet."""
        self.counts: Counter[str] = Counter()
        """By reason."""
        self._first: dict[str, Failure] = {}

    def add(self, failure: Failure) -> None:
        """Count one more failed sample."""
        self.counts[failure.reason] += 1
        self._first.setdefault(failure.reason, failure)

    @property
    def total(self) -> int:
        """How many samples failed."""
        return self.counts.total()

    def copy(self) -> "Failures":
        """The same counts, which can be added to without changing these."""
        made = Failures()
        made.counts, made._first = self.counts.copy(), dict(self._first)
        return made

    def too_many(self, what: str, samples: int, limit: float, running: int = 0) -> RolloutError:
        """The error of `what`, in which more than `limit` of its samples failed, with the commonest reasons."""
        still = f" whatever becomes of the {running} that have not ended" if running else ""
        common = self.counts.most_common(MOST_REASONS)
        told = (f"{count} x {reason}: {self._first[reason].detail}" for reason, count in common)
        top = "".join("\n  " + each.replace("\n", "\n    ") for each in told)
        return RolloutError(
            f"{what}: {self.total} of {samples} samples failed, which is over --max-error-rate {limit:g}{still}:{top}"
        )


class Allowance:
    """Counts one wave's failures while it runs."""

    def __init__(self, what: str, drawn: int, limit: float, before: Failures | None = None, made: int = 0) -> None:
        """Begin a wave.

        Args:
            what: of what, such as "rollout 3".
            drawn: samples of this wave.
            limit: share of all samples that may fail.
            before: what failed in earlier waves; it is added to.
            made: samples of earlier waves.
        """
        self._what, self._drawn, self._limit = what, drawn, limit
        self._failures = Failures() if before is None else before
        self._made, self._ended = made, 0

    def ended(self, failure: Failure | None) -> None:
        """Count what one drawn sample became, into whatever number it fanned out.

        Raises:
            RolloutError: so many failed that the rollout cannot stay within its limit.
        """
        self._ended += 1
        if failure is not None:
            self._failures.add(failure)
        running, expected = self._drawn - self._ended, self._made + self._drawn
        if running and self._failures.total > self._limit * expected:
            raise self._failures.too_many(self._what, expected, self._limit, running)
