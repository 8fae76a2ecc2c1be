"""The session: starts every live part of one run in order, and closes them all at its end.

A custom loop can open a session from the keys of a run file. Engine and trainer on shared devices take turns with the
memory. `settled_heap` keeps Python's garbage collector from scanning long-lived objects.

Example:

    async with Session(plan, folder) as session:
        result = await session.scheduler.collect(rollout_id=0, want=64)
        draw = Draw(result.kept, [1.0] * len(result.kept))
        report = await session.trainer.train(session.preparation.prepare(draw, rollout_id=0), rollout_id=0)
        await session.publish(version=1)
"""

import asyncio
import enum
import gc
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sized
from contextlib import (
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
)
from dataclasses import replace
from typing import Self, cast

from slime_core.aio import gather_or_cancel
from slime_core.batching.prepare import Preparation
from slime_core.catalog import Catalog
from slime_core.catalog.catalog import BuiltChoice
from slime_core.config import Plan, parse_config, read_positions, read_vocab_size, resolve, teacher_sampling
from slime_core.errors import ConfigError, StopRun
from slime_core.events import Event, GroupsDone, WeightsPublished
from slime_core.processes import Watchdog
from slime_core.roles import (
    DataSourceSpec,
    EngineSpec,
    GeneratorSpec,
    GroupRewardSpec,
    MemoryTag,
    MemoryTags,
    ReleasesMemory,
    RewardSpec,
    TrainerSpec,
    TransportSpec,
    WeightChannel,
)
from slime_core.rollout import (
    Choices,
    EvalResult,
    Parts,
    RewardOnError,
    RolloutPolicy,
    Scheduler,
    Scoring,
    ServedTeacher,
    StallReporter,
    SyncScheduler,
    evaluate,
    make_scheduler,
)
from slime_core.run.build import Builder
from slime_core.run.folder import RunFolder, StopRequest
from slime_core.run.ledger import GroupState, Ledger, LedgeredSource
from slime_core.run.prompts import RowChecks
from slime_core.run.trainer import Publisher, Trainer, shared_fields
from slime_core.run.watching import RunHooks, Trackers
from slime_core.sample import Json
from slime_core.telemetry import Display
from slime_core.telemetry.recording import SampleWriter, recorder

NO_TAGS: MemoryTags = frozenset()


class Phase(enum.Enum):
    """The part of a step that a run is in; it determines who needs memory."""

    GENERATE = "generate"
    TRAIN = "train"
    PUBLISH = "publish"


class Memory:
    """Makes engine and ranks on shared devices release memory in turn. At the start both hold all of it."""

    def __init__(
        self,
        engine: ReleasesMemory | None = None,
        trainer: ReleasesMemory | None = None,
        of_engine: MemoryTags = NO_TAGS,
        of_trainer: MemoryTags = NO_TAGS,
    ) -> None:
        """Set what the engine releases while ranks train, and what the ranks release while engines generate."""
        self._sides = engine, trainer
        self._phase, self._released = Phase.PUBLISH, (NO_TAGS, NO_TAGS)
        self._released_in = {
            Phase.GENERATE: (NO_TAGS, of_trainer),
            Phase.PUBLISH: (of_engine - {MemoryTag.WEIGHTS}, NO_TAGS),
            Phase.TRAIN: (of_engine, NO_TAGS),
        }

    async def go_to(self, phase: Phase) -> None:
        """Release one side's memory before the other reacquires its own."""
        changes = list(zip(self._sides, self._released, self._released_in[phase], strict=True))
        for side, before, now in changes:
            if side and (more := now - before):
                await side.release(more)
        for side, before, now in reversed(changes):
            if side and (less := before - now):
                await side.resume(less)
        self._phase, self._released = phase, self._released_in[phase]

    @asynccontextmanager
    async def during(self, phase: Phase) -> AsyncIterator[None]:
        """Context manager that switches to another phase and back."""
        before = self._phase
        await self.go_to(phase)
        yield
        await self.go_to(before)


