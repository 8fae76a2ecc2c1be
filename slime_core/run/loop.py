"""The training loop: rollout, buffer, train, publish; each saved step ends with a commit point.

`run` picks the loop that a plan needs. `BaseLoop` has the order of all loops: resume from a checkpoint, then for each
rollout take groups, train, publish, evaluate and save. `Loop` adds the steps that need engines.

Example:

    outcome = await run(plan, folder, display)          # resumes from the folder's newest checkpoint
"""

import asyncio
import enum
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from slime_core.aio import run_while
from slime_core.batching.prepare import shaping_metrics
from slime_core.catalog import find_part, load_part
from slime_core.config import Plan, lock_plugins
from slime_core.errors import CheckpointError, SlimeError
from slime_core.events import (
    CheckpointLoaded,
    CheckpointSaved,
    EvalEnd,
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
from slime_core.run.checkpoint import Checkpoint, CheckpointState, Saver, copy_model, link_to, newest_checkpoint
from slime_core.run.folder import RunFolder, on_signals
from slime_core.run.ledger import GroupState
from slime_core.run.resume import check_changes, check_records, current_settings, note_resume
from slime_core.run.session import BaseSession, Phase, Session
from slime_core.run.trainer import TrainReport, means
from slime_core.sample import Json
from slime_core.secrets import REDACTOR
from slime_core.telemetry import Display, MetricsLog, MetricsRow, names, run_folder_errors
from slime_core.telemetry.recording import AlarmWatch, GeneratedGroups, SampleWriter, SpanWriter, recorder

SessionT = TypeVar("SessionT", bound=BaseSession)


class Outcome(enum.Enum):
    """How a run ended."""

    DONE = "done"
    """All rollouts are trained, or a run hook or an alarm ended the run as complete."""
    STOPPED = "stopped"
    """A signal stopped it; the last step is saved."""


class BaseLoop(ABC):
    """One run in progress, without engines. A subclass supplies the groups of each rollout."""

    def __init__(self, session: BaseSession, display: Display, metrics: MetricsLog, samples: SampleWriter) -> None:
        """Take over a started session; writes rows to `metrics` and generated samples to `samples`."""
        plan = session.plan
        self._plan, self._config, self._folder, self._base = plan, plan.config, session.folder, session
        self._display, self._metrics, self._samples = display, metrics, samples
        self._spans = recorder("spans", SpanWriter, self._folder.spans)
        if self._config.alarms.stop_on_alarms:
            find_part("alarms", "slime-view", "stop_on_alarms")
        self._alarms = recorder("alarms", AlarmWatch, self._config.alarms, self._config.rollout)
        self.rollout_id = 0
        """Index of the next rollout, which is also the number of rollouts done."""
        self._step = 0
        best = self._config.run.save_best
        self._best_link = self._folder.root / "best" if best is not None else None
        self._best_metric, self._best = names.eval_reward(best) if best is not None else "", -math.inf
        self._saver = Saver(self._folder.checkpoints, self._config.run.save_keep, self._best_link)
        self._checkpoint_id = -1
        self._plugins = lock_plugins(plan)  # now: files may be edited after this code was loaded

    async def _begin(self, *, resumed: bool) -> None:
        """Do the work before the first rollout of this start."""
        if not resumed:
            self._checkpoint_id = 0  # a resume before the first step starts over
            await self._evaluate_if_due()

    @abstractmethod
    async def _next(self) -> tuple[Draw, dict[str, float], int | None]:
        """Return a draw to train on, its metrics, and the number of generated tokens (None if nothing is generated)."""

    async def _after_training(self, draw: Draw, report: TrainReport) -> None:  # noqa: B027  # an optional step
        """Do the work after the optimizer steps of a rollout, before its metrics are written."""

    async def _evaluate_if_due(self) -> None:  # noqa: B027  # an optional step
        """Evaluate if an evaluation is due after this rollout."""

    async def _state_dict(self) -> Mapping[str, Json]:
        """Return this loop's part of a checkpoint, apart from the model, its progress and the plugins."""
        return {}

    def _restore(self, checkpoint: Checkpoint, state: CheckpointState) -> None:  # noqa: B027  # an optional step
        """Restore the part that `_state_dict` returned.

        Raises:
            CheckpointError: the part does not fit this run.
        """

    def _start_over(self) -> None:
        """Remove the output of an earlier start that ended before its first checkpoint."""
        self._metrics.truncate(0)
        self._spans.clear()

    async def run(self, checkpoint: Checkpoint | None) -> Outcome:
        """Run all rollouts that remain after a checkpoint; without one, all rollouts."""
        try:
            return await self._run(checkpoint)
        except BaseException as error:
            if failed := await self._saver.close(at_once=isinstance(error, asyncio.CancelledError)):
                self._display.message(failed)
            raise

    async def _run(self, checkpoint: Checkpoint | None) -> Outcome:
        session = self._base
        first = checkpoint.rollout_id if checkpoint else 0
        await session.emit(RunStart(self._folder.root, first, session.num_rollout))
        if checkpoint is None:
            self._start_over()
        else:
            await self._resume(checkpoint)
        await self._begin(resumed=checkpoint is not None)
        while self.rollout_id < session.num_rollout and not session.stop.requested:
            await self._one_rollout()
        if self._checkpoint_id != self.rollout_id:
            await self._save()
        await self._finish_save(wait=True)
        await self._spans.write(self.rollout_id)
        complete = self.rollout_id >= session.num_rollout or session.stop.complete
        return Outcome.DONE if complete else Outcome.STOPPED

    async def _one_rollout(self) -> None:
        session, number, started = self._base, self.rollout_id, time.monotonic()
        await self._finish_save(wait=False)
        draw, metrics, tokens = await self._next()
        rolled_out = time.monotonic()
        self._display.phase(f"trainer: {len(draw.groups)} groups")
        prepared = session.preparation.prepare(draw, number)
        await session.memory.go_to(Phase.TRAIN)
        report = await session.trainer.train(prepared, number)
        for step_metrics in report.steps:
            await session.emit(TrainStepEnd(number, self._step, step_metrics))
            self._step += 1
        trained = time.monotonic()
        await self._after_training(draw, report)
        published = time.monotonic()
        seconds, training = published - started, trained - rolled_out
        timing = {"perf/train_time": training, "perf/step_time": seconds}
        spans = {"read" if tokens is None else "generate": (started, rolled_out), "train": (rolled_out, trained)}
        if tokens is not None:
            spans["publish"] = (trained, published)
            timing |= {
                "perf/rollout_time": rolled_out - started,
                "perf/update_weights_time": published - trained,
                "perf/wait_time_ratio": 1.0 - training / seconds,
                "perf/tokens_per_sec": tokens / seconds,
            }
        if report.worked is not None:
            spans["optimizer steps"] = report.worked
        for phase, (began, ended) in spans.items():
            self._spans.add_phase(phase, number, began, ended)
        metrics |= {**shaping_metrics(prepared), **means(report.steps), "rollout/step": float(number)}
        await self._log(number, {**metrics, **timing, **report.perf})
        self.rollout_id += 1
        await self._evaluate_if_due()
        if self._is_due(self._config.run.save_interval, self.rollout_id) and self._checkpoint_id != self.rollout_id:
            await self._save()

    def _is_due(self, interval: int | None, done: int) -> bool:
        return interval is not None and (done % interval == 0 or done == self._base.num_rollout)

    async def _log(self, rollout_id: int, metrics: Mapping[str, float]) -> None:
        """Write one row of metrics, show it and send it to the trackers."""
        metrics = {REDACTOR.redact(name): value for name, value in {**metrics, **self._base.take_stats()}.items()}
        row = MetricsRow(rollout_id, self._step, time.time(), metrics)
        self._metrics.append(row)
        await self._base.trackers.log(self._step, metrics)
        await self._spans.write(rollout_id)
        self._display.row(rollout_id, metrics)
        for alarm in self._alarms.check(row):
            self._display.message(str(alarm))
            if alarm.name in self._config.alarms.stop_on_alarms:
                self._base.stop.request(complete=True)
                self._display.message(f"alarm {alarm.name} ends the run after this step: stop_on_alarms has it")

    def _update_best(self, metrics: Mapping[str, float]) -> bool:
        best, self._best = self._best, max(self._best, metrics.get(self._best_metric, -math.inf))
        return self._best > best

    async def _save(self, *, is_best: bool = False) -> None:
        session = self._base
        self._display.phase("checkpoint")
        await self._finish_save(wait=True)
        state: dict[str, Json] = {
            "step": self._step,
            "train_steps": session.train_steps,
            **await self._state_dict(),
            "metrics_position": self._metrics.position(),
            "day": session.builder.day.isoformat(),
            "plugins": self._plugins,
            "config": current_settings(self._plan),
        }
        save = partial(session.trainer.save, hf=self._config.run.checkpoint_hf)
        with self._spans.phase("checkpoint", self.rollout_id):
            async with session.memory.during(Phase.TRAIN):
                end = session.builder.tokenizer().end_of_turn
                finish = session.trainer.finish_save
                await self._saver.save(self.rollout_id, state, save, finish, end_of_turn=end, is_best=is_best)
        self._checkpoint_id = self.rollout_id
        await self._finish_save(wait=not self._config.run.async_save)

    async def _finish_save(self, *, wait: bool) -> None:
        """Report a checkpoint that has finished, or raise the error that prevented it."""
        if checkpoint := await self._saver.finished(wait=wait):
            if template := self._config.run.save_hf:
                await asyncio.to_thread(copy_model, checkpoint, template, run_id_of(self._folder.root))
            await self._base.emit(CheckpointSaved(checkpoint.path, checkpoint.rollout_id))

    async def _resume(self, checkpoint: Checkpoint) -> None:
        """Restore a checkpoint, and cut off later rows of metrics."""
        self._display.phase(f"loading {checkpoint.path.name}")
        state = checkpoint.state()
        self._restore(checkpoint, state)
        await self._base.trainer.load(checkpoint.path)
        self._checkpoint_id = self.rollout_id = checkpoint.rollout_id
        self._step = state.step
        self._metrics.truncate(state.metrics_position)
        best: Path | None = None
        for row in MetricsLog.read(self._metrics.path):
            self._alarms.check(row)  # mark alarms as shown that were shown before
            saved = self._saver.path_of(row.rollout_id)
            if self._best_link and saved.is_dir() and self._update_best(row.metrics):
                best = saved
        if self._best_link and best:  # repair the link after a kill between checkpoint and link
            link_to(best, self._best_link)
        note_resume(self._folder.root, self.rollout_id)
        self._display.message(f"continuing after rollout {self.rollout_id} of {self._base.num_rollout}")
        await self._base.emit(CheckpointLoaded(checkpoint.path, self.rollout_id))


class Loop(BaseLoop):
    """The training loop with engines."""

    def __init__(self, session: Session, display: Display, metrics: MetricsLog, samples: SampleWriter) -> None:
        super().__init__(session, display, metrics, samples)
        self._session = session
        session.scheduler.runner.in_flight.on_end = self._spans.add_sample

    async def _begin(self, *, resumed: bool) -> None:
        self._display.phase("engine: new weights")
        await self._session.publish(self.rollout_id)
        if not resumed:
            if self._session.eval_sets and not self._config.evaluation.skip_eval_before_train:
                await self._evaluate()
            if self._checkpoint_id != self.rollout_id:
                await self._save()

    async def _collect(self, want: int) -> RolloutResult:
        session = self._session
        await session.emit(RolloutStart(self.rollout_id, session.served_version))
        session.source.rollout_id = self.rollout_id
        each = self._config.rollout.n_samples_per_prompt
        self._display.phase(f"{want} groups of {each} samples", lambda: session.scheduler.runner.in_flight.text)
        result = await session.scheduler.collect(self.rollout_id, want)
        await session.emit(RolloutEnd(self.rollout_id, result.kept, result.dropped, result.metrics))
        return result

    async def _next(self) -> tuple[Draw, dict[str, float], int]:
        """Generate until the buffer has a batch and uses stay within the replay ratio."""
        session, batch = self._session, self._config.rollout.rollout_batch_size
        result = await self._collect(self._wanted(being_trained=0))
        session.buffer.add(result.kept)
        session.ledger.record(GroupState.BUFFERED, [group.id for group in result.kept], self.rollout_id)
        draw = session.buffer.sample(batch, BufferContext(self.rollout_id, self.rollout_id))
        following = self.rollout_id + 1
        if following < session.num_rollout and not session.stop.requested:  # generate during training
            session.source.rollout_id = following
            session.scheduler.look_ahead(following, self._wanted(being_trained=len(draw.groups)))
        generated = GeneratedGroups(result.kept, result.dropped, result.reasons, result.failed)
        await self._samples.write(self.rollout_id, generated, draw)
        metrics = {**session.source.data_metrics(), **result.metrics, **_staleness(draw, self.rollout_id)}
        return (
            draw,
            metrics,
            sum(sample.response_length for group in (*result.kept, *result.dropped) for sample in group.samples),
        )

    def _wanted(self, being_trained: int) -> int:
        """Return the number of fresh groups that the next batch needs."""
        session, batch = self._session, self._config.rollout.rollout_batch_size
        fresh = session.ledger.accounts.groups_needed(being_trained + batch, session.replay.ratio)
        return max(0, batch - len(session.buffer), fresh)

    async def _after_training(self, draw: Draw, report: TrainReport) -> None:
        session, done = self._session, self.rollout_id + 1
        session.buffer.update(report.scores)
        session.ledger.record(GroupState.TRAINED, [group.id for group in draw.groups], self.rollout_id)
        session.ledger.drop(session.buffer.evict(BufferContext(done, done)), self.rollout_id)
        # Publish before an evaluation, which must use the trained weights, and before a save: a resumed run must serve
        # the same weights as an uninterrupted one.
        due = done % self._config.rollout.update_weights_interval == 0 or self._evaluates_after(done)
        if due or self._is_due(self._config.run.save_interval, done):
            self._display.phase("engine: new weights")
            await session.publish(done)
        else:
            await session.keep_version()
        async with session.scheduler.pause_draws():
            self._reconcile()

    def _evaluates_after(self, done: int) -> bool:
        return bool(self._session.eval_sets) and self._is_due(self._config.evaluation.eval_interval, done)

    async def _evaluate_if_due(self) -> None:
        if self._evaluates_after(self.rollout_id):
            await self._evaluate()

    async def _evaluate(self) -> None:
        session = self._session
        self._display.phase(f"evaluation: {', '.join(each.name for each in session.eval_sets)}")
        with self._spans.phase("evaluate", self.rollout_id):
            result = await session.evaluate(self.rollout_id)
        await self._samples.write_eval(self.rollout_id, result.samples)
        await session.emit(EvalEnd(self.rollout_id, result.samples, result.metrics))
        await self._log(self.rollout_id, result.metrics)
        if self._best_link and self._update_best(result.metrics):
            await self._save(is_best=True)
            self._display.message(f"best so far: {self._best_metric} {self._best:.3f} after {self.rollout_id} rollouts")

    async def _state_dict(self) -> Mapping[str, Json]:
        session = self._session
        await self._samples.flush()
        async with session.scheduler.pause_draws():
            self._reconcile()
            return {
                "data_source": session.source.state_dict(),
                "scheduler": session.scheduler.state_dict(),
                "buffer": session.buffer.state_dict(),
                "ledger": session.ledger.state_dict(),
            }

    def _reconcile(self) -> None:
        """Check that every live group is in flight, back in the source, finished or in the buffer."""
        session = self._session
        in_flight, finished = session.scheduler.live()
        session.ledger.reconcile(len(session.buffer), in_flight + session.source.returned, finished)

    def _start_over(self) -> None:
        super()._start_over()
        self._samples.rewind(None)
        self._session.ledger.rewind()

    def _restore(self, checkpoint: Checkpoint, state: CheckpointState) -> None:
        session = self._session
        if state.data_source is None or state.buffer is None or state.ledger is None or state.scheduler is None:
            raise CheckpointError(f"checkpoint {checkpoint.path} is of a run that only trains; give another --save")
        session.source.load_state_dict(state.data_source)
        session.buffer.load_state_dict(state.buffer)
        session.ledger.load_state_dict(state.ledger.model_dump())  # cuts the file: after what may refuse the resume
        session.source.hold(session.ledger.drawn())
        session.buffer.hold(session.ledger.buffered())
        try:
            session.scheduler.load_state_dict(state.scheduler)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, SlimeError):
                raise
            raise CheckpointError(
                f"checkpoint {checkpoint.path} is damaged: its scheduler cannot be restored: "
                f"{type(error).__name__}: {error}"
            ) from error
        self._samples.rewind(checkpoint.rollout_id)


