"""Scores finished samples: combines all rewards into a weighted sum, counts failures, and filters scored groups.

A failed reward never becomes a score of 0. The reward `environment`, which reads the generator's score, is also here.

Example:

    executions = [await score_execution(samples, scoring, ctx) for samples in finished]
    await score_group(executions, scoring.group_rewards, ctx)
    rewards = [scored.sample.reward for execution in executions for scored in execution.close()]
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, cast

from slime_core.aio import cancelled_from_outside
from slime_core.catalog import check_verdict
from slime_core.catalog.checks import check_verdicts
from slime_core.errors import ContractError, RolloutError, error_text, shortened
from slime_core.processes import StartError
from slime_core.roles import (
    GroupReward,
    Reward,
    RewardContext,
)
from slime_core.rollout.calls import set_wait
from slime_core.rollout.policy import Scoring, UsedReward
from slime_core.sample import SCORE, Sample, Status, scalar_reward
from slime_core.score import NotApplicable, Score, Unscored, Verdict

ENVIRONMENT = "environment"
"""Name of the reward that reads a generator's own score."""
NO_SCORE = (
    "environment is the generator's own score, and the generator returned none. An agent returns a number, or "
    'numbers by name, as {"score": 1.0, "steps": 0.4}; a command returns none: choose a reward that judges the answer, '
    "such as math"
)
"""Why a sample without its generator's score has no reward."""
NO_SCORE_AT_LIMIT = (
    "environment is the generator's own score, and the generator returned none for a sample that a limit of the run "
    "cut off. Return a score, such as 0.0; or raise the limit: rollout_max_response_len, rollout_max_turns, or a limit "
    "in the generator's section"
)
"""The same for a truncated sample."""


class Environment:
    """The reward `environment`: the generator's own score. Its other parts become components."""

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        return own_score(sample)


def own_score(sample: Sample) -> Score | NotApplicable:
    """Return the generator's score of a sample that is not closed yet."""
    if sample.reward is None:
        return NotApplicable()
    parts = sample.reward if isinstance(sample.reward, dict) else {}
    return Score(scalar_reward(sample), {name: value for name, value in parts.items() if name != SCORE})


# Executions: one run of one drawn sample. Samples that one execution fanned out into share `rollout_id`.

MAIN = "main"
"""Metadata key; true for the sample that stands for its execution."""


def executions(samples: Iterable[Sample]) -> list[list[Sample]]:
    """Group samples by execution, in order. A sample without `rollout_id` is its own execution."""
    found: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        key = ("sample", id(sample)) if sample.rollout_id is None else ("execution", sample.rollout_id)
        found.setdefault(key, []).append(sample)
    return list(found.values())


def main_of(siblings: Sequence[Sample]) -> Sample:
    """Return the sample marked by `metadata["main"]`, else the last one."""
    return next((sample for sample in siblings if sample.metadata.get(MAIN) is True), siblings[-1])


def execution_rewards(samples: Iterable[Sample]) -> list[float]:
    """Return one reward for each execution with a scored sample: the reward of its main scored sample."""
    scored = executions(sample for sample in samples if sample.reward is not None)
    return [scalar_reward(main_of(siblings)) for siblings in scored]


# Verdicts on samples and executions, which `close` turns into a reward or a failure.

MAX_REASON = 200
"""Characters of a reason, which becomes part of a metric's name."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a sample carries no training signal."""

    reason: str
    """Short and countable; the metric is `rollout/errors/<reason>`."""
    detail: str = ""
    """What happened to the first such sample, for errors."""
    cause: Exception | None = None
    """The exception that caused it, for its traceback."""
    retryable: bool = False
    """Whether a retry may succeed."""

    @classmethod
    def of(cls, source: str, error: Exception) -> Self:
        """The failure of a sample by an error of `source`, such as "generator" or a reward's name."""
        is_timeout = isinstance(error, TimeoutError)
        kind = "timeout" if is_timeout else "contract" if isinstance(error, ContractError) else type(error).__name__
        return cls(f"{source}_{kind}", error_text(error), error, retryable=is_timeout)