NEW_OBJECTS = 100_000
"""Garbage collection threshold of the youngest generation, in new objects."""


@contextmanager
def settled_heap() -> Iterator[None]:
    """Context manager that freezes existing objects and makes garbage collection rare; keeps a rarer setting."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    if 0 < before[0] < NEW_OBJECTS:
        gc.set_threshold(NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class BaseSession:
    """The parts that every kind of run has: hooks, trackers, launcher, trainer and the stop request."""

    num_rollout: int
    """Number of rollouts of the whole run."""
    train_steps: int
    """Number of optimizer steps of the whole run."""
    preparation: Preparation
    """Turns a draw into prepared groups."""
    trainer: Trainer

    def __init__(self, plan: Plan, folder: RunFolder, display: Display | None = None, *, unit: str = "rollout") -> None:
        """Build the parts without processes; `unit` is what the run counts. Call `set_length` before entering."""
        self.plan, self.folder, self.unit = plan, folder, unit
        self.builder = Builder(plan)
        self.stats = self.builder.stats
        self.hooks = RunHooks(plan.catalog, self.stats)
        self.stop = StopRequest()
        self.trackers = Trackers(self.stats)
        self.memory = Memory()
        """Memory on devices that engines and ranks share."""
        self._phase = display.phase if display else lambda text: None
        self._message = display.message if display else lambda text: None
        self.launcher = self.builder.launcher(folder)
        for note in self.builder.tokenizer_notes():
            self._message(note)

    def set_length(self, prompts: Callable[[], Sized]) -> None:
        """Set the length of the run; calls `prompts` only if the run is set in epochs.

        Raises:
            ConfigError: the epochs have too few prompts for one rollout.
        """
        rollout = self.plan.config.rollout
        batch, epochs = rollout.rollout_batch_size, rollout.num_epoch or 0
        self.num_rollout = rollout.num_rollout or (size := len(prompts())) * epochs // batch
        if not self.num_rollout:
            raise ConfigError(
                f"num_epoch = {epochs} over {size} prompts is less than one rollout of rollout_batch_size = {batch}: "
                "give num_rollout, or a smaller batch"
            )
        self.train_steps = self.num_rollout * self.plan.config.optim.num_steps_per_rollout

    async def __aenter__(self) -> Self:
        """Start processes: the trainer, then the parts of the subclass.

        Raises:
            PluginError: a tracker, shaper, transform or isolated reward could not be built, or a generator did not
                start.
            WorkerError: a process could not be started.
        """
        try:
            self.trackers = self.builder.trackers(self.folder)
            self.preparation = self.builder.preparation()
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def _start(self) -> None:
        self._phase("trainer: loading the model")
        self.trainer = await Trainer.start(
            self.plan, self.launcher, self.folder.scratch, self.train_steps, report=self._message
        )

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop all processes and flush all files; an error is raised only after all parts are closed."""
        async with AsyncExitStack() as last_first:
            last_first.push_async_callback(self.trackers.close)
            last_first.push_async_callback(self.launcher.close)

    async def watch(self) -> None:
        """Wait until the trainer's ranks end; the pool watches the engines.

        Raises:
            WorkerError: a rank died between two calls.
        """
        await self.trainer.watch()

    async def emit(self, event: Event) -> None:
        """Call the run hooks; a hook that raises `StopRun` ends the run after this step."""
        try:
            await self.hooks.emit(event)
        except StopRun as reason:
            self.stop.request(complete=True)
            self._message(f"a run hook ends the run after this step: {reason}")

    def take_stats(self) -> Mapping[str, float]:
        """Return the statistics since the last call."""
        return self.stats.take()