def _staleness(draw: Draw, version: int) -> dict[str, float]:
    """Return metrics of staleness: the trained version minus the version of each group's oldest trainable token."""
    ages = [version - oldest for group in draw.groups if (oldest := group.oldest_weight_version) is not None]
    return {"rollout/staleness/mean": sum(ages) / len(ages), "rollout/staleness/max": float(max(ages))} if ages else {}


# `run` chooses the loop of a plan; `run_loop` adds checkpoint, session, signals and the events at the end.

OtherRun = Callable[[Plan, RunFolder, Display], Awaitable[Outcome]]
MakeSession = Callable[[Plan, RunFolder, Display], SessionT]
MakeLoop = Callable[[SessionT, Display, MetricsLog, SampleWriter], BaseLoop]


async def run(plan: Plan, folder: RunFolder, display: Display) -> Outcome:
    """Run the plan in its folder, or resume it.

    Raises:
        SlimeError: error that ended the run; the newest checkpoint stays usable.
        ConfigError: the plan needs a loop of slime-train, which is not installed.
    """
    debug = plan.config.debug
    if debug.load_debug_rollout_data is not None:
        return await cast(OtherRun, load_part("train_only", "slime-train", "load_debug_rollout_data"))(
            plan, folder, display
        )
    if plan.config.finetunes:
        return await cast(OtherRun, load_part("finetune", "slime-train", "finetuning"))(plan, folder, display)
    kind: type[Loop] = Loop
    if debug.debug_rollout_only:
        kind = cast(type[Loop], load_part("rollout_only", "slime-train", "debug_rollout_only"))
    return await run_loop(plan, folder, display, Session, kind)


