"""Metrics of a rollout: lengths, truncation, repetition, pass rates, kept and dropped groups, length bias.

Names are slime's. Sums follow the order of the draws, so metrics do not depend on which sample finishes first.
Metrics that depend on the machine or its load have the prefix `perf/`.

Example:

    sample_metrics("rollout/", samples)["rollout/repetition_frac"]
    pass_rates("passrate/", [[1.0, 0.0], [0.0, 0.0]])           # {"passrate/pass@1": 0.25, "passrate/pass@2": 0.5}
"""

import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slime_core.errors import RolloutError
from slime_core.roles import Removal
from slime_core.rollout.runner import GroupProgress
from slime_core.rollout.scoring import ErrorBudget, execution_rewards
from slime_core.sample import Group, GroupId, Sample, Status
from slime_core.score import NotApplicable, Score
from slime_core.stats import percentile

PASSING_REWARD = 1.0
"""Least reward with which a sample passes, for pass@k."""
ROUNDS = "round_number"
"""Metadata key of a sample's number of turns, as in slime."""
REPETITION_WINDOW = 10_000
"""Characters at a response's end that are checked for repetition, as in slime."""
REPETITION_RATIO = 10.0
"""Compression ratio of zlib that counts as repetition, as in slime."""


def sample_metrics(prefix: str, samples: Sequence[Sample]) -> dict[str, float]:
    """Return length, truncation and repetition metrics of samples."""
    if not samples:
        return {}
    return {
        **_spread(f"{prefix}response_len/", [sample.response_length for sample in samples]),
        f"{prefix}truncated_ratio": mean([sample.status is Status.TRUNCATED for sample in samples]),
        f"{prefix}repetition_frac": mean([repeats_itself(sample.response) for sample in samples]),
    }


def repeats_itself(text: str) -> bool:
    """Whether the last `REPETITION_WINDOW` characters of a long text compress by more than `REPETITION_RATIO`."""
    if len(text) <= REPETITION_WINDOW:
        return False
    end = text[-REPETITION_WINDOW:].encode("utf-8", "surrogatepass")
    return len(end) > REPETITION_RATIO * len(zlib.compress(end, 9))


def turn_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Return lengths with and without tool tokens, if there are any, and turns, if a generator counts them."""
    found: dict[str, float] = {}
    whole = [sample.response_length for sample in samples]
    own = [sample.effective_response_length for sample in samples]
    if whole != own:
        found |= _spread("multi_turn/raw_response_length/response_length_", whole, median=False)
        found |= _spread("multi_turn/wo_obs_response_length/response_length_", own, median=False)
    counted = [each for sample in samples if isinstance(each := sample.metadata.get(ROUNDS), int)]
    if counted:
        found |= _spread("multi_turn/multi_turn_metric/round_number_", counted, median=False)
    return found


def pass_rates(prefix: str, rewards: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return `pass@1`, `pass@2`, `pass@4`, … from the rewards of each prompt; prompts with one sample do not count."""
    size = max(map(len, rewards), default=0)
    powers = [2**power for power in range(size.bit_length())] if size > 1 else []
    return {f"{prefix}pass@{k}": pass_at_k(rewards, k) for k in powers}


def pass_at_k(rewards: Sequence[Sequence[float]], k: int) -> float:
    """Mean probability that one of k samples passes, from n samples per prompt of which c pass.

    The unbiased estimator 1 - C(n-c, k) / C(n, k) of Chen et al. 2021 (arXiv:2107.03374), eq. 1. Prompts with fewer
    than k samples are left out.
    """
    passed = [(len(each), sum(reward >= PASSING_REWARD for reward in each)) for each in rewards if len(each) >= k]
    return mean([1.0 - math.comb(n - c, k) / math.comb(n, k) for n, c in passed])


