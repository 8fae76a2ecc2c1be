"""Runs each reward where its spec says, with limits: on the event loop, or in worker processes.

Callers await every reward in the same way. A worker process gets copies of the fields that the spec names, so a plugin
cannot change the run's samples. Workers start on demand; one that exceeds a limit is killed and replaced. A failed
call becomes a verdict with a reason, such as "timeout" or "memory", and does not affect other calls.

Example:

    protection = Protection(plugins=catalog.plugin_set, seed=1, stats=PluginStats())
    reward = protection.protect(registered, settings, lambda: registered.spec.factory(settings, setup), name="math")
    await protection.start()             # raises if a worker cannot build its plugin
    verdict = await reward(sample, ctx)
    protection.close()
"""

import asyncio
import inspect
import json
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Generic, TypeVar, cast

from slime_core.aio import Slots, gather_or_cancel, limited
from slime_core.catalog import RegisteredChoice
from slime_core.catalog.checks import as_verdict, check_label_result
from slime_core.errors import PluginError, error_text
from slime_core.processes.forked import Output
from slime_core.processes.limits import TOO_MANY_FORKS, own_cores
from slime_core.processes.server import Server
from slime_core.processes.worker import (
    ENTRY,
    LARGEST_ANSWER,
    PRELOAD,
    REWARD_HOST,
    BuildRequest,
    copy_fields,
    pickled,
    receive_verdict,
)
from slime_core.roles import (
    CallSpec,
    ChecksLabels,
    Isolation,
    Place,
    PluginSet,
    RewardContext,
    Settings,
    WorkerGroupSpec,
    is_async,
)
from slime_core.roles.rewards import signature_error
from slime_core.sample import Json, Sample
from slime_core.score import Unscored, Verdict
from slime_core.secrets import REDACTOR
from slime_core.stats import CallStats, PluginStats, measures

LONGEST_REASON = 60
"""Characters of a reason, which becomes part of a metric's name."""
MOST_PROCESSES = 64
"""Most processes of one worker, with its descendants."""
LONGEST_TAIL = 4_000
"""Bytes of the latest output that errors show."""
START_TIMEOUT_S = 120.0
"""Seconds to import a plugin and call its factory."""


class StartError(PluginError):
    """A worker process could not build its plugin. Ends the run, since other workers would fail the same way."""


class CallFailure(Exception):
    """A call that returned no verdict."""

    def __init__(self, reason: str, detail: str, *, retryable: bool = False) -> None:
        super().__init__(reason, detail)
        self.reason = reason if reason.isidentifier() and len(reason) <= LONGEST_REASON else "error"
        self.detail = detail
        self.retryable = retryable

    def verdict(self) -> Unscored:
        """Return the verdict `Unscored` with this reason."""
        return Unscored(self.reason, self.retryable, self.detail)


