"""Decides when groups are generated (the policies `sync`, `async` and `continuous`), and which are kept.

Results depend only on the draws, never on which sample finishes first. A rollout that fails or is cancelled returns
its groups to the data source. Evaluation has its own rows and seeds, so equal weights give equal answers at any time
of a run. `continuous` drops no group for its age: `Staleness` limits what is generated, and decides when a step must
wait.

Example:

    scheduler = make_scheduler("async", parts, batch=64, rollouts=1000)
    result = await scheduler.collect(rollout_id=3, want=64)
    scheduler.look_ahead(rollout_id=4, want=64)         # while the trainer works
    await scheduler.settle()                            # before the weights change
    scheduler.resume_with(version=4)
"""

import asyncio
import heapq
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from slime_core.aio import cancel_all, gather_or_cancel
from slime_core.catalog import check_decision
from slime_core.catalog.catalog import BuiltChoice
from slime_core.catalog.checks import check_removals, plugin_errors
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
    SampleFilter,
    SamplingParams,
    Tokenizer,
)
from slime_core.rollout.metrics import RolloutResult, RolloutStats, evaluation_metrics, measured_metrics
from slime_core.rollout.policy import Choices, RewardOnError, RolloutPolicy, Scoring, UsedGenerator
from slime_core.rollout.runner import GroupProgress, Purpose, SampleRunner
from slime_core.rollout.scoring import execution_rewards
from slime_core.sample import Group, GroupId, Json, Sample


@dataclass(frozen=True, slots=True)
class Parts:
    """What a scheduler works with."""

    policy: RolloutPolicy
    """Settings of the rollouts."""
    source: DataSource
    """Data source of the prompts."""
    engine: Engine
    """Engine that generates; the caller starts it."""
    tokenizer: Tokenizer
    """Tokenizer of the policy."""
    choices: Choices
    """Generators and rewards of the samples."""
    group_filter: BuiltChoice[GroupFilter] | None
    """Decides which groups are kept; None keeps all."""
    sample_filters: Sequence[BuiltChoice[SampleFilter]]
    """Applied in order, to exclude samples of kept groups from training."""
    emit: Callable[[Event], Awaitable[None]]
    """Receives an event for finished samples and groups."""