def engine_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the acceptance of speculative decoding, which depends on the engine's load, and prefix cache hit rates.

    Leaves out metrics that no engine reports.
    """
    found: dict[str, float] = {}
    if known := [sample.spec_info for sample in samples if sample.spec_info.spec_verify_ct]:
        made = sum(each.completion_token_num for each in known)
        found["perf/spec_accept_length"] = made / sum(each.spec_verify_ct for each in known)
        if drafted := sum(each.spec_draft_token_num for each in known):
            found["perf/spec_accept_rate"] = sum(each.spec_accept_token_num for each in known) / drafted
    if prompts := sum(sample.prefix_cache_info.total_prompt_tokens for sample in samples):
        cached = sum(sample.prefix_cache_info.cached_tokens for sample in samples)
        found["perf/prefix_cache_hit_rate"] = cached / prompts
        found["perf/avg_cached_tokens_per_sample"] = cached / len(samples)
    return found


def measured_metrics(prefix: str, measured: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return mean and 99th percentile (nearest rank) of each value that generators measured."""
    found: dict[str, float] = {}
    for name, values in sorted(measured.items()):
        found[f"{prefix}{name}/mean"] = mean(values)
        found[f"{prefix}{name}/p99"] = percentile(sorted(values), 0.99)
    return found


def mean(numbers: Sequence[float]) -> float:
    """Arithmetic mean of at least one number."""
    return sum(numbers) / len(numbers)


def _spread(prefix: str, values: Sequence[float], *, median: bool = True) -> dict[str, float]:
    found = {f"{prefix}mean": mean(values), f"{prefix}max": float(max(values)), f"{prefix}min": float(min(values))}
    if median:
        ordered, middle = sorted(values), len(values) // 2
        both = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
        found[f"{prefix}median"] = float(both)
    return found


@dataclass(frozen=True, slots=True)
class RolloutResult:
    """A finished rollout."""

    kept: Sequence[Group]
    """Groups to train on, frozen, oldest first, with surplus groups for the buffer."""
    dropped: Sequence[Group]
    """Groups that were dropped, frozen."""
    reasons: Mapping[GroupId, str]
    """Reason of each dropped group."""
    metrics: Mapping[str, float]
    """Metrics under slime's names."""
    failed: Sequence[Group] = ()
    """Failed samples, frozen, in the groups that continued without them."""


