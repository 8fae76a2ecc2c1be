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
from collections import defaultdict
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
from slime_core.rollout.metrics import Tally, joined_metrics, mean, measured_metrics, pass_rates, sample_metrics
from slime_core.rollout.policy import Choices, RewardOnError, RolloutPolicy, Scoring, UsedGenerator
from slime_core.rollout.runner import Purpose, RunGroup, SampleRunner, all_or_none
from slime_core.rollout.scoring import Allowance, execution_rewards, executions
from slime_core.sample import Group, GroupId, Json, Sample, Status

# Sieve: what becomes of finished groups: kept, or dropped with a reason; and which of their samples are left out.


class Sieve:
    """The run's group filter and sample filters."""

    def __init__(
        self,
        *,
        policy: RolloutPolicy,
        group_filter: Used[GroupFilter] | None,
        sample_filters: Sequence[Used[SampleFilter]],
    ) -> None:
        """Take the filters; a group filter of None keeps all groups."""
        self.filters_groups = group_filter is not None
        """Whether groups may be dropped for what they are."""
        self._policy = policy
        self._filter = group_filter
        self._sample_filters = sample_filters

    def sort(self, finished: Sequence[RunGroup], context: FilterContext, tally: Tally, want: int) -> None:
        """Keep or drop each group, and freeze it; second choices are kept while the tally has fewer than `want`.

        Raises:
            ContractError: a filter's answer breaks its contract.
            PluginError: a filter raised.
        """
        groups = [_surviving(group, self._policy.reward_on_error) for group in finished]
        for group, ran in zip(groups, finished, strict=True):
            if len(group.samples) < len(ran.scored):
                lost = [scored.sample for scored in ran.scored if scored.failure is not None]
                tally.failed.append(replace(group, samples=lost))
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

    def remove_samples(self, tally: Tally, context: FilterContext) -> None:
        """Ask each sample filter about what the ones before it left; a failed sample is out already.

        Raises:
            ContractError: a filter's answer breaks its contract.
            PluginError: a filter raised.
        """
        for use in self._sample_filters:
            groups = tuple(tally.kept)
            with blaming("sample filter", use.plugin):
                answer = use.part(groups, context)
            tally.remove(check_removals(answer, plugin=use.plugin, groups=groups))

    def _decide(self, group: Group, ran: RunGroup, context: FilterContext) -> Decision:
        """The filter's decision about a group that has something to learn from."""
        failed = any(scored.failure is not None for scored in ran.scored)
        if failed and len(execution_rewards(group.samples)) < 2:
            return Drop("unscored")
        if self._filter is None:
            return Keep()
        with blaming("group filter", self._filter.plugin):
            answer = self._filter.part(group, context)
        return check_decision(answer, plugin=self._filter.plugin, group=group)


def _surviving(ran: RunGroup, on_error: RewardOnError) -> Group:
    """The finished group; one that lost all its samples keeps them, to show why."""
    samples = [scored.sample for scored in ran.scored if on_error is not RewardOnError.DROP or scored.failure is None]
    return Group(ran.id, samples or [scored.sample for scored in ran.scored], ran.drawn.metadata)


# Scheduler: what every policy of filling rollouts shares; each policy says when groups are drawn and handed over.