class RewardWorker:
    """A process with a plugin's reward, and its latest output."""

    def __init__(self, server: Server, title: str, memory_mb: int, arguments: Mapping[str, object]) -> None:
        """Fork the process; `arguments` go to `RewardHost`. OSError if the system cannot start another one."""
        self._spec = WorkerGroupSpec(title, 1, REWARD_HOST, arguments)
        self._output, self._busy = Output(LONGEST_TAIL), False
        with self._output.opened() as output:
            self._process = server.fork(
                ENTRY, title=title, output=output, memory_mb=memory_mb, most_processes=MOST_PROCESSES
            )

    @property
    def alive(self) -> bool:
        """Whether the worker can take a call; a closed channel shows its death before the server reports it."""
        return self._process.cause is None and self._process.is_idle

    async def ready(self) -> None:
        """Wait until the plugin is built; StartError with the worker's output if that fails."""
        try:
            await self._exchange(BuildRequest(self._spec, Place(0), None, answers_json=True), START_TIMEOUT_S)
        except CallFailure as failure:
            raise StartError(f"{self._spec.name}: its worker process cannot build it: {failure.detail}") from None

    async def call(self, samples: Sequence[Sample], ctx: RewardContext | None, timeout_s: float) -> Json:
        """Return the verdicts of one call, as JSON.

        Raises:
            CallFailure: there is no answer. Unless `alive` is still True, the next call needs another worker.
        """
        answer = await self._exchange(("answer", (samples, ctx)), timeout_s)
        if "error" not in answer:
            return answer.get("verdicts")
        reason, detail = str(answer["error"]), str(answer.get("detail"))
        if reason == "memory":
            self._process.kill("memory", detail)
        raise CallFailure(reason, detail + self._output.printed())

    async def _exchange(self, request: object, timeout_s: float) -> dict[str, Json]:
        process, answer, error, body = self._process, None, "", pickled(request)
        self._output.clear()
        self._output.watch()
        self._busy = True
        try:
            with suppress(EOFError):
                async with asyncio.timeout(timeout_s):
                    answer, error = json.loads(await process.call(body, LARGEST_ANSWER))
        except TimeoutError:
            process.kill("timeout", f"no answer in {timeout_s:g} s; it was killed")
        except (ValueError, TypeError, RecursionError):
            process.kill("contract", "something other than its answer was written to its socket")
        except BaseException:
            process.kill("killed", "the call was cancelled")
            raise
        finally:
            self._output.stop()
            self._busy = False
            failure = None if process.cause is None and not process.has_ended else self._failure()
            if failure is not None:
                self.close()
        if failure is not None:
            raise failure
        if error:
            raise CallFailure("error", f"{error}{self._output.printed()}")
        return answer if isinstance(answer, dict) else {}

    def _failure(self) -> CallFailure:
        process = self._process
        printed, code = self._output.printed(), process.code
        if process.cause is not None:
            reason, detail = process.cause
        elif TOO_MANY_FORKS in printed:
            reason, detail = "processes", "it forked without end"
        else:
            subject = "it ended itself," if code is not None and code >= 0 else "it was"
            reason, detail = ("memory" if code == -signal.SIGKILL else "died"), f"{subject} {process.exit_text}"
        return CallFailure(reason, detail + printed, retryable=reason == "timeout")

    def close(self) -> None:
        """Kill the worker and close its files; a call in progress fails and closes the files itself."""
        self._process.kill("killed", "it was closed")
        self._process.disconnect()  # ends a call in progress
        if not self._busy:
            self._process.close()
            self._output.close()


# Where the calls of each reward run.

SubjectT = TypeVar("SubjectT")
ContextT = TypeVar("ContextT")
ResultT = TypeVar("ResultT")


class OnLoop(Generic[SubjectT, ContextT, ResultT]):
    """Calls `call(subject, ctx)` on the event loop with limits and statistics; its errors propagate."""

    def __init__(
        self,
        call: Callable[[SubjectT, ContextT], Awaitable[ResultT]],
        *,
        timeout_s: float,
        max_concurrency: int | None,
        calls: CallStats,
        convert: Callable[[object], object] | None = None,
    ) -> None:
        """Wrap an async callable.

        Args:
            call: the async callable.
            timeout_s: time limit of a call, without the wait for a slot.
            max_concurrency: most concurrent calls; None: no limit.
            calls: counts the calls.
            convert: converts the answer for the caller.
        """
        self.call = call
        self._timeout_s, self._calls = timeout_s, calls
        self._slots = Slots(max_concurrency) if max_concurrency else None
        self._convert = convert

    @measures
    async def __call__(self, subject: SubjectT, ctx: ContextT) -> ResultT:
        """Make one call.

        Raises:
            TimeoutError: the call exceeded its time limit and was cancelled.
            PluginError: the call raised `SystemExit` or another error that would end the event loop.
        """
        calls = self._calls
        if self._slots is not None:
            await self._slots.acquire()
        began = perf_counter()
        try:
            answer = await limited(self.call(subject, ctx), self._timeout_s)
            return answer if self._convert is None else cast(ResultT, self._convert(answer))
        except TimeoutError:
            calls.timeouts += 1
            raise
        except (Exception, asyncio.CancelledError, GeneratorExit) as error:
            calls.errors += isinstance(error, Exception)
            raise
        except BaseException as error:
            calls.errors += 1
            raise PluginError(f"it raised {type(error).__name__}: {error_text(error)}") from error
        finally:
            calls.seconds.append(perf_counter() - began)
            if self._slots is not None:
                self._slots.release()