class ScoredSample:
    """One finished sample and its verdicts; `close` sets its reward."""

    __slots__ = (
        "_applied",
        "_keeps_parts",
        "_parts",
        "_rewards",
        "_total",
        "failure",
        "is_scorable",
        "sample",
        "verdicts",
    )

    def __init__(self, sample: Sample, keeps_parts: bool = False, failure: Failure | None = None) -> None:
        """Start without verdicts. `failure` is the generator's, if the sample has none."""
        self.sample = sample
        """The sample. Until `close`, its reward is the generator's own score, if any."""
        self.is_scorable = failure is None and sample.status not in (Status.FAILED, Status.ABORTED)
        """Whether rewards score it: it did not fail and was not interrupted."""
        self.verdicts: dict[str, Verdict] = {}
        """By `reward/<name>` and `group_reward/<name>`. The main sample has the verdicts on its execution."""
        self.failure = failure
        """Why it has no reward: the first failure with a weight."""
        if failure is None and sample.status is Status.FAILED:
            reason, detail = sample.failure_reason or "generator_failed", sample.metadata.get("failure_detail")
            text = f"the generator set Status.FAILED ({shortened(reason)})"
            self.failure = Failure(countable(reason), f"{text}: {shortened(str(detail)).strip()}" if detail else text)
        self._total, self._applied = 0.0, False
        self._keeps_parts, self._parts, self._rewards = keeps_parts, dict[str, float](), list[str]()

    def add(
        self, metric: str, use: UsedReward[Reward | GroupReward], answer: Verdict | Failure, *, counted: bool = True
    ) -> None:
        """Add one verdict. A failure or `Unscored` of a reward with a weight leaves the sample without a reward.

        `counted=False` keeps a verdict copied from the main sample out of metrics.
        """
        verdict = Unscored(answer.reason, answer.retryable, answer.detail) if isinstance(answer, Failure) else answer
        if isinstance(verdict, Unscored):  # it becomes part of metric names, rows and transcripts
            verdict = Unscored(verdict.reason[:MAX_REASON], verdict.retryable, shortened(verdict.detail))
        if counted:
            self.verdicts[f"{metric}/{use.name}"] = verdict
        self._rewards.append(use.name)
        self._parts[use.name] = 0.0
        if isinstance(verdict, Score):
            self._parts[use.name] = verdict.value
            self._parts |= {f"{use.name}/{part}": value for part, value in verdict.components.items()}
            self._total += use.weight * verdict.value
            self._applied = self._applied or use.weight != 0.0
        elif isinstance(verdict, Unscored) and use.weight != 0.0 and self.failure is None:
            declined = Failure(f"{use.name}_{countable(verdict.reason)}", verdict.detail or verdict.reason)
            self.failure = answer if isinstance(answer, Failure) else declined

    def close(self) -> Self:
        """Set the sample's reward, or the reason why it has none."""
        sample = self.sample
        if self.is_scorable and self.failure is None and not self._applied:
            why = NO_SCORE_AT_LIMIT if sample.status is Status.TRUNCATED else NO_SCORE
            own = f"; {why}" if ENVIRONMENT in self._rewards else ""
            self.failure = Failure(
                "no_reward_applies", f"none of {', '.join(self._rewards) or 'no rewards'} scored it{own}"
            )
        sample.reward = None
        if self.failure is not None:
            sample.status, sample.failure_reason = Status.FAILED, self.failure.reason
        elif self.is_scorable:
            sample.reward = {SCORE: self._total, **self._parts} if self._keeps_parts else self._total
        return self


class Execution:
    """The samples of one execution and their verdicts. A verdict on the main sample holds for all."""

    __slots__ = ("is_closed", "main", "measured", "non_generation_s", "scored")

    def __init__(self, samples: Sequence[Sample], keeps_parts: bool = False, failure: Failure | None = None) -> None:
        """A sample without a score inherits the main sample's; if the main sample cannot be scored, none is.

        `failure` is the generator's.
        """
        self.is_closed = False
        """Whether its samples have their final rewards."""
        self.measured: Mapping[str, Sequence[float]] = {}
        """Values that its generator measured, by `<generator>/<name>`."""
        self.non_generation_s = 0.0
        """Seconds spent in tools and environments."""
        self.scored = [ScoredSample(sample, keeps_parts, failure) for sample in samples]
        """One per sample, in order."""
        chosen = main_of(samples)
        self.main = next(each for each in self.scored if each.sample is chosen)
        """The entry of the main sample."""
        for each in self.scored:
            if each.is_scorable and each.sample.reward is None:
                each.sample.reward = chosen.reward
            if each.is_scorable and not self.main.is_scorable:
                each.is_scorable, each.failure = False, self.main.failure

    def add(self, metric: str, use: UsedReward[Reward | GroupReward], answer: Verdict | Failure) -> None:
        """Add a verdict on the main sample to all open samples."""
        for each in self.scored:
            if each.is_scorable:
                each.add(metric, use, answer, counted=each is self.main)

    @property
    def failure(self) -> Failure | None:
        """The first failure among its samples; with one, the execution counts as failed."""
        return next((each.failure for each in self.scored if each.failure is not None), None)

    def close(self) -> list[ScoredSample]:
        """Close each sample and return them."""
        self.is_closed = True
        return [each.close() for each in self.scored]


def countable(reason: str) -> str:
    """Return a reason as part of a metric name."""
    return "_".join(reason.split())[:MAX_REASON]


# Calling the rewards: on one execution, then on a group.

