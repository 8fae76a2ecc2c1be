"""Training without an engine: the loop that training on kept samples and finetuning share.

Example:

    class Finetuning(TrainingLoop):
        async def _next(self, rollout_id): ...           # the groups to train on, and what is reported of them
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sized
from typing import cast

from slime_core.batching.prepare import shaping_metrics
from slime_core.config import Plan
from slime_core.errors import CheckpointError, StopRun
from slime_core.events import Event, RunEnd, RunFailed, RunStart, TrainStepEnd
from slime_core.roles import Draw
from slime_core.run import Checkpoint, Outcome, RunFolder, Trainer, newest_checkpoint
from slime_core.run.build import Builder, tokenizer_notes
from slime_core.run.checkpoint import check_changes
from slime_core.run.folder import StopRequest, on_signals
from slime_core.run.ledger import SavedState
from slime_core.run.loop import BaseLoop, check_records, what_is_lost
from slime_core.run.prompts import count_rollouts
from slime_core.run.trainer import means
from slime_core.run.watching import RunHooks, Trackers
from slime_core.sample import Json
from slime_core.telemetry import Display, MetricsLog

LoopOf = Callable[[Plan, RunFolder, Display, MetricsLog], "TrainingLoop"]


async def run_training(plan: Plan, folder: RunFolder, display: Display, make: LoopOf) -> Outcome:
    """Run, or continue, a training loop in its folder.

    Raises:
        SlimeError: whatever ends the run; the newest checkpoint stays usable.
    """
    checkpoint = newest_checkpoint(folder.checkpoints, display.message)
    if checkpoint:
        check_records(checkpoint, folder)
    with MetricsLog(folder.metrics) as metrics:
        loop = make(plan, folder, display, metrics)
        try:
            for note in check_changes(checkpoint, plan, loop.train_steps) if checkpoint else ():
                display.message(note)
            for note in tokenizer_notes(loop.build):
                display.message(note)
        except BaseException:
            folder.restore_config()
            await loop.close()
            raise
        if not checkpoint and (lost := what_is_lost(plan, folder, loop.unit)):
            display.message(lost)
        first = checkpoint.rollout_id if checkpoint else 0
        display.start(loop.last, folder.root.name, first_rollout=first, unit=loop.unit)
        with on_signals(loop.stop, display.message):
            try:
                outcome = await loop.run(checkpoint)
                await loop.emit(RunEnd(folder.root, loop.rollout_id))
            except BaseException as error:
                await loop.emit(RunFailed(folder.root, error))
                raise
            finally:
                await loop.close()
    return outcome


class TrainingLoop(BaseLoop):
    """A training in progress."""

    unit = "rollout"
    """What is counted."""

    def __init__(self, plan: Plan, folder: RunFolder, display: Display, metrics: MetricsLog) -> None:
        """Build what needs no process."""
        build = Builder.of(plan)
        super().__init__(build, folder, display, metrics)
        self._hooks = RunHooks(plan.catalog, build.stats)
        self._preparation = build.preparation()
        self._launcher = build.launcher(folder)
        self._tracked, self._started = Trackers(), cast(Trainer | None, None)
        self._num_rollout = self.last = count_rollouts(plan.config.rollout, self._prompts)
        """Rollouts to train on."""
        self.train_steps = self._num_rollout * self._config.optim.num_steps_per_rollout
        self._stop = StopRequest()

    @property
    def stop(self) -> StopRequest:
        """Who asked it to end early."""
        return self._stop

    @property
    def _last(self) -> int:
        return self.last

    @property
    def _trainer(self) -> Trainer:
        assert self._started is not None, "it is started before it is asked for"
        return self._started

    @property
    def _trackers(self) -> Trackers:
        return self._tracked

    async def _run(self, checkpoint: Checkpoint | None) -> Outcome:
        self._tracked = self.build.trackers(self._folder)
        first = checkpoint.rollout_id if checkpoint else 0
        await self.emit(RunStart(self._folder.root, first, self.last))
        self._display.phase("trainer: loading the model")
        self._started = await Trainer.start(
            self._plan, self._launcher, self._folder.scratch, self.train_steps, tell=self._display.message
        )
        if checkpoint is None:
            self._metrics.truncate(0)
            self._spans.clear()
            self._saved_at = 0  # nothing is to be resumed before the first step
            await self._measure()
        else:
            await self._resume(checkpoint)
        while self.rollout_id < self.last and not self.stop.asked:
            await self._saved(wait=False)
            await self._one_rollout()
            if self.rollout_id % self._config.run.save_interval == 0:
                await self._save()
        return await self._end()

    async def emit(self, event: Event) -> None:
        """Tell the run hooks; one that raises `StopRun` ends the run after this step."""
        try:
            await self._hooks.emit(event)
        except StopRun as reason:
            self.stop.ask(enough=True)
            self._display.message(f"a run hook ends the run after this step: {reason}")

    async def close(self) -> None:
        """Stop all processes and flush all files."""
        await self._launcher.close()
        await self._tracked.close()

    @abstractmethod
    def _prompts(self) -> Sized:
        """The rows of an epoch."""

    @abstractmethod
    async def _next(self, rollout_id: int) -> tuple[Draw, dict[str, float]]:
        """What to train on, and metrics of it."""

    def _own_state(self) -> dict[str, Json]:
        """What it trains on, as its checkpoints keep it."""
        return {}

    async def _parts(self) -> Mapping[str, Json]:
        return self._own_state()

    def _restore(self, checkpoint: Checkpoint, state: SavedState) -> None:
        accepts, kept = self._config.data.accept_changed_data, state.model_extra or {}
        if not accepts and any(kept.get(key) != value for key, value in self._own_state().items()):
            raise CheckpointError(
                "the training data has changed since the checkpoint was written: put the old data back, pass "
                "--accept-changed-data to go on with the new from the same place, or start anew with another --save"
            )

    def _taken(self) -> Mapping[str, float]:
        return self.build.stats.take()

    @abstractmethod
    async def _measure(self) -> None:
        """Evaluate, where that is asked for now."""

    async def _one_rollout(self) -> None:
        rollout_id, started = self.rollout_id, time.monotonic()
        draw, metrics = await self._next(rollout_id)
        rolled_out = time.monotonic()
        self._display.phase(f"trainer: {len(draw.groups)} groups")
        prepared = self._preparation.of(draw, rollout_id)
        report = await self._trainer.train(prepared, rollout_id)
        for step_metrics in report.steps:
            await self.emit(TrainStepEnd(rollout_id, self._step, step_metrics))
            self._step += 1
        done = time.monotonic()
        self._spans.add_phase("read", rollout_id, started, rolled_out)
        self._spans.add_phase("train", rollout_id, rolled_out, done)
        if report.worked is not None:
            self._spans.add_phase("optimizer steps", rollout_id, *report.worked)
        metrics |= {**shaping_metrics(prepared), **means(report.steps), "rollout/step": float(rollout_id)}
        metrics |= {"perf/train_time": done - rolled_out, "perf/step_time": done - started, **report.perf}
        await self._log(rollout_id, metrics)
        self.rollout_id += 1
        await self._measure()
