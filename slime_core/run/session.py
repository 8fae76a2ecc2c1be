"""Session: every live part of one run, started in order and closed whatever happens.

Example:

    async with Session(plan, folder) as session:
        result = await session.scheduler.collect(rollout_id=0, want=64)
        report = await session.trainer.train(result.kept, [1.0] * 64)
        await session.publish(version=1)
"""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from types import TracebackType
from typing import cast

from slime_core.catalog import RunHooks
from slime_core.config import Plan
from slime_core.errors import ConfigError, StopRun
from slime_core.events import Event, GroupsDone, WeightsPublished
from slime_core.roles import RewardSpec, Tracker
from slime_core.rollout import EvalResult, RewardOnError, RewardUse, RolloutPolicy, Scheduler, evaluate
from slime_core.run.folder import RunFolder
from slime_core.run.ledger import GroupState, Ledger
from slime_core.run.ledgered_source import LedgeredSource
from slime_core.run.setup import Builder
from slime_core.run.stop import StopRequest
from slime_core.run.trainer import Trainer
from slime_core.telemetry import Display


class Session:
    """The parts. Building one reads the prompts; entering it starts processes."""

    def __init__(self, plan: Plan, folder: RunFolder, display: Display | None = None) -> None:
        """Build everything that needs no process; what it waits for is shown on the display.

        Raises:
            DataError: the prompts cannot be read.
            ModelError: the tokenizer cannot be read.
        """
        self.plan = plan
        self.folder = folder
        self.build = Builder(plan)
        self.hooks = RunHooks(plan.catalog)
        self.stop = StopRequest()
        self.tokenizer = self.build.tokenizer()
        with ExitStack() as undo:
            self.ledger = undo.enter_context(closing(Ledger(folder.ledger)))
            self.source = LedgeredSource(self.build.data_source(self.tokenizer), self.ledger)
            self.eval_sets = self.build.eval_sets(self.tokenizer)
            self.buffer = self.build.buffer()
            self.launcher = self.build.launcher(folder)
            self.engine = self.build.engine(self.launcher, self.tokenizer, folder)
            self.trackers: Sequence[Tracker] = ()
            self.num_rollout = self._count_rollouts()
            self.scheduler = self._scheduler()
            undo.pop_all()
        self._phase = display.phase if display else _ignore
        self._message = display.message if display else _ignore

    async def __aenter__(self) -> "Session":
        """Start trainer and engine; the engine serves nothing before the first `publish`.

        Raises:
            PluginError: a tracker could not be built.
            WorkerError: a process could not be started.
        """
        try:
            self.trackers = self.build.trackers(self.folder)
            self._phase("trainer: loading the model")
            steps = self.num_rollout * self.plan.config.optim.num_steps_per_rollout
            self.trainer = await Trainer.start(self.plan, self.launcher, self.folder.scratch, steps)
            self._phase("engine: loading the model")
            await self.engine.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Stop all processes and flush all files."""
        await self.engine.close()
        await self.launcher.close()
        for tracker in self.trackers:
            await tracker.close()
        self.ledger.close()

    async def publish(self, version: int) -> None:
        """Make the trainer's current weights the engine's, as a version."""
        await self.trainer.publish(version)
        await self.engine.load_weights(self.trainer.channel, version)
        await self.emit(WeightsPublished(version))

    async def evaluate(self, rollout_id: int) -> EvalResult:
        """Evaluate the engine's current weights on the run's evaluation sets."""
        return await evaluate(self.scheduler, self.eval_sets, rollout_id=rollout_id)

    async def emit(self, event: Event) -> None:
        """Keep the accounts, then tell the run hooks; one that raises `StopRun` ends the run after this step."""
        if isinstance(event, GroupsDone):
            self.ledger.record(GroupState.FINISHED, [group.id for group in event.kept], event.rollout_id)
            self.ledger.drop(event.dropped, event.rollout_id)
        try:
            await self.hooks.emit(event)
        except StopRun as reason:
            self.stop.ask(enough=True)
            self._message(f"a run hook ends the run after this step: {reason}")

    def _count_rollouts(self) -> int:
        rollout = self.plan.config.rollout
        if rollout.num_rollout is not None:
            return rollout.num_rollout
        assert rollout.num_epoch is not None, "refused by the config"
        if count := len(self.source) * rollout.num_epoch // rollout.rollout_batch_size:
            return count
        raise ConfigError(
            f"num_epoch = {rollout.num_epoch} over {len(self.source)} prompts is less than one rollout of "
            f"rollout_batch_size = {rollout.rollout_batch_size}: give num_rollout, or a smaller batch"
        )

    def _scheduler(self) -> Scheduler:
        rollout = self.plan.config.rollout
        rewards = [
            RewardUse(
                name=chosen.reference,
                plugin=chosen.registered.plugin,
                weight=chosen.weight,
                reward=self.build.reward(chosen),
                timeout_s=cast(RewardSpec, chosen.registered.spec).timeout_s,
            )
            for chosen in self.plan.roles["reward"]
        ]
        policy = RolloutPolicy(
            seed=self.plan.config.run.seed,
            sampling=self.build.sampling(),
            over_sampling_batch_size=rollout.over_sampling_batch_size or rollout.rollout_batch_size,
            max_concurrency=rollout.max_concurrency,
            max_filter_waves=rollout.max_filter_waves,
            sample_timeout_s=rollout.sample_timeout_s,
            reward_on_error=RewardOnError(rollout.reward_on_error),
            max_error_rate=rollout.max_error_rate,
        )
        return Scheduler(
            policy=policy,
            source=self.source,
            engine=self.engine,
            tokenizer=self.tokenizer,
            generator=self.build.generator(),
            generator_plugin=self.plan.one("generator").registered.plugin,
            rewards=rewards,
            group_filter=self.build.group_filter(),
            filter_plugin=filtering.registered.plugin if (filtering := self.plan.maybe("group_filter")) else "",
            emit=self.emit,
        )


def _ignore(text: str) -> None:
    """Without a display, nobody is told."""