class Scheduler(ABC):
    """Collects groups for rollouts, one `collect` at a time. Subclasses decide when groups are drawn and returned."""

    def __init__(self, parts: Parts) -> None:
        self.policy = policy = parts.policy
        """Settings of the rollouts."""
        self.runner = SampleRunner(policy=policy, engine=parts.engine, tokenizer=parts.tokenizer, choices=parts.choices)
        """Runs the samples; evaluation uses the same slots."""
        self.emit = parts.emit
        """Receives events."""
        self._source, self._group_filter = parts.source, parts.group_filter
        self._sample_filters = parts.sample_filters

    @abstractmethod
    async def collect(self, rollout_id: int, want: int) -> RolloutResult:
        """Return at least `want` kept groups.

        Raises:
            RolloutError: too many samples failed, or too few groups were kept.
            ContractError: a filter returned something that breaks its contract.
            PluginError: a filter raised.
            WorkerError: the engine has failed for good.
        """

    def look_ahead(self, rollout_id: int, want: int) -> None:
        """Start to generate the next rollout while the trainer works, if the policy allows it."""

    async def settle(self) -> None:
        """Wait until the weights may change. Errors as in `collect`."""

    def resume_with(self, version: int) -> None:
        """Resume generation, with weights of this version."""

    def pause_draws(self) -> AbstractAsyncContextManager[None]:
        """Context manager during which no draw begins, so that the state is consistent."""
        return nullcontext()

    def live(self) -> tuple[int, int]:
        """Return the number of groups in flight, and of finished ones not handed over yet."""
        return 0, 0

    def state_dict(self) -> dict[str, Json]:
        """Return the groups drawn or finished and not handed over yet, as plain JSON."""
        return {}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore a saved state; groups that were in flight go back to the data source.

        Raises:
            CheckpointError: the unfinished work is from another policy.
        """
        check_state_keys(state, set())

    async def close(self) -> None:
        """Cancel all groups in flight."""

    # --- which groups and samples are kept

    def filter_groups(
        self, finished: Sequence[GroupProgress], context: FilterContext, stats: RolloutStats, want: int
    ) -> None:
        """Keep or drop each group, and freeze it. `KeepIfShort` groups are kept while `stats` has fewer than `want`.

        Raises:
            ContractError: a filter returned something that breaks its contract.
            PluginError: a filter raised.
        """
        drops_failed = self.policy.reward_on_error is RewardOnError.DROP
        groups = list[Group]()
        for ran in finished:
            left = [one.sample for one in ran.scored if one.failure is None or not drops_failed]
            # A group without a usable sample keeps all of them, to show why it failed.
            groups.append(Group(ran.drawn.id, left or [one.sample for one in ran.scored], ran.drawn.metadata))
            if 0 < len(left) < len(ran.scored):
                stats.failed.append(replace(groups[-1], samples=[one.sample for one in ran.scored if one.failure]))
                stats.failed[-1].freeze()
        decisions = [self._decide(group, ran, context) for group, ran in zip(groups, finished, strict=True)]
        short = want - len(stats.kept) - sum(isinstance(decision, Keep) for decision in decisions)
        for group, decision in zip(groups, decisions, strict=True):
            group.freeze()
            if isinstance(decision, KeepIfShort) and short > 0:
                short -= 1
                stats.kept.append(group)
            elif isinstance(decision, Keep):
                stats.kept.append(group)
            else:
                stats.drop(group, decision.reason)

    def _decide(self, group: Group, ran: GroupProgress, context: FilterContext) -> Decision:
        failed = any(scored.failure is not None for scored in ran.scored)
        if failed and len(execution_rewards(group.samples)) < 2:
            return Drop("unscored")
        use = self._group_filter
        if use is None:
            return Keep()
        with plugin_errors("group filter", use.plugin):
            answer = use.part(group, context)
        return check_decision(answer, plugin=use.plugin, group=group)

    def remove_samples(self, stats: RolloutStats, context: FilterContext, since: int = 0) -> None:
        """Apply each sample filter to the kept groups from index `since` on. Errors as in `filter_groups`."""
        for use in self._sample_filters:
            groups = tuple(stats.kept[since:])
            with plugin_errors("sample filter", use.plugin):
                answer = use.part(groups, context)
            stats.exclude_samples(check_removals(answer, plugin=use.plugin, groups=groups))


def check_state_keys(state: Mapping[str, Json], keys: set[str]) -> None:
    """Raise unless the unfinished work in a checkpoint, known by its keys, is from this policy.

    Raises:
        CheckpointError: it is from another one.
    """
    if state and set(state) != keys:
        raise CheckpointError(
            f"the checkpoint holds unfinished work of another rollout_policy ({', '.join(sorted(state))}): continue "
            "with the rollout_policy and the partial_rollout that it was made with"
        )


class SyncScheduler(Scheduler):
    """The policies `sync` and `async`: generate a wave of groups, filter it, and repeat until there are enough.

    With `ahead`, the next rollout is generated during a training step, by a single version of the weights.
    """

    def __init__(self, parts: Parts, *, ahead: bool = False) -> None:
        super().__init__(parts)
        self._looks_ahead = ahead
        self._stats: RolloutStats | None = None
        """The rollout that was generated ahead, or that the task `_ahead` is generating."""
        self._ahead: asyncio.Task[None] | None = None

    async def collect(self, rollout_id: int, want: int) -> RolloutResult:
        """Generate until at least `want` groups are kept; errors as in `Scheduler`."""
        await self.settle()
        stats, self._stats = self._stats or RolloutStats(f"rollout {rollout_id}"), None
        await self._fill(stats, rollout_id, want)
        return stats.result()

    def look_ahead(self, rollout_id: int, want: int) -> None:
        """Start to generate the next rollout, with `ahead`."""
        if self._looks_ahead:
            self._stats = RolloutStats(f"rollout {rollout_id}")
            self._ahead = asyncio.create_task(self._fill(self._stats, rollout_id, want))

    async def settle(self) -> None:
        """Wait for the rollout that is generated ahead."""
        if self._ahead is not None:
            task, self._ahead = self._ahead, None
            try:
                await task
            except BaseException:
                self._stats = None
                await cancel_all([task])
                raise

    async def _fill(self, stats: RolloutStats, rollout_id: int, want: int) -> None:
        """Run waves until `stats` has `want` groups; on an error, the drawn groups go back to the source."""
        drawn: list[Group] = []
        waves, before = 0, len(stats.kept)
        try:
            while len(stats.kept) < want:
                if waves == self.policy.max_filter_waves:
                    raise stats.too_few_groups(want, waves)
                missing = want - len(stats.kept)  # a filter will drop some: draw more
                size = (self.policy.over_sampling_batch_size or want) if self._group_filter else missing
                groups = await self._source.draw(size)
                drawn += groups
                interrupted = await self._run_wave(rollout_id, groups, stats, want)
                self._source.add(interrupted)
                back = {group.id for group in interrupted}
                drawn = [group for group in drawn if group.id not in back]
                waves += 1
            self.remove_samples(stats, FilterContext(rollout_id), since=before)
        except BaseException:
            self._source.add(drawn)
            raise

    async def _run_wave(self, rollout_id: int, drawn: Sequence[Group], stats: RolloutStats, want: int) -> list[Group]:
        """Run one wave into `stats`; returns the groups that the engine interrupted, as they were drawn."""
        stats.errors.expect(sum(len(group.samples) for group in drawn), self.policy.max_error_rate)
        ran = await self.runner.run_groups(drawn, Purpose(rollout_id, False, self.policy.sampling, budget=stats.errors))
        interrupted = [group for group in ran if group.is_interrupted]
        finished = [group for group in ran if not group.is_interrupted]
        stats.add_samples(finished)
        samples = [scored.sample for group in finished for scored in group.scored]
        kept, dropped = len(stats.kept), len(stats.dropped)
        self.filter_groups(finished, FilterContext(rollout_id), stats, want)
        await self.emit(SamplesDone(rollout_id, samples, evaluation=False))
        reasons = {group.id: stats.reasons[group.id] for group in stats.dropped[dropped:]}
        await self.emit(GroupsDone(rollout_id, stats.kept[kept:], reasons))
        stats.errors.check(self.policy.max_error_rate)
        return [group.drawn for group in interrupted]

    def live(self) -> tuple[int, int]:
        """After `settle` nothing is in flight; a rollout generated ahead is ready."""
        return 0, len(self._stats.kept) if self._stats else 0

    def state_dict(self) -> dict[str, Json]:
        """Return the rollout that was generated ahead."""
        if self._stats is None:
            return {}
        return {"kept": [group.to_dict() for group in self._stats.kept], "metrics": {**self._stats.metrics()}}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore that rollout, without its dropped groups. Errors as in `Scheduler`."""
        check_state_keys(state, {"kept", "metrics"})
        if state:
            self._stats = RolloutStats("the rollout of the checkpoint", cast(Mapping[str, float], state["metrics"]))
            self._stats.kept = [Group.from_dict(each) for each in cast(list[Mapping[str, Json]], state["kept"])]

    async def close(self) -> None:
        """Cancel the rollout that is generated ahead."""
        if self._ahead is not None:
            await cancel_all([self._ahead])
            self._ahead = None


