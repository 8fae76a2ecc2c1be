"""The training loop: rollout, buffer, train, publish, with a commit point at the end of every saved step.

`run` picks the loop that a plan needs. `BaseLoop` holds what every loop shares: resume from a checkpoint, write
metrics, save, and stop on request.

Example:

    outcome = await run(plan, folder, display)          # resumes by itself from the folder's newest checkpoint
"""

import asyncio
import enum
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from slime_core.aio import unless
from slime_core.batching.prepare import shaping_metrics
from slime_core.catalog import part
from slime_core.config import Plan, lock_plugins
from slime_core.errors import CheckpointError, RunFolderError, SlimeError
from slime_core.events import (
    CheckpointLoaded,
    CheckpointSaved,
    EvalEnd,
    Event,
    RolloutEnd,
    RolloutStart,
    RunEnd,
    RunFailed,
    RunStart,
    TrainStepEnd,
)
from slime_core.outputs import run_id_of
from slime_core.roles import BufferContext, Draw
from slime_core.rollout import RolloutResult
from slime_core.run.build import Builder
from slime_core.run.checkpoint import Checkpoint, check_changes, newest_checkpoint, saved_settings
from slime_core.run.folder import RunFolder, StopRequest, note_resume, on_signals
from slime_core.run.ledger import GroupState, SavedState, digest_before
from slime_core.run.saving import Best, HfCopies, Saver
from slime_core.run.session import Phase, Session
from slime_core.run.trainer import Trainer, means
from slime_core.run.watching import Trackers
from slime_core.sample import Json
from slime_core.secrets import REDACTOR
from slime_core.telemetry import Display, MetricsLog, MetricsRow
from slime_core.telemetry.recording import Generated, SampleWriter, alarm_watch, sample_writer, span_writer

# What every loop does with a run: resume from a checkpoint, write a row of metrics, save, and stop when asked.


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
        self._spans = span_writer(folder.spans)
        self._alarms = alarm_watch(self._config.alarms, self._config.rollout)
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


# The loop: rollout, buffer, train, publish, and a commit point at the end of every saved step.

PartT = TypeVar("PartT")


async def run_loop(plan: Plan, folder: RunFolder, display: Display, kind: "type[Loop]") -> Outcome:
    """Run, or continue, the plan in its folder, by a kind of loop.

    Raises:
        SlimeError: whatever ends the run; the newest checkpoint stays usable.
    """
    checkpoint = newest_checkpoint(folder.checkpoints, display.message)
    if checkpoint and checkpoint.rollout_id == 0:
        checkpoint = None  # nothing is trained yet; what stopped the run may have been a row that is mended now
    if checkpoint:
        check_records(checkpoint, folder)
    elif lost := what_is_lost(plan, folder, "rollout"):
        display.message(lost)
    session = Session(plan, folder, display)
    done = checkpoint.rollout_id if checkpoint else 0
    if checkpoint and done >= session.num_rollout:
        await session.close()
        display.message(
            f"{folder.root} is done: {done} of {session.num_rollout} rollouts. "
            f"Make it longer: slime resume {folder.root} --num-rollout N"
        )
        return Outcome.DONE
    try:
        for note in check_changes(checkpoint, plan, session.train_steps) if checkpoint else ():
            display.message(note)
    except BaseException:
        folder.restore_config()
        await session.close()
        raise
    display.start(session.num_rollout, folder.root.name, first_rollout=done)
    with on_signals(session.stop, display.message), sample_writer(folder.samples) as samples:
        try:
            async with session:
                with MetricsLog(folder.metrics) as metrics:
                    loop = kind(session, display, metrics, samples)
                    outcome = await unless(session.watch(), loop.run(checkpoint))
                await session.emit(RunEnd(folder.root, loop.rollout_id))
                return outcome
        except BaseException as error:
            await session.emit(RunFailed(folder.root, error))
            raise