ATTEMPTS = 2
"""Most calls when failures are retryable."""


async def score_execution(samples: Sequence[Sample], scoring: Scoring, ctx: RewardContext) -> Execution:
    """Score one execution with each reward in turn, on its main sample or on each sample."""
    execution = Execution(samples, scoring.keeps_parts)
    for use in scoring.rewards:
        for scored in execution.scored if use.each_sample else [execution.main]:
            if scored.is_scorable:
                (answer,) = await _call(use, [scored.sample], ctx, group=False)
                (scored if use.each_sample else execution).add("reward", use, answer)
    if not scoring.reads_own:
        for scored in execution.scored:
            if isinstance(own := own_score(scored.sample), Score):
                scored.verdicts[f"reward/{ENVIRONMENT}"] = own  # a metric without weight
    return execution


async def score_group(
    executions: Sequence[Execution], uses: Sequence[UsedReward[GroupReward]], ctx: RewardContext
) -> None:
    """Score a group with each group reward, on the executions' main samples or on all samples."""
    mains = [(each, each.main.sample) for each in executions if each.main.is_scorable]
    alone = [(scored, scored.sample) for each in executions for scored in each.scored if scored.is_scorable]
    for use in uses if mains else ():
        targets: Sequence[tuple[Execution | ScoredSample, Sample]] = alone if use.each_sample else mains
        answers = await _call(use, [sample for _, sample in targets], ctx, group=True)
        for (one, _), answer in zip(targets, answers, strict=True):
            one.add("group_reward", use, answer)


async def _call(
    use: UsedReward[Reward] | UsedReward[GroupReward], samples: Sequence[Sample], ctx: RewardContext, *, group: bool
) -> Sequence[Verdict | Failure]:
    """Return checked verdicts on one sample or a group, with retries. A failed call is a failure of each sample."""
    answers: Sequence[Verdict | Failure] = ()
    for _ in range(ATTEMPTS):
        try:
            set_wait(f"reward {use.name}")
            if group:
                returned: object = await cast(Awaitable[object], cast(GroupReward, use.part)(samples, ctx))
                answers = check_verdicts(returned, plugin=use.plugin, samples=samples)
            else:
                returned = await cast(Awaitable[object], cast(Reward, use.part)(samples[0], ctx))
                answers = [check_verdict(returned, plugin=use.plugin, sample=samples[0])]
        except asyncio.CancelledError:
            if cancelled_from_outside():
                raise
            return [Failure(f"{use.name}_cancelled", "the reward cancelled itself")] * len(samples)
        except StartError:
            raise  # every later call of this reward would fail too
        except Exception as error:
            answers = [Failure.of(use.name, error)] * len(samples)
        if not any(isinstance(each, Failure | Unscored) and each.retryable for each in answers):
            break
    return answers


MAX_REASONS = 3
"""Most reasons in an error, the most common first."""


class ErrorBudget:
    """Counts finished executions, and failed ones by reason, against the limit of a rollout."""

    def __init__(self, what: str) -> None:
        """Start at zero; `what` names the rollout in errors, as "rollout 3"."""
        self.counts: Counter[str] = Counter()
        """Failed executions by reason."""
        self._what, self._ended = what, 0
        self._first: dict[str, Failure] = {}
        self._limit, self._expected = 1.0, 0

    def expect(self, drawn: int, limit: float) -> None:
        """Set the limit for `add`: largest share of failures among the executions so far and `drawn` more."""
        self._limit, self._expected = limit, self._ended + drawn

    def add(self, failure: Failure | None) -> None:
        """Count one finished execution, and its failure if it has one.

        Raises:
            RolloutError: too many of the expected executions have failed already.
        """
        self._ended += 1
        if failure is not None:
            self.fail(failure)

    def fail(self, failure: Failure) -> None:
        """Count the failure of a finished execution; errors as in `add`."""
        self.counts[failure.reason] += 1
        self._first.setdefault(failure.reason, failure)
        if self._ended < self._expected:
            self.check(self._limit, self._expected)

    def check(self, limit: float, expected: int = 0) -> None:
        """Check the failures against a share of the executions so far, or of `expected` if that is more.

        Raises:
            RolloutError: too many failed; the message lists the most common reasons.
        """
        samples, failed = max(self._ended, expected), self.counts.total()
        if failed <= limit * samples:
            return
        running = samples - self._ended
        early = f" Stopped early; {running} had not ended." if running else ""
        common = (f"{n} x {why}: {self._first[why].detail}" for why, n in self.counts.most_common(MAX_REASONS))
        top = "".join("\n  " + each.replace("\n", "\n    ") for each in common)
        raise RolloutError(
            f"{self._what}: {failed} of {samples} samples failed; --max-error-rate {limit:g} allows "
            f"{int(limit * samples)}.{early} Most common reasons:{top}"
        )