class Session(BaseSession):
    """All live parts of one run. Creating it reads the prompts; entering it starts processes.

    The engine serves no weights before the first `publish`.
    """

    def __init__(self, plan: Plan, folder: RunFolder, display: Display | None = None) -> None:
        """Build the parts that need no process; the display shows progress.

        Raises:
            DataError: the prompts cannot be read, or a row names a reward or a generator that does not exist.
            ModelError: the tokenizer cannot be read.
        """
        super().__init__(plan, folder, display)
        self.tokenizer = self.builder.tokenizer()
        with ExitStack() as undo:
            undo.callback(self.builder.protection.close)  # the checks of labels may have started workers
            self.replay = self.builder.replay()
            self.ledger = undo.enter_context(closing(Ledger(folder.ledger, self.replay.max_uses)))
            self.builder.build_served_models(self.launcher, folder)
            source, read = RowChecks(self.builder).read()
            self.eval_sets = [each for each, _ in read]
            chosen = plan.roles.one(DataSourceSpec)
            self.source = LedgeredSource(BuiltChoice(chosen.reference, chosen.plugin, source), self.ledger)
            self.buffer = self.builder.buffer()
            self.engine = self.builder.policy_engines(self.launcher, folder)
            self._transport, self._publisher = self.builder.transport(folder), cast(Publisher | None, None)
            self.set_length(lambda: self.source)
            self.scheduler = self._scheduler()
            undo.pop_all()
        self._watching = ExitStack()
        self.served_version = 0
        """Version of the weights that engines serve."""
        for note in (*self.source.data_notes(), *(note for _, notes in read for note in notes)):
            self._message(note)

    async def _start(self) -> None:
        await self.builder.protection.start()
        if not self.plan.config.debug.debug_rollout_only:
            await super()._start()
            spec = self.plan.roles.one(TransportSpec).spec
            self._publisher = await Publisher.open(
                self.trainer, self.engine, self._transport, rendezvous=spec.rendezvous
            )
            roles, cluster = self.plan.roles, self.plan.config.cluster
            of_engine = roles.one(EngineSpec).spec.releases if cluster.offloads_rollout else NO_TAGS
            of_trainer = roles.one(TrainerSpec).spec.releases if cluster.offloads_train else NO_TAGS
            self.memory = Memory(self.engine, self.trainer, of_engine, of_trainer)
        self._phase("engine: loading the model")
        await gather_or_cancel(self.engine.start(), *(each.start() for each in self.builder.models.values()))
        for each in self.builder.lifecycles:
            await each.start()
        self._watching.enter_context(Watchdog())
        self._watching.enter_context(settled_heap())
        self._watching.enter_context(StallReporter(self.scheduler.runner.in_flight, self._message))

    async def watch(self) -> None:
        if self.plan.config.debug.debug_rollout_only:
            await asyncio.Event().wait()
        await super().watch()

    async def close(self) -> None:
        async with AsyncExitStack() as last_first:
            last_first.callback(self.ledger.close)
            if self._publisher is not None:
                last_first.push_async_callback(self._publisher.close)
            last_first.push_async_callback(super().close)
            last_first.push_async_callback(self.engine.close)
            for served in self.builder.models.values():
                last_first.push_async_callback(served.pool.close)
            last_first.callback(self.builder.protection.close)
            for each in reversed(self.builder.lifecycles):
                last_first.push_async_callback(each.close)
            last_first.push_async_callback(self.scheduler.close)
            last_first.callback(self._watching.close)

    async def publish(self, version: int) -> None:
        """Load the trainer's weights, or without a trainer the model directory's, into the engine as a version.

        Raises:
            SlimeError: sending or loading failed.
        """
        await self.scheduler.settle()
        await self.memory.go_to(Phase.PUBLISH)
        if self._publisher is not None:
            await self._publisher.publish(version)
        else:
            await self.engine.load_weights(WeightChannel("none", ()), version)  # loads the model directory
        await self.memory.go_to(Phase.GENERATE)
        self.served_version = version
        self.scheduler.resume_with(version)
        await self.emit(WeightsPublished(version))

    async def keep_version(self) -> None:
        """Continue to serve the same version, although the trainer has newer weights."""
        await self.scheduler.settle()
        await self.memory.go_to(Phase.GENERATE)
        self.scheduler.resume_with(self.served_version)

    async def evaluate(self, rollout_id: int) -> EvalResult:
        """Evaluate the engine's current weights on the run's evaluation sets."""
        return await evaluate(self.scheduler, self.eval_sets, rollout_id=rollout_id)

    async def emit(self, event: Event) -> None:
        """Record finished groups in the ledger, then call the run hooks."""
        if isinstance(event, GroupsDone):
            self.ledger.record(GroupState.FINISHED, [group.id for group in event.kept], event.rollout_id)
            self.ledger.drop(event.dropped, event.rollout_id)
        await super().emit(event)

    def take_stats(self) -> Mapping[str, float]:
        return {**self.stats.take(), **self.engine.take()}

    def _scheduler(self) -> Scheduler:
        rollout, model = self.plan.config.rollout, self.plan.config.run.hf_checkpoint
        policy = RolloutPolicy(
            **shared_fields(RolloutPolicy, rollout)
            | {
                "seed": self.plan.config.run.seed,
                "sampling": rollout.sampling(),
                "over_sampling_batch_size": rollout.over_sampling_batch_size or rollout.rollout_batch_size,
                "reward_on_error": RewardOnError(rollout.reward_on_error),
                "max_staleness": 1 if rollout.max_staleness is None else rollout.max_staleness,
                "wanted_extras": self.plan.want,
                "max_context": rollout.rollout_max_context_len or read_positions(model),
                "max_turns": rollout.rollout_max_turns,
                "vocab_size": read_vocab_size(model),
            }
        )
        parts = Parts(
            policy=policy,
            source=self.source,
            engine=self.engine,
            tokenizer=self.tokenizer,
            choices=self._choices(),
            group_filter=self.builder.group_filter(),
            sample_filters=self.builder.sample_filters(),
            emit=self.emit,
        )
        if self.plan.config.debug.debug_rollout_only:
            return SyncScheduler(parts)  # there is no training to overlap with
        batch = math.ceil(rollout.rollout_batch_size / self.replay.ratio)
        return make_scheduler(rollout.rollout_policy, parts, batch, self.num_rollout)

    def _choices(self) -> Choices:
        """Return the run's generator and rewards, which are also the ones that rows name."""
        roles = self.plan.roles
        rewards = [replace(self.builder.reward(each.reference), weight=each.weight) for each in roles.all(RewardSpec)]
        group_rewards = [self.builder.group_reward(each) for each in roles.all(GroupRewardSpec)]
        generator = self.builder.generator(roles.one(GeneratorSpec).reference)
        scoring = Scoring(rewards, group_rewards, bool(self.builder.reward_keys()))
        name = self.plan.config.distillation.opd_teacher_model
        teacher = (
            None if name is None else ServedTeacher(name, self.builder.models[name], teacher_sampling(self.plan.config))
        )
        return Choices(generator, scoring, self.builder.generator, self.builder.reward, teacher)


