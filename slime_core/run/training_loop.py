"""Training without an engine: the loop that training on kept samples and finetuning share.

Example:

    class Finetuning(TrainingLoop):
        async def _next(self, rollout_id): ...           # the groups to train on, and what is reported of them
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sized
from functools import partial

from slime_core.config import Plan, lock_plugins
from slime_core.errors import CheckpointError, StopRun
from slime_core.events import (
    CheckpointLoaded,
    CheckpointSaved,
    Event,
    RunEnd,
    RunFailed,
    RunStart,
    TrainStepEnd,
)
from slime_core.roles import Draw
from slime_core.run.changes import check_changes, saved_settings
from slime_core.run.checkpoint import Checkpoint, newest_checkpoint
from slime_core.run.folder import RunFolder
from slime_core.run.hf_copies import HfCopies
from slime_core.run.loop import Outcome
from slime_core.run.records import check_records
from slime_core.run.resumes import note_resume
from slime_core.run.run_hooks import RunHooks
from slime_core.run.saving import write_checkpoint
from slime_core.run.setup import Builder, count_rollouts
from slime_core.run.stop import StopRequest, on_signals
from slime_core.run.trackers import Trackers
from slime_core.run.trainer import Trainer, means
from slime_core.sample import Json
from slime_core.secrets import REDACTOR
from slime_core.telemetry import Display, MetricsLog, MetricsRow
from slime_core.train.prepare import shaping_metrics

LoopOf = Callable[[Plan, RunFolder, Display, MetricsLog], "TrainingLoop"]


async def run_training(plan: Plan, folder: RunFolder, display: Display, make: LoopOf) -> Outcome:
    """Run, or continue, a training loop in its folder.

    Raises:
        SlimeError: whatever ends the run; the newest checkpoint stays usable.
    """
    checkpoint = newest_checkpoint(folder.checkpoints, display.message)
    for note in check_changes(checkpoint, plan) if checkpoint else ():
        display.message(note)
    if checkpoint:
        check_records(checkpoint, folder)
    with MetricsLog(folder.metrics) as metrics:
        loop = make(plan, folder, display, metrics)
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


class TrainingLoop(ABC):
    """A training in progress."""

    unit = "rollout"
    """What is counted."""

    def __init__(self, plan: Plan, folder: RunFolder, display: Display, metrics: MetricsLog) -> None:
        """Build what needs no process."""
        self._plan, self._folder, self._display = plan, folder, display
        self._metrics = metrics
        self._build = build = Builder.of(plan)
        self._hooks = RunHooks(plan.catalog, build.stats)
        self._preparation = build.preparation()
        self._launcher = build.launcher(folder)
        self._trackers = Trackers()
        self._num_rollout = self.last = count_rollouts(plan.config.rollout, self._prompts)
        """Rollouts to train on."""
        self.stop = StopRequest()
        """Who asked it to end early."""
        self.rollout_id = 0
        """Rollouts done."""
        self._step = 0
        self._saved_at = 0

    async def run(self, checkpoint: Checkpoint | None) -> Outcome:
        """All remaining rollouts, after those that a checkpoint contains."""
        self._trackers = self._build.trackers(self._folder)
        first = checkpoint.rollout_id if checkpoint else 0
        await self.emit(RunStart(self._folder.root, first, self.last))
        self._display.phase("trainer: loading the model")
        steps = self._num_rollout * self._plan.config.optim.num_steps_per_rollout  # as long a schedule as theirs
        trainer = await Trainer.start(
            self._plan, self._launcher, self._folder.scratch, steps, tell=self._display.message
        )
        await self._resume(trainer, checkpoint)
        if checkpoint is None:
            await self._measure(trainer)
        while self.rollout_id < self.last and not self.stop.asked:
            await self._one_rollout(trainer)
            if self.rollout_id % self._plan.config.run.save_interval == 0:
                await self._save(trainer)
        if self._saved_at != self.rollout_id:
            await self._save(trainer)
        complete = self.rollout_id >= self.last or self.stop.enough
        return Outcome.DONE if complete else Outcome.STOPPED

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
        await self._trackers.close()

    @abstractmethod
    def _prompts(self) -> Sized:
        """What an epoch is of."""

    @abstractmethod
    async def _next(self, rollout_id: int) -> tuple[Draw, dict[str, float]]:
        """What to train on, and metrics of it."""

    def _own_state(self) -> dict[str, Json]:
        """What it trains on, as its checkpoints keep it."""
        return {}

    @abstractmethod
    async def _measure(self, trainer: Trainer) -> None:
        """Evaluate, where that is asked for now."""

    async def _one_rollout(self, trainer: Trainer) -> None:
        rollout_id, started = self.rollout_id, time.monotonic()
        draw, metrics = await self._next(rollout_id)
        rolled_out = time.monotonic()
        self._display.phase(f"trainer: {len(draw.groups)} groups")
        prepared = self._preparation.of(draw, rollout_id)
        report = await trainer.train(prepared, rollout_id)
        for step_metrics in report.steps:
            await self.emit(TrainStepEnd(rollout_id, self._step, step_metrics))
            self._step += 1
        done = time.monotonic()
        metrics |= {**shaping_metrics(prepared), **means(report.steps), "rollout/step": float(rollout_id)}
        metrics |= {"perf/train_time": done - rolled_out, "perf/step_time": done - started, **report.perf}
        await self._log({**metrics, **self._build.stats.take()})
        self.rollout_id += 1
        await self._measure(trainer)

    async def _log(self, metrics: dict[str, float]) -> None:
        metrics = {REDACTOR.redact(name): value for name, value in metrics.items()} | self._trackers.metrics()
        self._metrics.append(MetricsRow(self.rollout_id, self._step, time.time(), metrics))
        await self._trackers.log(self._step, metrics)
        self._display.row(self.rollout_id, metrics)

    async def _log_evaluation(self, metrics: dict[str, float]) -> None:
        self._metrics.append(MetricsRow(self.rollout_id, self._step, time.time(), metrics))
        await self._trackers.log(self._step, metrics)
        self._display.row(self.rollout_id, metrics)

    async def _save(self, trainer: Trainer) -> None:
        self._display.phase("checkpoint")
        state: dict[str, Json] = {
            "step": self._step,
            "metrics_position": self._metrics.position(),
            "plugins": lock_plugins(self._plan),
            "config": saved_settings(self._plan),
            **self._own_state(),
        }
        keep = self._plan.config.run.save_keep
        saved = await write_checkpoint(
            self._folder.checkpoints,
            self.rollout_id,
            state,
            partial(trainer.save, hf=self._plan.config.run.checkpoint_hf),
            keep,
            trainer.finish_save,
        )
        self._saved_at = self.rollout_id
        if (template := self._plan.config.run.save_hf) is not None:
            await asyncio.to_thread(HfCopies(template).keep, saved)
        await self.emit(CheckpointSaved(saved.path, self.rollout_id))

    async def _resume(self, trainer: Trainer, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            self._metrics.truncate(0)
            return
        state = checkpoint.state()
        accepts = self._plan.config.data.accept_changed_data
        if not accepts and any((state.model_extra or {}).get(key) != value for key, value in self._own_state().items()):
            raise CheckpointError(
                "the training data has changed since the checkpoint was written: put the old data back, pass "
                "--accept-changed-data to go on with the new from the same place, or start anew with another --save"
            )
        await trainer.load(checkpoint.path)
        self.rollout_id, self._step = checkpoint.rollout_id, state.step
        self._saved_at = self.rollout_id
        self._metrics.truncate(state.metrics_position)
        note_resume(self._folder.root, self.rollout_id)
        self._display.message(f"continuing after rollout {self.rollout_id} of {self.last}")
        await self.emit(CheckpointLoaded(checkpoint.path, self.rollout_id))
