"""What every loop does with a run: resume from a checkpoint, write a row of metrics, save, and stop when asked.

Example:

    class Loop(BaseLoop):
        async def _run(self, checkpoint): ...       # resume, then rollouts, then the last checkpoint
        async def _parts(self): ...                 # what its checkpoints hold besides the model
        def _restore(self, checkpoint, state): ...  # the same, back where it was
"""

import asyncio
import enum
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial

from slime_core.config import Plan, lock_plugins
from slime_core.errors import CheckpointError, RunFolderError
from slime_core.events import CheckpointLoaded, CheckpointSaved, Event
from slime_core.outputs import run_id_of
from slime_core.run.alarms import Alarms
from slime_core.run.changes import saved_settings
from slime_core.run.checkpoint import Checkpoint
from slime_core.run.folder import RunFolder
from slime_core.run.hf_copies import HfCopies
from slime_core.run.ledger import digest_before
from slime_core.run.resumes import note_resume
from slime_core.run.saved import SavedState
from slime_core.run.saving import Saver
from slime_core.run.setup import Builder
from slime_core.run.stop import StopRequest
from slime_core.run.trackers import Trackers
from slime_core.run.trainer import Trainer
from slime_core.sample import Json
from slime_core.secrets import REDACTOR
from slime_core.telemetry import Display, MetricsLog, MetricsRow, SpanLog


class Outcome(enum.Enum):
    """How a run ended."""

    DONE = "done"
    """All rollouts are trained, or a run hook said that it is enough."""
    STOPPED = "stopped"
    """Somebody asked it to stop; the last step is saved."""


class BaseLoop(ABC):
    """One run in progress."""

    train_steps: int
    """Optimizer steps of the whole run."""

    def __init__(self, build: Builder, folder: RunFolder, display: Display, metrics: MetricsLog) -> None:
        """Begin at nothing; `build` builds the run's parts, and metrics are appended to `metrics`."""
        plan, self.build = build.plan, build
        self._config = plan.config
        self._plan, self._folder, self._display, self._metrics = plan, folder, display, metrics
        self._spans = SpanLog(folder.spans)
        self._alarms = Alarms(self._config.alarms, self._config.rollout)
        self.rollout_id = 0
        """Rollouts done."""
        self._step = 0
        self._saver = Saver(folder.checkpoints, self._config.run.save_keep)
        template = self._config.run.save_hf
        self._hf_copies = HfCopies(template, run_id_of(folder.root)) if template is not None else None
        self._saved_at = -1
        self._plugins = lock_plugins(plan)  # now: this code is loaded, and files may be edited while the run goes on

    @property
    @abstractmethod
    def stop(self) -> StopRequest:
        """Who asked the run to end early."""

    @property
    @abstractmethod
    def _last(self) -> int:
        """Rollouts of the whole run."""

    @property
    @abstractmethod
    def _trainer(self) -> Trainer:
        """The trainer, started."""

    @property
    @abstractmethod
    def _trackers(self) -> Trackers:
        """The run's trackers."""

    @abstractmethod
    async def emit(self, event: Event) -> None:
        """Tell the run hooks."""

    @abstractmethod
    async def _run(self, checkpoint: Checkpoint | None) -> Outcome:
        """All remaining rollouts."""

    @abstractmethod
    async def _parts(self) -> Mapping[str, Json]:
        """What a checkpoint holds of this loop besides the model, its place and the plugins."""

    @abstractmethod
    def _restore(self, checkpoint: Checkpoint, state: SavedState) -> None:
        """Put what `_parts` gave back where it was.

        Raises:
            CheckpointError: it cannot be used.
        """

    @abstractmethod
    def _taken(self) -> Mapping[str, float]:
        """What was counted since the last row."""

    def _training(self) -> AbstractAsyncContextManager[None]:
        """In it the ranks have their memory."""
        return nullcontext()

    async def run(self, checkpoint: Checkpoint | None) -> Outcome:
        """All remaining rollouts, after those that a checkpoint contains."""
        try:
            return await self._run(checkpoint)
        except BaseException as error:
            if failed := await self._saver.close(at_once=isinstance(error, asyncio.CancelledError)):
                self._display.message(failed)
            raise

    async def _end(self) -> Outcome:
        """Save what is not saved yet, and say how the run ended."""
        if self._saved_at != self.rollout_id:
            await self._save()
        await self._saved(wait=True)
        await self._spans.write(self.rollout_id)
        complete = self.rollout_id >= self._last or self.stop.enough
        return Outcome.DONE if complete else Outcome.STOPPED

    async def _log(self, rollout_id: int, metrics: Mapping[str, float]) -> None:
        """Write one row, and have it shown and tracked."""
        metrics = {REDACTOR.redact(name): value for name, value in {**metrics, **self._taken()}.items()}
        metrics |= self._trackers.metrics()
        row = MetricsRow(rollout_id, self._step, time.time(), metrics)
        self._metrics.append(row)
        await self._trackers.log(self._step, metrics)
        await self._spans.write(rollout_id)
        self._display.row(rollout_id, metrics)
        for alarm in self._alarms.look(row):
            self._display.message(str(alarm))
            if alarm.name in self._config.alarms.stop_on_alarms:
                self.stop.ask(enough=True)
                self._display.message(f"alarm {alarm.name} ends the run after this step: stop_on_alarms has it")

    async def _save(self) -> None:
        self._display.phase("checkpoint")
        await self._saved(wait=True)
        state: dict[str, Json] = {
            "step": self._step,
            "train_steps": self.train_steps,
            **await self._parts(),
            "metrics_position": self._metrics.position(),
            "day": self.build.day.isoformat(),
            "plugins": self._plugins,
            "config": saved_settings(self._plan),
        }
        save = partial(self._trainer.save, hf=self._config.run.checkpoint_hf)
        with self._spans.phase("checkpoint", self.rollout_id):
            async with self._training():
                end = self.build.tokenizer().end_of_turn
                await self._saver.save(self.rollout_id, state, save, self._trainer.finish_save, end_of_turn=end)
        self._saved_at = self.rollout_id
        await self._saved(wait=not self._config.run.async_save)

    async def _saved(self, *, wait: bool) -> None:
        """Tell of the checkpoint that is finished now, or what prevented it."""
        if checkpoint := await self._saver.saved(wait=wait):
            if self._hf_copies:
                await asyncio.to_thread(self._hf_copies.keep, checkpoint)
            await self.emit(CheckpointSaved(checkpoint.path, checkpoint.rollout_id))

    async def _resume(self, checkpoint: Checkpoint) -> None:
        """Go on where a checkpoint was made; later rows of metrics are cut off."""
        self._display.phase(f"loading {checkpoint.path.name}")
        state = checkpoint.state()
        self._restore(checkpoint, state)
        await self._trainer.load(checkpoint.path)
        self._saved_at = self.rollout_id = checkpoint.rollout_id
        self._step = state.step
        self._metrics.truncate(state.metrics_position)
        for row in MetricsLog.read(self._metrics.path):
            self._alarms.look(row)  # which have been said
        note_resume(self._folder.root, self.rollout_id)
        self._display.message(f"continuing after rollout {self.rollout_id} of {self._last}")
        await self.emit(CheckpointLoaded(checkpoint.path, self.rollout_id))


