"""Decides when groups are generated (the policies `sync` and `async`), which are kept, and how a run is evaluated.

Results depend on the draws alone, never on which sample finishes first. A rollout that is cancelled or fails
returns its groups to the data source. Evaluation has its own rows and seeds, so equal weights give equal answers at
any time of a run. The policy `continuous` is in `stream.py`.

Example:

    scheduler = make_scheduler("async", parts, batch=64, rollouts=1000)
    result = await scheduler.collect(rollout_id=3, want=64)
    scheduler.look_ahead(rollout_id=4, want=64)         # while the trainer works
    await scheduler.settle()                            # before the weights change
    scheduler.published(version=4)
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import cast

from slime_core.aio import cancel_all
from slime_core.catalog import check_decision
from slime_core.catalog.catalog import Used
from slime_core.catalog.checks import blaming, check_removals
from slime_core.errors import CheckpointError
from slime_core.events import Event, GroupsDone, SamplesDone
from slime_core.roles import (
    DataSource,
    Decision,
    Drop,
    Engine,
    FilterContext,
    GroupFilter,
    Keep,
    KeepIfShort,
    Removal,
    SampleFilter,
    SamplingParams,
    Tokenizer,
)
from slime_core.rollout.metrics import RolloutResult, Tally, mean, measured_metrics, pass_rates, sample_metrics
from slime_core.rollout.policy import Choices, RewardOnError, RolloutPolicy, Scoring, UsedGenerator
from slime_core.rollout.runner import Purpose, RunGroup, SampleRunner, all_or_none
from slime_core.rollout.scoring import execution_rewards, executions
from slime_core.sample import Group, Json, Sample, Status


@dataclass(frozen=True, slots=True)
class Parts:
    """What a scheduler works with."""

    policy: RolloutPolicy
    """How to run."""
    source: DataSource
    """Where prompts come from."""
    engine: Engine
    """What generates; started by the caller."""
    tokenizer: Tokenizer
    """The policy's."""
    choices: Choices
    """How samples are run and scored."""
    group_filter: Used[GroupFilter] | None
    """Which groups are kept; None keeps all."""
    sample_filters: Sequence[Used[SampleFilter]]
    """Which samples of the kept groups are not trained on, one after another."""
    emit: Callable[[Event], Awaitable[None]]
    """Told of finished samples and groups."""