@dataclass(frozen=True, slots=True)
class RolloutResult:
    """A finished rollout."""

    kept: Sequence[Group]
    """Groups to train on, frozen, oldest first; surplus ones included, for the buffer."""
    dropped: Sequence[Group]
    """The others, frozen."""
    reasons: Mapping[GroupId, str]
    """Why each dropped group was."""
    metrics: Mapping[str, float]
    """Under slime's names."""
    failed: Sequence[Group] = ()
    """Samples that failed, frozen, by the groups that went on without them, whenever these are handed over."""

    def joined(self, later: "RolloutResult") -> "RolloutResult":
        """Both, as one rollout; its means are those of the parts, weighted by their kept groups."""
        return RolloutResult(
            [*self.kept, *later.kept],
            [*self.dropped, *later.dropped],
            {**self.reasons, **later.reasons},
            joined_metrics((self.metrics, len(self.kept)), (later.metrics, len(later.kept))),
            [*self.failed, *later.failed],
        )


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
    """Fills rollouts. One `collect` at a time."""

    def __init__(self, parts: Parts) -> None:
        self.policy = policy = parts.policy
        """How it runs."""
        self.runner = SampleRunner(policy=policy, engine=parts.engine, tokenizer=parts.tokenizer, choices=parts.choices)
        """Runs the samples; evaluation shares its slots."""
        self.emit = parts.emit
        """Where events go."""
        self._source = parts.source
        self._sieve = Sieve(policy=policy, group_filter=parts.group_filter, sample_filters=parts.sample_filters)

    @property
    def waiting_for(self) -> str:
        """What the samples in flight wait for: "engine: 37 samples"."""
        return self.runner.waiting.text

    @abstractmethod
    async def collect(self, rollout_id: int, want: int) -> RolloutResult:
        """Hand over at least `want` kept groups.

        Raises:
            RolloutError: too many samples failed, or too few groups were kept of many that were drawn.
            ContractError: a filter's answer breaks its contract.
            PluginError: a filter raised.
            WorkerError: the engine is gone.
        """

    def look_ahead(self, rollout_id: int, want: int) -> None:
        """The trainer begins to work; what may be generated meanwhile, for this next rollout, may begin too."""

    async def settle(self) -> None:
        """The weights are about to change; returns when nothing stands in the way. Errors as in `collect`."""

    def published(self, version: int) -> None:
        """The engine has a new version of the weights."""

    def undisturbed(self) -> AbstractAsyncContextManager[None]:
        """While entered, no draw is half done, so that the state is whole."""
        return nullcontext()

    def live(self) -> tuple[int, int]:
        """Groups drawn and not finished, and finished ones that no `collect` handed over."""
        return 0, 0

    def state_dict(self) -> dict[str, Json]:
        """What was drawn or finished and not yet handed over, as plain JSON."""
        return {}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue from a saved state; work that was in flight goes back to the data source, to be run again.

        Raises:
            CheckpointError: another policy left unfinished work.
        """
        refuse_foreign(state, set())

    async def close(self) -> None:
        """End all work in flight; no task is left."""


def refuse_foreign(state: Mapping[str, Json], keys: set[str]) -> None:
    """Refuse unfinished work that has other parts than these.

    Raises:
        CheckpointError: it does.
    """
    if state and set(state) != keys:
        raise CheckpointError(
            f"the checkpoint holds unfinished work of another rollout_policy ({', '.join(sorted(state))}): continue "
            "with the rollout_policy and the partial_rollout that it was made with"
        )


def is_interrupted(group: RunGroup) -> bool:
    """Whether an engine ended one of its samples before its time."""
    return any(scored.sample.status is Status.ABORTED for scored in group.scored)


# Group filters of dynamic sampling: a group whose rewards are all alike has no advantage to learn from.

MIN_STD = 1e-6
"""Unbiased standard deviation of rewards below which they count as alike."""


class NonzeroStd:
    """Keeps groups whose rewards differ (slime's `check_reward_nonzero_std`)."""

    def __call__(self, group: Group, ctx: FilterContext) -> Decision:
        """`Keep`, or `Drop("zero_std_<reward>")`; a lone sample has no deviation and is dropped."""
        reason = zero_std_reason(group)
        return Keep() if reason is None else Drop(reason)


class NonzeroStdWithFallback:
    """The same, but groups without deviation fill a rollout that would otherwise come up short."""

    def __call__(self, group: Group, ctx: FilterContext) -> Decision:
        """`Keep`, or `KeepIfShort("zero_std_<reward>")`."""
        reason = zero_std_reason(group)
        return Keep() if reason is None else KeepIfShort(reason)


def zero_std_reason(group: Group) -> str | None:
    """Why a group has no deviation ("zero_std_1.0" when all rewards are 1.0); None when it has one."""
    rewards = group.rewards
    if not rewards:
        return "zero_std_unscored"
    if len(rewards) > 1:
        mean = math.fsum(rewards) / len(rewards)
        variance = math.fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)
        if math.sqrt(variance) > MIN_STD:
            return None
    return f"zero_std_{round(float(rewards[0]), 1)}"


# Truncated: a sample filter that leaves out of training what a budget cut off.


class Truncated:
    """DAPO's overlong filtering (Yu et al. 2025, arXiv:2503.14476, section 3.4; TRL: `mask_truncated_completions`).

    The reward of a response that was cut off says little of what it had written so far, so that none of its tokens is
    trained on; it stays one of its group's rewards, as in TRL: the others are as good as they were beside it. An
    execution that fanned out is one response: where one of its samples was cut off, all are left out. Denominators
    count what is left (`token_weights`).
    """

    def __call__(self, groups: Sequence[Group], ctx: FilterContext) -> Sequence[Removal]:
        """Every sample of an execution with a `TRUNCATED` one; those that are removed already are not named again."""
        return [Removal(group.id, position, "truncated") for group in groups for position in _cut_off(group)]


def _cut_off(group: Group) -> list[int]:
    """Positions of the samples whose execution was cut off, and that are still trained on."""
    those = {
        id(sample)
        for siblings in executions(group.samples)
        if any(sample.status is Status.TRUNCATED for sample in siblings)
        for sample in siblings
    }
    return [at for at, each in enumerate(group.samples) if id(each) in those and not each.remove_sample]


