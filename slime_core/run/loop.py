"""The loop: rollout, buffer, train, publish, and a commit point at the end of every saved step.

Example:

    outcome = await run_loop(plan, folder, display, Loop)     # resumes by itself from the folder's newest checkpoint
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

from slime_core.config import Plan
from slime_core.errors import CheckpointError, SlimeError
from slime_core.events import EvalEnd, Event, RolloutEnd, RolloutStart, RunEnd, RunFailed, RunStart, TrainStepEnd
from slime_core.roles import BufferContext, Draw
from slime_core.rollout import RolloutResult
from slime_core.run.accounts import GroupState
from slime_core.run.base_loop import BaseLoop, Outcome, check_records, what_is_lost
from slime_core.run.best import Best
from slime_core.run.changes import check_changes
from slime_core.run.checkpoint import Checkpoint, newest_checkpoint
from slime_core.run.folder import RunFolder
from slime_core.run.memory import Phase
from slime_core.run.saved import SavedState
from slime_core.run.session import Session
from slime_core.run.stop import StopRequest, on_signals
from slime_core.run.trackers import Trackers
from slime_core.run.trainer import Trainer, means
from slime_core.sample import Json
from slime_core.tasks import unless
from slime_core.telemetry import Display, Generated, MetricsLog, SampleStore
from slime_core.train.prepare import shaping_metrics

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
    with on_signals(session.stop, display.message), SampleStore(folder.samples) as samples:
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

    def __init__(self, session: Session, display: Display, metrics: MetricsLog, samples: SampleStore) -> None:
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
