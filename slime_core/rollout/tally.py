"""Tally: what a rollout has come to so far: kept and dropped groups, failures, metrics under slime's names.

Everything is added up in the order of the draws, so that figures do not depend on who finished first.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from slime_core.errors import RolloutError
from slime_core.roles import Removal
from slime_core.rollout.allowance import Allowance, Failures
from slime_core.rollout.executions import execution_rewards
from slime_core.rollout.hearing import Scored
from slime_core.rollout.sample_metrics import (
    caching,
    mean,
    measured_metrics,
    non_generation,
    pass_rates,
    sample_metrics,
    speculation,
    turns,
)
from slime_core.rollout.work import RunGroup, failure_of
from slime_core.sample import Group, GroupId
from slime_core.score import NotApplicable, Score

COUNTS = ("/zero_std/", "/dynamic_filter/", "/sample_filter/", "/errors/")
"""Parts of the names of metrics that count."""


class Tally:
    """Accounts of one rollout, or of one evaluation."""

    def __init__(self, what: str) -> None:
        """Nothing happened yet; `what` is its name in error texts: "rollout 3"."""
        self._what = what
        self.kept: list[Group] = []
        """In order of the draws."""
        self.dropped: list[Group] = []
        """In order of the draws."""
        self.reasons: dict[GroupId, str] = {}
        """Why each dropped group was."""
        self.failed: list[Group] = []
        """Of groups that go on without them, the samples that failed."""
        self._samples = 0  # by execution, as failures are
        self._failures = Failures()
        self._rewards: defaultdict[str, list[float]] = defaultdict(list)
        self._not_applicable: Counter[str] = Counter()
        self._removed: Counter[str] = Counter()
        self._measured: defaultdict[str, list[float]] = defaultdict(list)
        self._elsewhere: list[float] = []

    def add_samples(self, groups: Iterable[RunGroup]) -> None:
        """Count what became of the samples of a wave, by execution."""
        for group in groups:
            for execution in group.executions:
                self._samples += 1
                if (failure := failure_of(execution)) is not None:
                    self._failures.add(failure)
                for scored in execution:
                    self._add_verdicts(scored)
            for name, values in group.measured.items():
                self._measured[name] += values
            self._elsewhere += group.elsewhere

    def _add_verdicts(self, scored: Scored) -> None:
        for metric, verdict in scored.verdicts.items():
            if isinstance(verdict, Score):
                self._rewards[metric].append(verdict.value)
                for part, number in verdict.components.items():
                    self._rewards[f"{metric}/{part}"].append(number)
            elif isinstance(verdict, NotApplicable):
                self._not_applicable[metric] += 1

    def drop(self, group: Group, reason: str) -> None:
        """Account for a group that is not trained on."""
        self.dropped.append(group)
        self.reasons[group.id] = reason

    def remove(self, removals: Iterable[Removal]) -> None:
        """Take samples of kept groups out of training; watchers that were told of the groups keep theirs as told."""
        by_group: defaultdict[GroupId, set[int]] = defaultdict(set)
        for removal in removals:
            by_group[removal.group].add(removal.position)
            self._removed[removal.reason] += 1
        self.kept = [_without(group, by_group[group.id]) if group.id in by_group else group for group in self.kept]

    def check_error_rate(self, limit: float, expected: int = 0) -> None:
        """Stop a rollout in which too much fails.

        Args:
            limit: share of the samples that may fail.
            expected: samples that the rollout will come to, where more are to come.

        Raises:
            RolloutError: more failed; names the commonest reasons.
        """
        samples = max(self._samples, expected)
        if self._failures.total > limit * samples:
            raise self._failures.too_many(self._what, samples, limit, samples - self._samples)

    def allowance(self, drawn: int, limit: float) -> Allowance:
        """What a wave of so many samples is counted against while it runs."""
        return Allowance(self._what, drawn, limit, self._failures.copy(), self._samples)

    def give_up(self, want: int, waves: int) -> RolloutError:
        """The error of a rollout that came up short, with a histogram of why groups were dropped."""
        counts = Counter(self.reasons.values()).most_common()
        histogram = "".join(f"\n  {count} x {reason}" for reason, count in counts) or "\n  none: all were interrupted"
        return RolloutError(
            f"{self._what}: {waves} waves of draws kept {len(self.kept)} of the {want} groups wanted; dropped were:"
            f"{histogram}\nGive prompts that are neither too easy nor too hard for the model, choose another "
            f"--group-filter, or allow more with --max-filter-waves"
        )

    def metrics(self) -> dict[str, float]:
        """The rollout's metrics; those of lengths and rewards are over kept groups, as in slime."""
        samples = [sample for group in self.kept for sample in group.samples if sample.reward is not None]
        found = sample_metrics("rollout/", samples)
        if samples:
            rewards = [reward for group in self.kept for reward in execution_rewards(group.samples)]
            found["rollout/raw_reward"] = found["rollout/rewards"] = mean(rewards)
        found |= {f"rollout/zero_std/count_{reward}": float(count) for reward, count in _zero_std(self.kept).items()}
        drops = Counter(self.reasons.values())
        found |= {f"rollout/dynamic_filter/drop_{reason}": float(count) for reason, count in sorted(drops.items())}
        found |= {f"rollout/{metric}": mean(values) for metric, values in sorted(self._rewards.items())}
        for metric, count in sorted(self._not_applicable.items()):
            found[f"rollout/{metric}/not_applicable"] = float(count)
        found |= {f"rollout/sample_filter/{reason}": float(count) for reason, count in sorted(self._removed.items())}
        found |= {f"rollout/errors/{reason}": float(count) for reason, count in sorted(self._failures.counts.items())}
        found |= pass_rates("passrate/", [execution_rewards(group.samples) for group in self.kept]) | turns(samples)
        found |= speculation(samples) | caching(samples) | non_generation(self._elsewhere)
        return found | measured_metrics("rollout/", self._measured)


def joined_metrics(*parts: tuple[Mapping[str, float], int]) -> dict[str, float]:
    """The metrics of a rollout made in parts, each with its number of groups.

    Counts are summed and extremes compared. Other figures are means weighted by the groups; that of a median or a
    percentile is not exact.
    """
    found: dict[str, float] = {}
    for name in dict.fromkeys(name for metrics, _ in parts for name in metrics):
        values = [(metrics[name], groups) for metrics, groups in parts if name in metrics]
        if name.endswith("/not_applicable") or any(each in name for each in COUNTS):
            found[name] = sum(value for value, _ in values)
        elif name.endswith(("max", "min")):
            found[name] = (max if name.endswith("max") else min)(value for value, _ in values)
        else:
            groups = sum(groups for _, groups in values)
            found[name] = sum(value * (count / groups if groups else 1 / len(values)) for value, count in values)
    return found


def _without(group: Group, positions: Collection[int]) -> Group:
    samples = [
        replace(sample, remove_sample=True) if position in positions else sample
        for position, sample in enumerate(group.samples)
    ]
    return replace(group, samples=samples)


def _zero_std(groups: Iterable[Group]) -> dict[str, int]:
    """Groups whose rewards are all alike, by reward."""
    alike = [rewards[0] for group in groups if (rewards := group.rewards) and min(rewards) == max(rewards)]
    return dict(sorted(Counter(str(round(float(reward), 1)) for reward in alike).items()))