class RolloutStats:
    """Statistics of one rollout or one evaluation."""

    def __init__(self, what: str, metrics: Mapping[str, float] = {}) -> None:
        """`what` names it in errors, as "rollout 3"; `metrics` are from its part before a resume."""
        self._what, self.errors = what, ErrorBudget(what)
        self.kept: list[Group] = []
        """Kept groups, in the order that they were drawn."""
        self.dropped: list[Group] = []
        """Dropped groups, in the order that they were drawn."""
        self.reasons: dict[GroupId, str] = {}
        """Reason of each dropped group."""
        self.failed: list[Group] = []
        """Failed samples, frozen, in the groups that continue without them."""
        self.measured: defaultdict[str, list[float]] = defaultdict(list)
        """What generators measured, by `<generator>/<name>`."""
        self._rewards: defaultdict[str, list[float]] = defaultdict(list)
        self._not_applicable: Counter[str] = Counter()
        self._removed: Counter[str] = Counter()
        self._non_generation_s: list[float] = []
        self._before_resume = metrics

    def add_samples(self, groups: Iterable[GroupProgress]) -> None:
        """Count the verdicts on groups, and record what their generators measured."""
        for group in groups:
            for execution in group.executions.values():
                for metric, verdict in ((m, v) for each in execution.scored for m, v in each.verdicts.items()):
                    if isinstance(verdict, Score):
                        self._rewards[metric].append(verdict.value)
                        for part, number in verdict.components.items():
                            self._rewards[f"{metric}/{part}"].append(number)
                    elif isinstance(verdict, NotApplicable):
                        self._not_applicable[metric] += 1
                for name, values in execution.measured.items():
                    self.measured[name] += values
                self._non_generation_s.append(execution.non_generation_s)

    def drop(self, group: Group, reason: str) -> None:
        """Count a group that is not trained on."""
        self.dropped.append(group)
        self.reasons[group.id] = reason

    def exclude_samples(self, removals: Iterable[Removal]) -> None:
        """Exclude samples of kept groups from training; changes copies of these groups."""
        by_group: defaultdict[GroupId, set[int]] = defaultdict(set)
        for removal in removals:
            by_group[removal.group].add(removal.position)
            self._removed[removal.reason] += 1
        for at, group in enumerate(self.kept):
            if positions := by_group.get(group.id):
                samples = [
                    replace(each, remove_sample=True) if place in positions else each
                    for place, each in enumerate(group.samples)
                ]
                self.kept[at] = replace(group, samples=samples)

    def too_few_groups(self, want: int, waves: int) -> RolloutError:
        """Return the error of a rollout with too few groups, with the reasons of the dropped ones."""
        counts = Counter(self.reasons.values()).most_common()
        histogram = "".join(f"\n  {count} x {reason}" for reason, count in counts) or "\n  none: all were interrupted"
        return RolloutError(
            f"{self._what}: {waves} waves of draws kept {len(self.kept)} of the {want} groups wanted; dropped were:"
            f"{histogram}\nUse prompts that are neither too easy nor too hard for the model, choose another "
            f"--group-filter, or allow more with --max-filter-waves"
        )

    def metrics(self) -> dict[str, float]:
        """Return the rollout's metrics. Lengths and rewards cover kept groups, as in slime."""
        samples = [sample for group in self.kept for sample in group.samples if sample.reward is not None]
        found = sample_metrics("rollout/", samples)
        if samples:
            rewards = [reward for group in self.kept for reward in execution_rewards(group.samples)]
            found["rollout/raw_reward"] = found["rollout/rewards"] = mean(rewards)
        of_groups = [group.rewards for group in self.kept]
        alike = Counter(str(round(float(each[0]), 1)) for each in of_groups if each and min(each) == max(each))
        found |= {f"rollout/zero_std/count_{reward}": float(count) for reward, count in sorted(alike.items())}
        drops = Counter(self.reasons.values())
        found |= {f"rollout/dynamic_filter/drop_{reason}": float(count) for reason, count in sorted(drops.items())}
        found |= {f"rollout/{metric}": mean(values) for metric, values in sorted(self._rewards.items())}
        for metric, count in sorted(self._not_applicable.items()):
            found[f"rollout/{metric}/not_applicable"] = float(count)
        found |= {f"rollout/sample_filter/{reason}": float(count) for reason, count in sorted(self._removed.items())}
        found |= {f"rollout/errors/{reason}": float(count) for reason, count in sorted(self.errors.counts.items())}
        found |= pass_rates("passrate/", [execution_rewards(group.samples) for group in self.kept])
        found |= turn_metrics(samples)
        found |= engine_metrics(samples)
        if any(self._non_generation_s):
            found |= _spread("perf/non_generation_time/", self._non_generation_s)
        return {**self._before_resume, **found, **measured_metrics("rollout/", self.measured)}

    def result(self) -> RolloutResult:
        """The finished rollout."""
        return RolloutResult(self.kept, self.dropped, self.reasons, self.metrics(), self.failed)


def evaluation_metrics(name: str, groups: Sequence[GroupProgress]) -> dict[str, float]:
    """Return metrics of one data set over its scored executions. Failed ones are counted and never scored 0."""
    rewards = [execution_rewards(one.sample for one in group.scored) for group in groups]
    scored = [one.sample for group in groups for one in group.scored if one.sample.reward is not None]
    failed = sum(len(group.executions) for group in groups) - sum(map(len, rewards))
    found = {f"eval/{name}/failed": float(failed)} if failed else {}
    if not scored:
        return found
    found[f"eval/{name}"] = mean([reward for each in rewards for reward in each])
    about = sample_metrics("", scored)
    found[f"eval/{name}-truncated_ratio"] = about.pop("truncated_ratio")
    found |= {f"eval/{name}/{key}": value for key, value in about.items()}
    return found | pass_rates(f"eval/{name}-", rewards)