class Isolated:
    """A reward or group reward that runs in worker processes; a failed call returns `Unscored`."""

    def __init__(self, spec: CallSpec[object], calls: CallStats, launch: Callable[[], RewardWorker]) -> None:
        """Start no process yet; `launch` creates a worker."""
        self._spec, self._calls, self._launch = spec, calls, launch
        self._slots = Slots(spec.max_concurrency or own_cores())
        self._idle: list[RewardWorker] = []
        self._all: set[RewardWorker] = set()
        self._ever_ready = self._closed = False
        # The caller's thread may have a running event loop, so another thread awaits label checks.
        self._label_thread, self._label_loop = ThreadPoolExecutor(1), asyncio.Runner()

    async def start(self) -> None:
        """Start one worker, to find a broken plugin before any sample needs it; raises StartError for one."""
        async with self._slots:
            self._idle.append(await self._worker())

    async def __call__(self, subject: Sample | Sequence[Sample], ctx: RewardContext) -> Verdict | list[Verdict]:
        """Return the verdict on a sample, or on each sample of a group; StartError if no worker ever started."""
        samples = [subject] if isinstance(subject, Sample) else subject
        try:
            verdicts = await self._verdicts(samples, ctx)
        except CallFailure as failure:
            if failure.reason == "timeout":
                self._calls.timeouts += 1
            else:
                self._calls.errors += 1
            verdicts = [failure.verdict() for _ in samples]
        return verdicts[0] if isinstance(subject, Sample) else verdicts

    def check_label(self, sample: Sample) -> str | None:
        """Return the result of the reward's `check_label`; None if it has none. Statistics leave the call out.

        Raises:
            CallFailure: the call failed.
            StartError: the very first worker could not be started.
        """
        if self._closed:
            raise CallFailure("closed", "the run is over")
        call = self._verdicts([sample], None)
        try:
            (verdict,) = self._label_thread.submit(self._label_loop.run, call).result()
        except CallFailure as failure:
            if failure.reason == "timeout":
                return "its check took longer than the reward's time limit"
            raise
        return verdict.reason if isinstance(verdict, Unscored) else None

    def close(self) -> None:
        """Kill every worker; calls in progress fail. Idempotent."""
        was_closed, self._closed = self._closed, True
        self._idle.clear()
        while self._all:
            self._all.pop().close()
        if not was_closed:  # last: the thread may wait for a worker
            self._label_thread.submit(self._label_loop.close)
            self._label_thread.shutdown()

    async def _verdicts(self, samples: Sequence[Sample], ctx: RewardContext | None) -> list[Verdict]:
        copies = [copy_fields(sample, self._spec.fields) for sample in samples]
        async with self._slots:  # the wait has no time limit and is not measured
            worker, began = await self._worker(), perf_counter()
            try:
                answer = await worker.call(copies, ctx, self._spec.timeout_s)
            finally:
                if ctx is not None:
                    self._calls.seconds.append(perf_counter() - began)
                if worker.alive and not self._closed:
                    self._idle.append(worker)
                else:
                    self._end(worker)
        try:
            verdicts = [receive_verdict(each) for each in cast(list[Json], answer)]
        except (TypeError, ValueError) as error:
            raise CallFailure("contract", str(error)) from None
        if len(verdicts) != len(samples):
            raise CallFailure("contract", f"{len(verdicts)} verdicts for {len(samples)} samples")
        return verdicts

    async def _worker(self) -> RewardWorker:
        """Return an idle worker, or start one."""
        if self._closed:
            raise CallFailure("closed", "the run is over")
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            self._end(worker)
        try:
            worker = self._launch()
            self._all.add(worker)
            try:
                await worker.ready()
            except BaseException:
                self._end(worker)
                raise
        except (OSError, StartError) as error:
            if not self._ever_ready:
                raise error if isinstance(error, StartError) else StartError(str(error)) from error
            raise CallFailure("start", str(error), retryable=True) from None
        self._ever_ready = True
        return worker

    def _end(self, worker: RewardWorker) -> None:
        worker.close()
        self._all.discard(worker)


