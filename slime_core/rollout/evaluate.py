"""evaluate: run several data sets through the scheduler's slots and rewards, without touching the training state.

Each data set's rows and seeds are its own: the same weights give the same answers at any time of a run.

Example:

    gsm8k = EvalSet("gsm8k", PromptSource(eval_setup).every_prompt(), SamplingParams(256, temperature=0.0))
    result = await evaluate(scheduler, [gsm8k], rollout_id=10)      # result.metrics["eval/gsm8k"]
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slime_core.events import SamplesDone
from slime_core.roles import SamplingParams
from slime_core.rollout.allowance import Allowance
from slime_core.rollout.executions import execution_rewards
from slime_core.rollout.policy import Scoring, UsedGenerator
from slime_core.rollout.sample_metrics import mean, measured_metrics, pass_rates, sample_metrics
from slime_core.rollout.scheduler import Scheduler
from slime_core.rollout.tally import Tally
from slime_core.rollout.work import Purpose, RunGroup, all_or_none
from slime_core.sample import Group, Sample


@dataclass(frozen=True, slots=True)
class EvalSet:
    """One data set to evaluate on."""

    name: str
    """Names its metrics: `eval/<name>`."""
    groups: Sequence[Group]
    """Its prompts, each with `n_samples_per_eval_prompt` pending samples; they stay pending."""
    sampling: SamplingParams
    """How to sample."""
    generator: UsedGenerator | None = None
    """Instead of the run's."""
    scoring: Scoring | None = None
    """Instead of the run's."""

    def purpose(self, rollout_id: int, allowance: Allowance) -> Purpose:
        """What its samples are run for."""
        return Purpose(rollout_id, True, self.sampling, self.generator, self.scoring, allowance)

    @property
    def drawn(self) -> int:
        """How many samples that are."""
        return sum(len(group.samples) for group in self.groups)


@dataclass(frozen=True, slots=True)
class EvalResult:
    """A finished evaluation."""

    samples: Mapping[str, Sequence[Sample]]
    """By data set, in order of its rows, frozen."""
    metrics: Mapping[str, float]
    """Of all data sets."""


async def evaluate(scheduler: Scheduler, sets: Sequence[EvalSet], *, rollout_id: int) -> EvalResult:
    """Evaluate all data sets at once.

    Raises:
        RolloutError: more than `max_error_rate` of a data set's samples failed.
        WorkerError: the engine is gone.
    """
    runner, limit = scheduler.runner, scheduler.policy.max_error_rate
    tallies = [Tally(f"evaluation of {each.name}") for each in sets]
    purposes = [
        each.purpose(rollout_id, tally.allowance(each.drawn, limit)) for each, tally in zip(sets, tallies, strict=True)
    ]
    ran = await all_or_none([runner.run(each.groups, purpose) for each, purpose in zip(sets, purposes, strict=True)])
    samples: dict[str, Sequence[Sample]] = {}
    metrics: dict[str, float] = {}
    for each, tally, groups in zip(sets, tallies, ran, strict=True):
        tally.add_samples(groups)
        tally.check_error_rate(limit)
        samples[each.name] = [scored.sample for group in groups for scored in group.scored]
        for sample in samples[each.name]:
            sample.freeze()
        metrics |= _metrics(each.name, groups)
        await scheduler.emit(SamplesDone(rollout_id, samples[each.name], evaluation=True))
    return EvalResult(samples, metrics)


def _metrics(name: str, groups: Sequence[RunGroup]) -> dict[str, float]:
    """Metrics of one data set over what was scored, by execution; failed ones are counted, never scored 0."""
    measured: defaultdict[str, list[float]] = defaultdict(list)
    rewards = [execution_rewards(one.sample for one in group.scored) for group in groups]
    scored = [one.sample for group in groups for one in group.scored if one.sample.reward is not None]
    failed = sum(len(group.executions) for group in groups) - sum(map(len, rewards))
    found = {f"eval/{name}/failed": float(failed)} if failed else {}
    for group in groups:
        for key, values in group.measured.items():
            measured[key] += values
    found |= measured_metrics(f"eval/{name}/", measured)
    if not scored:
        return found
    found[f"eval/{name}"] = mean([reward for each in rewards for reward in each])
    about = sample_metrics("", scored)
    found[f"eval/{name}-truncated_ratio"] = about.pop("truncated_ratio")
    found |= {f"eval/{name}/{key}": value for key, value in about.items()}
    return found | pass_rates(f"eval/{name}-", rewards)