@dataclass(frozen=True, slots=True)
class Staleness:
    """The staleness limit: rollout r trains on no group from weights older than version r - `most`.

    A group of version v may be trained on until rollout v + `most`, and a rollout takes the oldest finished groups.
    Once rollout r has its groups, let left(v) count the other groups of versions up to v, finished or in flight. They
    must fit into the rollouts r + 1 to v + `most`:

        left(v) <= batch * (v + most - r)        for each v

    `room` ensures this for new groups, which have the newest version. `must_wait` ensures it for groups in flight: the
    rollout waits for them while the inequality fails for some v.
    """

    batch: int
    """Fresh groups that a rollout takes."""
    num_rollout: int
    """Rollouts of the run; no group is generated for later ones."""
    most: int = 1
    """Most versions that a group may be behind (`max_staleness`)."""
    over_sampling: int | None = None
    """If set, draw only while a step waits, up to this many groups in flight or ready. None: draw at any time."""

    def room(self, version: int, collected: int, waiting_for: int | None) -> int:
        """Most groups that may be in flight or ready with weights of this version, after `collected` steps."""
        steps = min(version + self.most + 1, self.num_rollout) - collected
        bound = max(self.batch * steps, waiting_for or 0)
        if self.over_sampling is None:
            return bound
        return min(bound, max(self.over_sampling, waiting_for)) if waiting_for else 0

    def is_last_step(self, version: int, rollout_id: int) -> bool:
        """Whether a group of this version would be too old for the next step."""
        return rollout_id - version >= self.most

    def must_wait(self, rollout_id: int, want: int, finished: Mapping[int, int], in_flight: Mapping[int, int]) -> bool:
        """Whether this step must wait for groups in flight; `finished` and `in_flight` count groups by version."""
        to_take, left, pending = want, 0, 0
        for version in sorted({*finished, *in_flight}):
            done, under_way = finished.get(version, 0), in_flight.get(version, 0)
            taken = done if self.is_last_step(version, rollout_id) else min(to_take, done)
            to_take = max(0, to_take - taken)
            left += done + under_way - taken
            pending += under_way
            if pending and left > self.batch * (version + self.most - rollout_id):
                return True
        return False