class Scheduler(ABC):
    """Fills rollouts. One `collect` at a time; a policy decides when groups are drawn and handed over."""

    def __init__(self, parts: Parts) -> None:
        self.policy = policy = parts.policy
        """How it runs."""
        self.runner = SampleRunner(policy=policy, engine=parts.engine, tokenizer=parts.tokenizer, choices=parts.choices)
        """Runs the samples; evaluation shares its slots."""
        self.emit = parts.emit
        """Where events go."""
        self._source, self._group_filter = parts.source, parts.group_filter
        self._sample_filters = parts.sample_filters

    @property
    def waiting_for(self) -> str:
        """What the samples in flight wait for: "engine: 37 samples"."""
        return self.runner.waiting.text

    @abstractmethod
    async def collect(self, rollout_id: int, want: int) -> RolloutResult:
        """Hand over at least `want` kept groups.

        Raises:
            RolloutError: too many samples failed, or too few groups were kept.
            ContractError: a filter's answer breaks its contract.
            PluginError: a filter raised.
            WorkerError: the engine is gone.
        """

    def look_ahead(self, rollout_id: int, want: int) -> None:
        """Start to generate this next rollout while the trainer works, if the policy does that."""

    async def settle(self) -> None:
        """Return when the weights may change. Errors as in `collect`."""

    def published(self, version: int) -> None:
        """Note that the engine has a new version of the weights."""

    def undisturbed(self) -> AbstractAsyncContextManager[None]:
        """A `with` during which no draw begins, for a consistent state."""
        return nullcontext()

    def live(self) -> tuple[int, int]:
        """Groups in flight, and finished ones that no `collect` handed over."""
        return 0, 0

    def state_dict(self) -> dict[str, Json]:
        """Groups drawn or finished and not yet handed over, as plain JSON."""
        return {}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue from a saved state; groups that were in flight go back to the data source.

        Raises:
            CheckpointError: another policy left unfinished work.
        """
        refuse_foreign(state, set())

    async def close(self) -> None:
        """Cancel all work in flight."""

    # --- which groups and samples are kept

    def sort(self, finished: Sequence[RunGroup], context: FilterContext, tally: Tally, want: int) -> None:
        """Keep or drop each group, and freeze it; second choices are kept while the tally has fewer than `want`.

        Raises:
            ContractError: a filter's answer breaks its contract.
            PluginError: a filter raised.
        """
        drops_failed = self.policy.reward_on_error is RewardOnError.DROP
        groups = list[Group]()
        for ran in finished:
            left = [one.sample for one in ran.scored if one.failure is None or not drops_failed]
            # A group that lost all its samples keeps them, to show why.
            groups.append(Group(ran.drawn.id, left or [one.sample for one in ran.scored], ran.drawn.metadata))
            if 0 < len(left) < len(ran.scored):
                tally.failed.append(replace(groups[-1], samples=[one.sample for one in ran.scored if one.failure]))
                tally.failed[-1].freeze()
        decisions = [self._decide(group, ran, context) for group, ran in zip(groups, finished, strict=True)]
        short = want - len(tally.kept) - sum(isinstance(decision, Keep) for decision in decisions)
        for group, decision in zip(groups, decisions, strict=True):
            group.freeze()
            if isinstance(decision, KeepIfShort) and short > 0:
                short -= 1
                tally.kept.append(group)
            elif isinstance(decision, Keep):
                tally.kept.append(group)
            else:
                tally.drop(group, decision.reason)

    def _decide(self, group: Group, ran: RunGroup, context: FilterContext) -> Decision:
        failed = any(scored.failure is not None for scored in ran.scored)
        if failed and len(execution_rewards(group.samples)) < 2:
            return Drop("unscored")
        use = self._group_filter
        if use is None:
            return Keep()
        with blaming("group filter", use.plugin):
            answer = use.part(group, context)
        return check_decision(answer, plugin=use.plugin, group=group)

    def remove_samples(self, tally: Tally, context: FilterContext, since: int = 0) -> None:
        """Ask each sample filter about the kept groups from number `since` on. Errors as in `sort`."""
        for use in self._sample_filters:
            groups = tuple(tally.kept[since:])
            with blaming("sample filter", use.plugin):
                answer = use.part(groups, context)
            tally.remove(check_removals(answer, plugin=use.plugin, groups=groups))


def refuse_foreign(state: Mapping[str, Json], keys: set[str]) -> None:
    """Refuse unfinished work of another policy, by its keys.

    Raises:
        CheckpointError: it is of another one.
    """
    if state and set(state) != keys:
        raise CheckpointError(
            f"the checkpoint holds unfinished work of another rollout_policy ({', '.join(sorted(state))}): continue "
            "with the rollout_policy and the partial_rollout that it was made with"
        )


# Filters of groups and samples.

MIN_STD = 1e-6
"""Unbiased standard deviation of rewards below which they count as alike."""


class NonzeroStd:
    """Keeps groups whose rewards differ (slime's `check_reward_nonzero_std`)."""

    def __call__(self, group: Group, ctx: FilterContext) -> Decision:
        """`Keep`, or `Drop("zero_std_<reward>")`, also for a lone sample."""
        reason = zero_std_reason(group)
        return Keep() if reason is None else Drop(reason)


class NonzeroStdWithFallback:
    """The same, but the other groups fill a rollout that would otherwise come up short."""

    def __call__(self, group: Group, ctx: FilterContext) -> Decision:
        """`Keep`, or `KeepIfShort("zero_std_<reward>")`."""
        reason = zero_std_reason(group)
        return Keep() if reason is None else KeepIfShort(reason)


def zero_std_reason(group: Group) -> str | None:
    """Why a group is dropped: "zero_std_1.0" if all rewards are 1.0; None if they differ."""
    rewards = group.rewards
    if not rewards:
        return "zero_std_unscored"
    if len(rewards) > 1:
        mean = math.fsum(rewards) / len(rewards)
        variance = math.fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)
        if math.sqrt(variance) > MIN_STD:
            return None
    return f"zero_std_{round(float(rewards[0]), 1)}"