class Protection:
    """Owns the worker processes of all rewards and group rewards of a run."""

    def __init__(self, *, plugins: PluginSet, seed: int, stats: PluginStats) -> None:
        """Start nothing yet.

        Args:
            plugins: the driver's plugins with versions, which workers load.
            seed: the run's seed, for factories.
            stats: counts the calls.
        """
        self._plugins, self._seed, self._stats = plugins, seed, stats
        self._isolated: list[Isolated] = []
        self._server = Server(preload=[PRELOAD])

    def protect(
        self, registered: RegisteredChoice, settings: Settings, build: Callable[[], object], *, name: str
    ) -> object:
        """Return a choice as the run calls it. Rewards and group rewards become awaitable, in a process or not.

        With `isolation=Isolation.PROCESS`, only workers call `build`. `name` is the choice's name in the run.

        Raises:
            PluginError: the object that the factory returned does not fit the spec.
        """
        spec = registered.spec
        if not isinstance(spec, CallSpec):
            return build()
        calls = self._stats.calls(spec.role, name, registered.plugin)
        built = None if spec.isolation is Isolation.PROCESS else build()
        if isolation_of(spec, built) is Isolation.LOOP:
            return OnLoop(
                cast(Callable[..., Awaitable[object]], built),
                timeout_s=spec.timeout_s,
                max_concurrency=spec.max_concurrency,
                calls=calls,
                convert=as_verdict if spec.role == "reward" else None,
            )
        values, title = settings.model_dump(), f"{spec.role} {registered.qualified}"
        arguments = {
            "role": spec.role,
            "name": registered.qualified,
            "plugin": registered.plugin,
            "settings": values,
            "plugins": replace(self._plugins, root=self._plugins.root or Path.cwd()),
            "secrets": REDACTOR.within(values),
            "seed": self._seed,
            "memory_mb": spec.memory_mb,
        }
        launch = partial(RewardWorker, self._server, title, spec.memory_mb, arguments)
        self._isolated.append(Isolated(spec, calls, launch))
        return self._isolated[-1]

    async def start(self) -> None:
        """Start one worker for each choice that runs in processes; PluginError if a worker cannot build its plugin."""
        await gather_or_cancel(*(each.start() for each in self._isolated))

    def close(self) -> None:
        """Stop all workers; idempotent."""
        for each in self._isolated:
            each.close()
        self._server.close()


def isolation_of(spec: CallSpec[object], built: object) -> Isolation:
    """Return where an object's calls run: as the spec says, else `async def` on the loop and `def` in a process.

    Raises:
        PluginError: it cannot be called as its role requires, or the spec puts a plain `def` on the event loop.
    """
    what = f"{spec.role} {spec.name!r}"
    if spec.isolation is Isolation.PROCESS:
        return Isolation.PROCESS
    if not callable(built):
        raise PluginError(f"{what}: the factory returned {built!r:.80}, which cannot be called")
    if (why := signature_error(built, spec.name, spec.role)) is not None:
        raise PluginError(f"{what}: {why}")
    if is_async(built):
        return Isolation.LOOP
    if spec.isolation is Isolation.LOOP:
        raise PluginError(
            f"{what} is a plain `def`, and its spec says isolation=Isolation.LOOP, where it would keep everything else "
            "waiting. Write `async def` and `await` what takes time, or remove the isolation: then it runs in a process"
        )
    return Isolation.PROCESS


def check_label(reward: object, sample: Sample) -> str | None:
    """Return why no response can get full marks with the sample's label; None if one can, or if that is unknown.

    Args:
        reward: a protected reward; its `check_label` runs where the reward runs.
        sample: a pending sample with the label.

    Raises:
        CallFailure: the reward's worker process failed.
        StartError: the reward's worker cannot be started.
    """
    reward = reward.call if isinstance(reward, OnLoop) else reward
    return check_label_result(reward.check_label(sample)) if isinstance(reward, ChecksLabels) else None


def may_check_labels(spec: CallSpec[object]) -> bool:
    """Whether a spec may have a `check_label`; False if its function or class has none."""
    built: object = inspect.unwrap(spec.factory)
    return hasattr(built, "check_label") or (built is spec.factory and not isinstance(built, type))