class _InFlightGroup(NamedTuple):
    """A group in flight as it was drawn, and the version of the weights then."""

    version: int
    group: Group
    task: "asyncio.Task[None]"


class ContinuousScheduler(Scheduler):
    """The policy `continuous`, and `sync` with partial rollouts, where generation pauses during training."""

    def __init__(self, parts: Parts, staleness: Staleness) -> None:
        super().__init__(parts)
        self._staleness = staleness
        self._version = self._collected = 0
        self._in_flight: dict[GroupId, _InFlightGroup] = {}
        self._ready: list[tuple[int, int, Group]] = []
        """Heap of (version, draw number, group)."""
        self._stats = RolloutStats("rollout 0")
        self._waiting_for: int | None = None
        self._per_group: int | None = None
        self._generating = 0
        """Samples that have or await a slot."""
        self._changed = asyncio.Event()
        self._drawing = asyncio.Lock()
        self._drawer: asyncio.Task[None] | None = None
        self._error: BaseException | None = None

    async def collect(self, rollout_id: int, want: int) -> RolloutResult:
        """Return the oldest finished groups, once there are enough and the staleness limit allows it."""
        self._waiting_for = want
        self._changed.set()  # a waiting step may allow more draws
        self._drawer = self._drawer or asyncio.create_task(self._draw_loop())
        try:
            while not self._is_complete(rollout_id, want):
                self._check(want)
                await self._next_change()
        finally:
            self._waiting_for = None
        result = self._hand_over(rollout_id, want)
        if self._staleness.over_sampling is not None:
            await self.runner.engine.pause()
        return result

    async def settle(self) -> None:
        """Pause groups in flight with partial rollouts; otherwise the engine decides when it switches weights."""
        if self.policy.partial_rollout and self._in_flight:
            await self.runner.engine.pause()

    def resume_with(self, version: int) -> None:
        """Resume generation, and set the version of groups drawn from now on."""
        if self._drawer is None:
            self._collected, self._stats = version, RolloutStats(f"rollout {version}")
        self._version = version
        self.runner.engine.resume()
        self._changed.set()

    @asynccontextmanager
    async def pause_draws(self) -> AsyncIterator[None]:
        async with self._drawing:
            yield

    def live(self) -> tuple[int, int]:
        return len(self._in_flight), len(self._ready)

    def state_dict(self) -> dict[str, Json]:
        """Return the groups in flight as they were drawn, and the finished ones."""
        return {
            "collected": self._collected,
            "in_flight": [each.group.to_dict() for each in self._in_flight.values()],
            "ready": [[version, number, group.to_dict()] for version, number, group in sorted(self._ready)],
        }

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        check_state_keys(state, {"collected", "in_flight", "ready"})
        if not state:
            return
        self._collected = cast(int, state["collected"])
        self._source.add([Group.from_dict(each) for each in cast(list[Mapping[str, Json]], state["in_flight"])])
        ready = cast(list[tuple[int, int, Mapping[str, Json]]], state["ready"])
        self._ready = [(version, number, Group.from_dict(group)) for version, number, group in ready]
        heapq.heapify(self._ready)

    async def close(self) -> None:
        drawer = [self._drawer] if self._drawer else []
        await cancel_all([*drawer, *(each.task for each in self._in_flight.values())])

    # --- drawing

    async def _draw_loop(self) -> None:
        try:
            while True:
                if count := self._groups_to_draw():
                    async with self._drawing:
                        for group in await self._source.draw(count):
                            self._start(group)
                else:
                    await self._next_change()
        except BaseException as error:
            self._fail(error)

    def _groups_to_draw(self) -> int:
        # Draw the first group alone, to learn how many samples it has.
        alive = len(self._in_flight) + len(self._ready)
        free = self._staleness.room(self._version, self._collected, self._waiting_for) - alive
        if self._per_group is None:
            return min(1, max(0, free))
        slots = self.policy.max_concurrency - self._generating
        return max(0, min(free, -(-slots // self._per_group)))

    def _start(self, group: Group) -> None:
        self._per_group = len(group.samples)
        self._generating += len(group.samples)
        task = asyncio.create_task(self._run_group(group, self._version))
        self._in_flight[group.id] = _InFlightGroup(self._version, group, task)

    async def _run_group(self, group: Group, version: int) -> None:
        try:
            purpose = Purpose(self._collected, False, self.policy.sampling, on_generated=self._freed)
            (ran,) = await self.runner.run_groups([group], purpose)
            if ran.is_interrupted:
                del self._in_flight[ran.drawn.id]
                self._source.add([group])
            else:
                await self._finish(ran, version)
        except BaseException as error:
            self._fail(error)
        self._changed.set()

    def _freed(self) -> None:
        self._generating -= 1
        if self._groups_to_draw():
            self._changed.set()

    async def _finish(self, ran: GroupProgress, version: int) -> None:
        self._stats.add_samples([ran])
        for execution in ran.executions.values():
            self._stats.errors.add(execution.failure)
        filtered = RolloutStats("")
        short = self._waiting_for is not None and len(self._ready) < self._waiting_for
        self.filter_groups([ran], FilterContext(self._collected), filtered, want=int(short))
        await self.emit(SamplesDone(self._collected, [each.sample for each in ran.scored], evaluation=False))
        del self._in_flight[ran.drawn.id]
        self._stats.failed += filtered.failed
        for group in filtered.kept:
            heapq.heappush(self._ready, (version, group.id.draw, group))
        for group in filtered.dropped:
            self._stats.drop(group, filtered.reasons[group.id])
        await self.emit(GroupsDone(self._collected, filtered.kept, filtered.reasons))

    def _fail(self, error: BaseException) -> None:
        # Keep the first error for `collect`; a cancelled task is no error, since `close` cancels tasks.
        if not isinstance(error, asyncio.CancelledError):
            self._error = self._error or error
        self._changed.set()

    # --- handing over

    def _is_complete(self, rollout_id: int, want: int) -> bool:
        if self._error is not None:
            raise self._error
        if len(self._ready) < want:
            return False
        finished = Counter(version for version, _, _ in self._ready)
        in_flight = Counter(each.version for each in self._in_flight.values())
        return not self._staleness.must_wait(rollout_id, want, finished, in_flight)

    def _check(self, want: int) -> None:
        self._stats.errors.check(self.policy.max_error_rate, expected=want * (self._per_group or 1))
        wave = self.policy.over_sampling_batch_size or max(1, want)
        if len(self._stats.dropped) >= self.policy.max_filter_waves * wave:
            self._stats.kept = [group for _, _, group in self._ready]
            raise self._stats.too_few_groups(want, self.policy.max_filter_waves)

    def _hand_over(self, rollout_id: int, want: int) -> RolloutResult:
        staleness, stats, self._stats = self._staleness, self._stats, RolloutStats(f"rollout {rollout_id + 1}")
        while self._ready and (len(stats.kept) < want or staleness.is_last_step(self._ready[0][0], rollout_id)):
            stats.kept.append(heapq.heappop(self._ready)[2])
        self._collected = rollout_id + 1
        self._changed.set()
        self.remove_samples(stats, FilterContext(rollout_id))
        stats.errors.check(self.policy.max_error_rate)
        return stats.result()

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


POLICIES = ("sync", "async", "continuous")
"""Allowed values of `rollout_policy`."""


def make_scheduler(policy: str, parts: Parts, batch: int, rollouts: int) -> Scheduler:
    """Return the scheduler of a policy of `POLICIES`, for `rollouts` steps of `batch` fresh groups each."""
    limit = Staleness(batch, rollouts, parts.policy.max_staleness)
    if policy == "continuous":
        return ContinuousScheduler(parts, limit)
    if parts.policy.partial_rollout:
        return ContinuousScheduler(parts, replace(limit, over_sampling=parts.policy.over_sampling_batch_size))
    return SyncScheduler(parts, ahead=policy == "async")


@dataclass(frozen=True, slots=True)
class EvalSet:
    """One data set to evaluate on."""

    name: str
    """Name in its metrics, `eval/<name>`."""
    groups: Sequence[Group]
    """Prompts, each with `n_samples_per_eval_prompt` pending samples, which evaluation does not change."""
    sampling: SamplingParams
    """Sampling parameters."""
    generator: UsedGenerator | None = None
    """Replaces the run's generator."""
    scoring: Scoring | None = None
    """Replaces the run's rewards."""


@dataclass(frozen=True, slots=True)
class EvalResult:
    """A finished evaluation."""

    samples: Mapping[str, Sequence[Sample]]
    """Frozen samples by data set, in the order of its rows."""
    metrics: Mapping[str, float]
    """Metrics of all data sets."""


async def evaluate(scheduler: Scheduler, sets: Sequence[EvalSet], *, rollout_id: int) -> EvalResult:
    """Evaluate on all data sets at once.

    Raises:
        RolloutError: more than `max_error_rate` of a data set's samples failed.
        WorkerError: the engine has failed for good.
    """
    results = await gather_or_cancel(*(_evaluate_set(scheduler, each, rollout_id) for each in sets))
    for samples, _ in results:
        await scheduler.emit(SamplesDone(rollout_id, samples, evaluation=True))
    return EvalResult(
        {each.name: samples for each, (samples, _) in zip(sets, results, strict=True)},
        {name: value for _, metrics in results for name, value in metrics.items()},
    )


async def _evaluate_set(scheduler: Scheduler, each: EvalSet, rollout_id: int) -> tuple[list[Sample], dict[str, float]]:
    stats, limit = RolloutStats(f"evaluation of {each.name}"), scheduler.policy.max_error_rate
    stats.errors.expect(sum(len(group.samples) for group in each.groups), limit)
    purpose = Purpose(rollout_id, True, each.sampling, each.generator, each.scoring, stats.errors)
    groups = await scheduler.runner.run_groups(each.groups, purpose)
    stats.add_samples(groups)
    stats.errors.check(limit)
    samples = [scored.sample for group in groups for scored in group.scored]
    for sample in samples:
        sample.freeze()
    return samples, measured_metrics(f"eval/{each.name}/", stats.measured) | evaluation_metrics(each.name, groups)