def check_records(checkpoint: Checkpoint, folder: RunFolder) -> None:
    """See that metrics.jsonl and ledger.jsonl reach as far as a checkpoint says, before anything starts.

    Raises:
        CheckpointError: one is missing, shorter than it was, or changed.
    """
    state = checkpoint.state()
    parts = [folder.metrics, *([folder.ledger] if state.ledger else [])]
    if missing := [path.name for path in parts if not path.is_file()]:
        raise CheckpointError(
            f"{folder.root} has checkpoints, but no {' and no '.join(missing)}, which {checkpoint.path.name} goes on "
            "with: restore it, or start a new run with another --save"
        )
    MetricsLog.check(folder.metrics, state.metrics_position)
    if state.ledger:
        digest_before(folder.ledger, state.ledger.offset, state.ledger.sha256)


def what_is_lost(plan: Plan, folder: RunFolder, unit: str) -> str | None:
    """Why a run without a checkpoint of trained weights begins anew; None where nothing was done before.

    Args:
        plan: of the run.
        folder: of the run, before anything is cut off there.
        unit: what the run counts.
    """
    if not any(path.is_file() and path.stat().st_size for path in (folder.metrics, folder.ledger)):
        return None
    done = 0
    with suppress(RunFolderError):  # what cannot be read is cut off with the rest
        done = sum("rollout/step" in row.metrics for row in MetricsLog.read(folder.metrics))
    after = f"{done} {unit}{'s' * (done != 1)}"
    if plan.config.debug.debug_rollout_only:
        return f"{folder.root} has {after}, and debug_rollout_only saves no checkpoint: it begins anew"
    return (
        f"{folder.root} was stopped after {after}, before its first checkpoint of trained weights "
        f"(save_interval = {plan.config.run.save_interval}): it begins anew, from {unit} 1"
    )