async def run_loop(
    plan: Plan, folder: RunFolder, display: Display, make_session: MakeSession[SessionT], make_loop: MakeLoop[SessionT]
) -> Outcome:
    """Run or resume the plan with one kind of session and loop; errors as of `run`."""
    checkpoint = newest_checkpoint(folder.checkpoints, display.message)
    if checkpoint and checkpoint.rollout_id == 0:
        checkpoint = None  # nothing is trained yet: start over, perhaps with repaired rows
    if checkpoint:
        check_records(checkpoint, folder.root)
    session = make_session(plan, folder, display)
    done, unit = checkpoint.rollout_id if checkpoint else 0, session.unit
    if not checkpoint and folder.metrics.is_file() and folder.metrics.stat().st_size:
        display.message(
            f"{folder.root} has no checkpoint of trained weights (save_interval = {plan.config.run.save_interval}): "
            "it starts over"
        )
    try:
        for note in check_changes(checkpoint, plan, session.train_steps) if checkpoint else ():
            display.message(note)
        if checkpoint and done >= session.num_rollout:
            await session.close()
            display.message(
                f"{folder.root} is done: {done} of {session.num_rollout} {unit}s. "
                f"Make it longer: slime resume {folder.root} --num-rollout N"
            )
            return Outcome.DONE
        with run_folder_errors(folder.config_file, "write"):
            old_config = folder.write_config()
    except BaseException:
        await session.close()
        raise
    display.start(session.num_rollout, folder.root.name, first_rollout=done, unit=unit)
    with on_signals(session.stop, display.message), recorder("samples", SampleWriter, folder.samples) as samples:
        try:
            async with session:
                with MetricsLog(folder.metrics) as metrics:
                    loop = make_loop(session, display, metrics, samples)
                    outcome = await run_while(session.watch(), loop.run(checkpoint))
                await session.emit(RunEnd(folder.root, loop.rollout_id))
                return outcome
        except BaseException as error:
            if isinstance(error, CheckpointError):  # this configuration does not fit the checkpoint
                with suppress(OSError):
                    folder.write_config(old_config)
            await session.emit(RunFailed(folder.root, error))
            raise