class Truncated:
    """Leaves truncated responses out of the loss: DAPO's overlong filtering (Yu et al. 2025, arXiv:2503.14476, 3.4).

    Their rewards stay among those of the group, as with TRL's `mask_truncated_completions`. An execution that fanned
    out is one response: if one of its samples was truncated, all are left out.
    """

    def __call__(self, groups: Sequence[Group], ctx: FilterContext) -> Sequence[Removal]:
        """Every sample of an execution with a `TRUNCATED` one, unless it is removed already."""
        removals = list[Removal]()
        for group in groups:
            cut = [run for run in executions(group.samples) if any(each.status is Status.TRUNCATED for each in run)]
            ids = {id(sample) for run in cut for sample in run}
            for at, each in enumerate(group.samples):
                if id(each) in ids and not each.remove_sample:
                    removals.append(Removal(group.id, at, "truncated"))
        return removals


class Waves(Scheduler):
    """The policies `sync` and `async`: run a wave of groups at once, filter, and draw again while short.

    With `ahead`, the next rollout is generated during a training step, by one version of the weights.
    """

    def __init__(self, parts: Parts, *, ahead: bool = False) -> None:
        super().__init__(parts)
        self._looks_ahead = ahead
        self._tally: Tally | None = None
        """The rollout that was generated ahead, or is generated by the task `_ahead`."""
        self._ahead: asyncio.Task[None] | None = None

    async def collect(self, rollout_id: int, want: int) -> RolloutResult:
        """Run groups until at least `want` are kept; errors as in `Scheduler`."""
        await self.settle()
        tally, self._tally = self._tally or Tally(f"rollout {rollout_id}"), None
        await self._fill(tally, rollout_id, want)
        return tally.result()

    def look_ahead(self, rollout_id: int, want: int) -> None:
        """Begin to generate that rollout, if it may be generated ahead."""
        if self._looks_ahead:
            self._tally = Tally(f"rollout {rollout_id}")
            self._ahead = asyncio.create_task(self._fill(self._tally, rollout_id, want))

    async def settle(self) -> None:
        """Wait for the rollout under way."""
        if self._ahead is not None:
            task, self._ahead = self._ahead, None
            try:
                await task
            except BaseException:
                self._tally = None
                await cancel_all([task])
                raise

    async def _fill(self, tally: Tally, rollout_id: int, want: int) -> None:
        """Run waves until the tally keeps `want` groups; on an error its new groups go back to the source."""
        drawn: list[Group] = []
        waves, before = 0, len(tally.kept)
        try:
            while len(tally.kept) < want:
                if waves == self.policy.max_filter_waves:
                    raise tally.give_up(want, waves)
                missing = want - len(tally.kept)  # with a filter more are drawn, because some will be dropped
                size = (self.policy.over_sampling_batch_size or want) if self._group_filter else missing
                groups = await self._source.draw(size)
                drawn += groups
                interrupted = await self._run_wave(rollout_id, groups, tally, want)
                self._source.add(interrupted)
                back = {group.id for group in interrupted}
                drawn = [group for group in drawn if group.id not in back]
                waves += 1
            self.remove_samples(tally, FilterContext(rollout_id), since=before)
        except BaseException:
            self._source.add(drawn)
            raise

    async def _run_wave(self, rollout_id: int, drawn: Sequence[Group], tally: Tally, want: int) -> list[Group]:
        """Run one wave into the tally; returns the groups that an engine interrupted, as they were drawn."""
        tally.errors.expect(sum(len(group.samples) for group in drawn), self.policy.max_error_rate)
        ran = await self.runner.run(drawn, Purpose(rollout_id, False, self.policy.sampling, budget=tally.errors))
        interrupted = [group for group in ran if group.is_interrupted]
        finished = [group for group in ran if not group.is_interrupted]
        tally.add_samples(finished)
        samples = [scored.sample for group in finished for scored in group.scored]
        kept, dropped = len(tally.kept), len(tally.dropped)
        self.sort(finished, FilterContext(rollout_id), tally, want)
        await self.emit(SamplesDone(rollout_id, samples, evaluation=False))
        reasons = {group.id: tally.reasons[group.id] for group in tally.dropped[dropped:]}
        await self.emit(GroupsDone(rollout_id, tally.kept[kept:], reasons))
        tally.errors.check(self.policy.max_error_rate)
        return [group.drawn for group in interrupted]

    def live(self) -> tuple[int, int]:
        """Nothing is in flight once it settled; what is ready waits."""
        return 0, len(self._tally.kept) if self._tally else 0

    def state_dict(self) -> dict[str, Json]:
        """The rollout that waits for its training."""
        if self._tally is None:
            return {}
        return {"kept": [group.to_dict() for group in self._tally.kept], "metrics": {**self._tally.metrics()}}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Hold that rollout again, without its dropped groups. Errors as in `Scheduler`."""
        refuse_foreign(state, {"kept", "metrics"})
        if state:
            self._tally = Tally("the rollout of the checkpoint", cast(Mapping[str, float], state["metrics"]))
            self._tally.kept = [Group.from_dict(each) for each in cast(list[Mapping[str, Json]], state["kept"])]

    async def close(self) -> None:
        """End the rollout under way."""
        if self._ahead is not None:
            await cancel_all([self._ahead])
            self._ahead = None


# Evaluation, without touching the training state.


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
    calls = []
    for each, tally in zip(sets, tallies, strict=True):
        tally.errors.expect(sum(len(group.samples) for group in each.groups), limit)
        purpose = Purpose(rollout_id, True, each.sampling, each.generator, each.scoring, tally.errors)
        calls.append(runner.run(each.groups, purpose))
    ran = await all_or_none(calls)
    samples: dict[str, Sequence[Sample]] = {}
    metrics: dict[str, float] = {}
    for each, tally, groups in zip(sets, tallies, ran, strict=True):
        tally.add_samples(groups)
        tally.errors.check(limit)
        samples[each.name] = [scored.sample for group in groups for scored in group.scored]
        for sample in samples[each.name]:
            sample.freeze()
        metrics |= measured_metrics(f"eval/{each.name}/", tally.measured) | _metrics(each.name, groups)
        await scheduler.emit(SamplesDone(rollout_id, samples[each.name], evaluation=True))
    return EvalResult(samples, metrics)


def _metrics(name: str, groups: Sequence[RunGroup]) -> dict[str, float]:
    """Metrics of one data set over its scored executions; failed ones are counted, never scored 0."""
    rewards = [execution_rewards(one.sample for one in group.scored) for group in groups]
    scored = [one.sample for group in groups for one in group.scored if one.sample.reward is not None]
    failed = sum(len(group.ran) for group in groups) - sum(map(len, rewards))
    found = {f"eval/{name}/failed": float(failed)} if failed else {}
    if not scored:
        return found
    found[f"eval/{name}"] = mean([reward for each in rewards for reward in each])
    about = sample_metrics("", scored)
    found[f"eval/{name}-truncated_ratio"] = about.pop("truncated_ratio")
    found |= {f"eval/{name}/{key}": value for key, value in about.items()}
    return found | pass_rates(f"eval/{name}-", rewards)
