"""Training on kept samples: no engine, no prompts; the same weights and training metrics as the run that kept them.

Example:

    outcome = await train_only(plan, folder, display, Path("runs/first"))       # continues from its own checkpoints
"""

import asyncio
import time
from pathlib import Path

from slime_core.config import Plan, lock_plugins
from slime_core.errors import StopRun
from slime_core.events import (
    CheckpointLoaded,
    CheckpointSaved,
    Event,
    RolloutEnd,
    RolloutStart,
    RunEnd,
    RunFailed,
    RunStart,
    TrainStepEnd,
)
from slime_core.rollout.tally import Tally
from slime_core.run.changes import check_changes, saved_settings
from slime_core.run.checkpoint import Checkpoint, newest_checkpoint
from slime_core.run.folder import RunFolder
from slime_core.run.loop import Outcome, count_of
from slime_core.run.run_hooks import RunHooks
from slime_core.run.saving import write_checkpoint
from slime_core.run.setup import Builder, count_rollouts
from slime_core.run.stop import StopRequest, on_signals
from slime_core.run.stored import StoredRollouts
from slime_core.run.trackers import Trackers
from slime_core.run.trainer import Trainer, means
from slime_core.sample import Json
from slime_core.secrets import REDACTOR
from slime_core.telemetry import Display, Generated, MetricsLog, MetricsRow
from slime_core.train.prepare import shaping_metrics


async def train_only(plan: Plan, folder: RunFolder, display: Display, kept: Path) -> Outcome:
    """Train on the rollouts that a run folder keeps, as many as the plan has and the folder holds.

    Raises:
        SlimeError: whatever ends the run; the newest checkpoint stays usable.
    """
    stored = StoredRollouts(kept)
    checkpoint = newest_checkpoint(folder.checkpoints, display.message)
    for note in check_changes(checkpoint, plan) if checkpoint else ():
        display.message(note)
    with MetricsLog(folder.metrics) as metrics:
        half = TrainOnly(plan, folder, display, metrics, stored)
        display.start(half.last, folder.root.name, first_rollout=checkpoint.rollout_id if checkpoint else 0)
        with on_signals(half.stop, display.message):
            try:
                outcome = await half.run(checkpoint)
                await half.emit(RunEnd(folder.root, half.rollout_id))
            except BaseException as error:
                await half.emit(RunFailed(folder.root, error))
                raise
            finally:
                await half.close()
    return outcome


class TrainOnly:
    """The second half of a run in progress."""

    def __init__(
        self, plan: Plan, folder: RunFolder, display: Display, metrics: MetricsLog, stored: StoredRollouts
    ) -> None:
        """Build what needs no process; prompts are read only to count a run that is as long as its epochs."""
        self._plan, self._folder, self._display = plan, folder, display
        self._metrics, self._stored = metrics, stored
        self._build = build = Builder.of(plan)
        self._hooks = RunHooks(plan.catalog, build.stats)
        self._preparation = build.preparation()
        self._launcher = build.launcher(folder)
        self._trackers = Trackers()
        self._num_rollout = count_rollouts(plan.config.rollout, lambda: build.data_source(build.tokenizer()))
        self.last = min(self._num_rollout, len(stored))
        """Rollouts to train on."""
        self.stop = StopRequest()
        """Who asked it to end early."""
        self.rollout_id = 0
        """Rollouts done."""
        self._step = 0
        self._saved_at = 0

    async def run(self, checkpoint: Checkpoint | None) -> Outcome:
        """All remaining rollouts, after those that a checkpoint contains."""
        if self.last < self._num_rollout:
            self._display.message(f"samples of {self.last} of {self._num_rollout} rollouts were kept")
        self._trackers = self._build.trackers(self._folder)
        first = checkpoint.rollout_id if checkpoint else 0
        await self.emit(RunStart(self._folder.root, first, self.last))
        self._display.phase("trainer: loading the model")
        steps = self._num_rollout * self._plan.config.optim.num_steps_per_rollout  # as long a schedule as theirs
        trainer = await Trainer.start(self._plan, self._launcher, self._folder.scratch, steps)
        await self._resume(trainer, checkpoint)
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

    async def _one_rollout(self, trainer: Trainer) -> None:
        rollout_id, started = self.rollout_id, time.monotonic()
        await self.emit(RolloutStart(rollout_id, rollout_id))
        self._display.phase("reading kept samples")
        generated, draw = await asyncio.to_thread(self._stored.read, rollout_id)
        rolled_out = time.monotonic()
        metrics = _rollout_metrics(rollout_id, generated)
        await self.emit(RolloutEnd(rollout_id, generated.kept, generated.dropped, metrics))
        self._display.phase(f"trainer: {len(draw.groups)} groups")
        prepared = self._preparation.of(draw, rollout_id)
        report = await trainer.train(prepared, rollout_id)
        for step_metrics in report.steps:
            await self.emit(TrainStepEnd(rollout_id, self._step, step_metrics))
            self._step += 1
        done = time.monotonic()
        metrics |= {**shaping_metrics(prepared), **means(report.steps), "rollout/step": float(rollout_id)}
        metrics |= {"perf/train_time": done - rolled_out, "perf/step_time": done - started}
        await self._log({**metrics, **self._build.stats.take()})
        self.rollout_id += 1

    async def _log(self, metrics: dict[str, float]) -> None:
        metrics = {REDACTOR.redact(name): value for name, value in metrics.items()} | self._trackers.metrics()
        self._metrics.append(MetricsRow(self.rollout_id, self._step, time.time(), metrics))
        await self._trackers.log(self._step, metrics)
        self._display.row(self.rollout_id, metrics)

    async def _save(self, trainer: Trainer) -> None:
        self._display.phase("checkpoint")
        state: dict[str, Json] = {
            "rollout_id": self.rollout_id,
            "step": self._step,
            "metrics_position": self._metrics.position(),
            "plugins": lock_plugins(self._plan),
            "config": saved_settings(self._plan),
        }
        keep = self._plan.config.run.save_keep
        saved = await write_checkpoint(self._folder.checkpoints, self.rollout_id, state, trainer.save, keep)
        self._saved_at = self.rollout_id
        await self.emit(CheckpointSaved(saved.path, self.rollout_id))

    async def _resume(self, trainer: Trainer, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            self._metrics.truncate(0)
            return
        state = checkpoint.state()
        await trainer.load(checkpoint.path)
        self.rollout_id, self._step = count_of(state, "rollout_id"), count_of(state, "step")
        self._saved_at = self.rollout_id
        self._metrics.truncate(count_of(state, "metrics_position"))
        self._display.message(f"continuing after rollout {self.rollout_id} of {self.last}")
        await self.emit(CheckpointLoaded(checkpoint.path, self.rollout_id))


def _rollout_metrics(rollout_id: int, generated: Generated) -> dict[str, float]:
    """Those that groups tell: lengths, rewards, reasons."""
    tally = Tally(f"rollout {rollout_id}")
    tally.kept += generated.kept
    for group in generated.dropped:
        tally.drop(group, generated.reasons[group.id])
    return tally.metrics()