# Waves: the policy `sync`: draw a wave of groups, run all its samples at once, filter, and draw again while short.


class Waves(Scheduler):
    """Generates between training steps."""

    async def collect(self, rollout_id: int, want: int) -> RolloutResult:
        """Run groups until at least `want` are kept; errors as in `Scheduler`."""
        tally = Tally(f"rollout {rollout_id}")
        drawn: list[Group] = []
        waves = 0
        try:
            while len(tally.kept) < want:
                if waves == self.policy.max_filter_waves:
                    raise tally.give_up(want, waves)
                groups = await self._source.draw(self._wave_size(want - len(tally.kept), want))
                drawn += groups
                interrupted = await self._run_wave(rollout_id, groups, tally, want)
                self._source.add(interrupted)
                back = {group.id for group in interrupted}
                drawn = [group for group in drawn if group.id not in back]
                waves += 1
            self._sieve.remove_samples(tally, FilterContext(rollout_id))
        except BaseException:
            self._source.add(drawn)
            raise
        return RolloutResult(tally.kept, tally.dropped, tally.reasons, tally.metrics(), tally.failed)

    def _wave_size(self, missing: int, want: int) -> int:
        """Groups to draw; with a filter more than are missing, because some of them will be dropped."""
        if not self._sieve.filters_groups:
            return missing
        return self.policy.over_sampling_batch_size or want

    async def _run_wave(self, rollout_id: int, drawn: Sequence[Group], tally: Tally, want: int) -> list[Group]:
        """Run one wave into the tally; returns the groups that an engine interrupted, as they were drawn."""
        allowance = tally.allowance(sum(len(group.samples) for group in drawn), self.policy.max_error_rate)
        ran = await self.runner.run(drawn, Purpose(rollout_id, False, self.policy.sampling, allowance=allowance))
        interrupted = [group for group in ran if is_interrupted(group)]
        finished = [group for group in ran if not is_interrupted(group)]
        tally.add_samples(finished)
        samples = [scored.sample for group in finished for scored in group.scored]
        kept, dropped = len(tally.kept), len(tally.dropped)
        self._sieve.sort(finished, FilterContext(rollout_id), tally, want)
        await self.emit(SamplesDone(rollout_id, samples, evaluation=False))
        reasons = {group.id: tally.reasons[group.id] for group in tally.dropped[dropped:]}
        await self.emit(GroupsDone(rollout_id, tally.kept[kept:], reasons))
        tally.check_error_rate(self.policy.max_error_rate)
        return [group.drawn for group in interrupted]


class OneAhead(Waves):
    """Generates during training steps."""

    _ahead: "asyncio.Task[RolloutResult] | None" = None
    _ready: RolloutResult | None = None

    async def collect(self, rollout_id: int, want: int) -> RolloutResult:
        """The rollout that was generated ahead, and what it lacks of one that is generated now.

        It lacks groups where the buffer has given up others meanwhile. Errors as in `Scheduler`.
        """
        await self.settle()
        ahead, self._ready = self._ready, None
        if ahead is None:
            return await super().collect(rollout_id, want)
        if (missing := want - len(ahead.kept)) <= 0:
            return ahead
        return ahead.joined(await super().collect(rollout_id, missing))

    def look_ahead(self, rollout_id: int, want: int) -> None:
        """Begin to generate that rollout."""
        self._ahead = asyncio.create_task(super().collect(rollout_id, want))

    async def settle(self) -> None:
        """Wait until the rollout under way is finished: it is made by one version of the weights."""
        if self._ahead is not None:
            task, self._ahead = self._ahead, None
            try:
                self._ready = await task
            except asyncio.CancelledError:
                await cancel_all([task])
                raise

    def live(self) -> tuple[int, int]:
        """Nothing is in flight once it settled; what is ready waits."""
        return 0, len(self._ready.kept) if self._ready else 0

    def state_dict(self) -> dict[str, Json]:
        """The rollout that waits for its training."""
        if self._ready is None:
            return {}
        return {"kept": [group.to_dict() for group in self._ready.kept], "metrics": dict(self._ready.metrics)}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Hold that rollout again; of its dropped groups only the metrics are left. Errors as in `Scheduler`."""
        refuse_foreign(state, {"kept", "metrics"})
        if state:
            kept = [Group.from_dict(each) for each in cast(list[Mapping[str, Json]], state["kept"])]
            self._ready = RolloutResult(kept, [], {}, cast(Mapping[str, float], state["metrics"]))

    async def close(self) -> None:
        """End the rollout under way."""
        if self._ahead is not None:
            await cancel_all([self._ahead])
            self._ahead = None


# evaluate: run several data sets through the scheduler's slots and rewards, without touching the training state.


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