class Loop(BaseLoop):
    """One run in progress."""

    def __init__(self, session: Session, display: Display, metrics: MetricsLog, samples: SampleWriter) -> None:
        """Take over a started session; metrics are appended to `metrics`, and what is generated goes to `samples`."""
        super().__init__(session.build, session.folder, display, metrics)
        self._session, self._samples, self.train_steps = session, samples, session.train_steps
        session.scheduler.runner.waiting.on_end = self._spans.add_sample
        best = self._config.run.save_best
        self._best = Best(session.folder.root / "best", best) if best is not None else None

    @property
    def stop(self) -> StopRequest:
        """The session's."""
        return self._session.stop

    @property
    def _last(self) -> int:
        return self._session.num_rollout

    @property
    def _trainer(self) -> Trainer:
        return self._session.trainer

    @property
    def _trackers(self) -> Trackers:
        return self._session.trackers

    async def emit(self, event: Event) -> None:
        """Keep the accounts, then tell the run hooks."""
        await self._session.emit(event)

    async def _run(self, checkpoint: Checkpoint | None) -> Outcome:
        session = self._session
        first = checkpoint.rollout_id if checkpoint else 0
        await session.emit(RunStart(session.folder.root, first, session.num_rollout))
        if checkpoint is None:
            self._start_over()
        else:
            await self._resume(checkpoint)
        self._display.phase("engine: new weights")
        await session.publish(self.rollout_id)
        if checkpoint is None:
            if self._evaluates() and not self._config.evaluation.skip_eval_before_train:
                await self._evaluate()
            await self._save()
        while self.rollout_id < session.num_rollout and not session.stop.asked:
            await self._one_rollout()
        return await self._end()

    async def _one_rollout(self) -> None:
        session, started = self._session, time.monotonic()
        await self._saved(wait=False)
        await session.emit(RolloutStart(self.rollout_id, self.rollout_id))
        result = await self._collect()
        rolled_out = time.monotonic()
        await session.emit(RolloutEnd(self.rollout_id, result.kept, result.dropped, result.metrics))
        draw = self._take(result)
        self._look_ahead(draw)
        generated = Generated(result.kept, result.dropped, result.reasons, result.failed)
        await self._samples.write(self.rollout_id, generated, draw)
        self._display.phase(f"trainer: {len(draw.groups)} groups")
        prepared = session.preparation.of(draw, self.rollout_id)
        await session.go_to(Phase.TRAIN)
        report = await session.trainer.train(prepared, self.rollout_id)
        session.buffer.update(report.scores)
        session.ledger.record(GroupState.TRAINED, [group.id for group in draw.groups], self.rollout_id)
        following = BufferContext(self.rollout_id + 1, self.rollout_id + 1)
        session.ledger.drop(session.buffer.evict(following), self.rollout_id)
        for step_metrics in report.steps:
            await session.emit(TrainStepEnd(self.rollout_id, self._step, step_metrics))
            self._step += 1
        trained = time.monotonic()
        await self._publish(self.rollout_id + 1)
        async with session.scheduler.undisturbed():
            self._reconcile()
        published = time.monotonic()
        for phase, began, ended in (
            ("generate", started, rolled_out),
            ("train", rolled_out, trained),
            ("publish", trained, published),
        ):
            self._spans.add_phase(phase, self.rollout_id, began, ended)
        if report.worked is not None:
            self._spans.add_phase("optimizer steps", self.rollout_id, *report.worked)
        timing = _timing(result, started, rolled_out, trained, published)
        prepared_metrics = {**_staleness(draw, self.rollout_id), **shaping_metrics(prepared)}
        await self._report(result, prepared_metrics, report.steps, {**timing, **report.perf})
        self.rollout_id += 1
        if self._evaluates_after(self.rollout_id):
            await self._evaluate()
        if self._is_due(self._config.run.save_interval, self.rollout_id):
            await self._save()

    async def _publish(self, done: int) -> None:
        """After so many rollouts: publish, or serve what is served on, where the run publishes less often.

        What is evaluated or saved is published: an evaluation is of the weights that are trained, and a resumed run
        serves what one that went on does.
        """
        is_due = done % self._config.rollout.update_weights_interval == 0 or self._evaluates_after(done)
        if is_due or self._is_due(self._config.run.save_interval, done):
            self._display.phase("engine: new weights")
            await self._session.publish(done)
        else:
            await self._session.serve_on()

    async def _collect(self) -> RolloutResult:
        """Generate until the buffer can feed a step, and so much that its groups are not used too often."""
        session, want = self._session, self._wanted(being_trained=0)
        session.source.rollout_id = self.rollout_id
        each = self._config.rollout.n_samples_per_prompt
        self._display.phase(f"{want} groups of {each} samples", lambda: session.scheduler.waiting_for)
        return await session.scheduler.collect(self.rollout_id, want)

    def _wanted(self, being_trained: int) -> int:
        """Fresh groups that the next batch needs."""
        session, batch = self._session, self._config.rollout.rollout_batch_size
        fresh = session.ledger.fresh(being_trained + batch, session.replay.ratio)
        return max(0, batch - len(session.buffer), fresh)

    def _look_ahead(self, draw: Draw) -> None:
        """Tell the scheduler what it may generate while the trainer works."""
        session, following = self._session, self.rollout_id + 1
        if following < session.num_rollout and not session.stop.asked:
            session.source.rollout_id = following
            session.scheduler.look_ahead(following, self._wanted(being_trained=len(draw.groups)))

    def _take(self, result: RolloutResult) -> Draw:
        session, want = self._session, self._config.rollout.rollout_batch_size
        session.buffer.add(result.kept)
        session.ledger.record(GroupState.BUFFERED, [group.id for group in result.kept], self.rollout_id)
        return session.buffer.sample(want, BufferContext(self.rollout_id, self.rollout_id))

    async def _report(
        self,
        result: RolloutResult,
        shaped: Mapping[str, float],
        steps: Sequence[Mapping[str, float]],
        timing: Mapping[str, float],
    ) -> None:
        data = self._session.source.data_metrics()
        metrics = {**data, **result.metrics, **shaped, **means(steps), **timing, "rollout/step": float(self.rollout_id)}
        await self._log(self.rollout_id, metrics)

    def _taken(self) -> Mapping[str, float]:
        return {**self._session.stats.take(), **self._session.engine.take()}

    def _evaluates(self) -> bool:
        return bool(self._session.eval_sets)

    def _evaluates_after(self, done: int) -> bool:
        return self._evaluates() and self._is_due(self._config.evaluation.eval_interval, done)

    def _is_due(self, interval: int | None, done: int) -> bool:
        return interval is not None and (done % interval == 0 or done == self._session.num_rollout)

    async def _evaluate(self) -> None:
        session = self._session
        self._display.phase(f"evaluation: {', '.join(each.name for each in session.eval_sets)}")
        with self._spans.phase("evaluate", self.rollout_id):
            result = await session.evaluate(self.rollout_id)
        await self._samples.write_eval(self.rollout_id, result.samples)
        await session.emit(EvalEnd(self.rollout_id, result.samples, result.metrics))
        await self._log(self.rollout_id, result.metrics)
        if self._best:
            async with session.training():
                is_best = await self._best.offer(self.rollout_id, result.metrics, session.trainer.save_whole)
            if is_best:
                self._display.message(self._best.text)

    def _training(self) -> AbstractAsyncContextManager[None]:
        return self._session.training()

    async def _parts(self) -> Mapping[str, Json]:
        session = self._session
        await self._samples.flush()
        async with session.scheduler.undisturbed():
            self._reconcile()
            return {
                "data_source": session.source.state_dict(),
                "scheduler": session.scheduler.state_dict(),
                "buffer": session.buffer.state_dict(),
                "ledger": session.ledger.state_dict(),
            }

    def _reconcile(self) -> None:
        """See that every live group is somewhere: in flight, back in the source, finished, or in the buffer."""
        session = self._session
        in_flight, finished = session.scheduler.live()
        session.ledger.reconcile(len(session.buffer), in_flight + session.source.returned, finished)

    def _start_over(self) -> None:
        """Forget what a run that was stopped before its first checkpoint wrote."""
        self._samples.rewind(None)
        self._metrics.truncate(0)
        self._spans.clear()
        self._session.ledger.rewind()

    def _restore(self, checkpoint: Checkpoint, state: SavedState) -> None:
        session = self._session
        session.source.load_state_dict(_held(checkpoint, state.data_source, "data_source"))
        session.buffer.load_state_dict(_held(checkpoint, state.buffer, "buffer"))
        session.ledger.load_state_dict(_held(checkpoint, state.ledger, "ledger").model_dump())
        session.source.hold(session.ledger.drawn())
        session.buffer.hold(session.ledger.buffered())
        with restoring(checkpoint, "scheduler"):
            session.scheduler.load_state_dict(_held(checkpoint, state.scheduler, "scheduler"))
        self._samples.rewind(checkpoint.rollout_id)