@contextmanager
def open_session(values: Mapping[str, Json]) -> Iterator[Session]:
    """Context manager that resolves a configuration and opens its run folder; starts no process.

    Raises:
        SlimeError: same errors as `slime train` before it starts processes.
    """
    config = parse_config(values)
    plan = resolve(config, Catalog.discover(config.plugins))
    with RunFolder.open(config.run.save, config.to_dict()) as folder:
        yield Session(plan, folder)


async def evaluate_model(plan: Plan, folder: RunFolder, display: Display) -> dict[str, float]:
    """Evaluate the plan's `hf_checkpoint` on its evaluation sets; writes samples to the folder."""
    session = Session(plan, folder, display)
    count = sum(len(group.samples) for each in session.eval_sets for group in each.groups)
    display.start(count, f"evaluation of {plan.config.run.hf_checkpoint}", unit="sample")
    with recorder("samples", SampleWriter, folder.samples) as samples:
        async with session:
            await session.publish(0)
            began = time.monotonic()
            display.phase(f"evaluation: {', '.join(plan.config.evaluation.eval_prompt_data)}")
            result = await session.evaluate(0)
        display.row(count - 1, {"perf/step_time": time.monotonic() - began})
        await samples.write_eval(0, result.samples)
        await samples.flush()
    return dict(result.metrics)
