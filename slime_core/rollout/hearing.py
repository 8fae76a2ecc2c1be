"""Hearing: what was said so far of one finished sample, until it is closed with a reward, or a reason why it has none.

A failed scorer is never 0.

Example:

    hearing = Hearing(sample)
    hearing.add("reward", use, Score(1.0))
    hearing.close().sample.reward
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slime_core.errors import shortened
from slime_core.roles import GroupReward, Reward
from slime_core.rollout.environment import ENVIRONMENT, NO_SCORE, NO_SCORE_AT_LIMIT
from slime_core.rollout.executions import main_of
from slime_core.rollout.policy import UsedReward
from slime_core.sample import SCORE, Json, Sample, Status
from slime_core.score import Score, Unscored, Verdict

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