def _held(checkpoint: Checkpoint, part: PartT | None, name: str) -> PartT:
    """A part of the state that a run which generates has."""
    if part is None:
        raise CheckpointError(
            f"checkpoint {checkpoint.path} has no {name}: it is of a run that only trains; give another --save"
        )
    return part


@contextmanager
def restoring(checkpoint: Checkpoint, name: str) -> Iterator[None]:
    """Say of which part of a checkpoint it is that nothing can be made of it."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, SlimeError):
            raise
        raise CheckpointError(
            f"checkpoint {checkpoint.path} is damaged: its {name} cannot be restored: {type(error).__name__}: {error}"
        ) from error


def _staleness(draw: Draw, version: int) -> dict[str, float]:
    """Versions between the weights that made a group's oldest trainable token and those that are trained."""
    ages = [version - oldest for group in draw.groups if (oldest := group.oldest_weight_version) is not None]
    return {"rollout/staleness/mean": sum(ages) / len(ages), "rollout/staleness/max": float(max(ages))} if ages else {}


def _timing(
    result: RolloutResult, started: float, rolled_out: float, trained: float, published: float
) -> dict[str, float]:
    """Seconds of each part of a step, and generated tokens per second of the whole step."""
    tokens = sum(sample.response_length for group in (*result.kept, *result.dropped) for sample in group.samples)
    return {
        "perf/rollout_time": rolled_out - started,
        "perf/train_time": trained - rolled_out,
        "perf/update_weights_time": published - trained,
        "perf/step_time": published - started,
        "perf/wait_time_ratio": 1.0 - (trained - rolled_out) / (published - started),
        "perf/tokens_per_sec": tokens / (published - started),
    }


# Which loop a plan asks for: the whole one, the half that is being debugged, or finetuning.

TrainOnly = Callable[[Plan, RunFolder, Display, Path], Awaitable[Outcome]]
Finetune = Callable[[Plan, RunFolder, Display], Awaitable[Outcome]]


async def run(plan: Plan, folder: RunFolder, display: Display) -> Outcome:
    """Run, or continue, the plan in its folder.

    Raises:
        SlimeError: whatever ends the run; the newest checkpoint stays usable.
        ConfigError: the plan asks for a loop of slime-train, which is not installed.
    """
    debug = plan.config.debug
    if debug.load_debug_rollout_data is not None:
        train_only = cast(TrainOnly, part("train_only", "slime-train", "load_debug_rollout_data"))
        return await train_only(plan, folder, display, debug.load_debug_rollout_data)
    if plan.config.finetunes:
        finetune = cast(Finetune, part("finetune", "slime-train", "finetuning"))
        return await finetune(plan, folder, display)
    kind: type[Loop] = Loop
    if debug.debug_rollout_only:
        kind = cast(type[Loop], part("rollout_only", "slime-train", "debug_rollout_only"))
    return await run_loop(plan, folder, display, kind)
