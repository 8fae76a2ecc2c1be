"""Runs each reward where its spec places it: on the event loop, in a thread or in a worker process, with limits.

Callers await every reward in the same way. A call outside the event loop gets a copy of the fields that its spec
names, so a plugin cannot change the run's samples.

Example:

    protection = Protection(plugins=catalog.plugin_set, seed=1, stats=PluginStats())
    reward = protection.protect(registered, settings, lambda: registered.spec.factory(settings, setup), name="math")
    await protection.start()             # a plugin that a worker cannot build fails here
    verdict = await reward(sample, ctx)
    protection.close()
"""

import asyncio
import inspect
import itertools
import json
import os
import queue
import threading
import traceback
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Generic, Protocol, TypeAlias, TypeVar, cast

from slime_core.aio import Slots, limited
from slime_core.catalog import Registered, check_verdict
from slime_core.catalog.checks import as_verdict, check_verdicts, checked_label
from slime_core.errors import ContractError, PluginError, said_by
from slime_core.processes.channel import plain, receive_sample, receive_verdict, send_context, send_sample
from slime_core.processes.pool import WORKER, CallFailure, WorkerPool, WorkerProcess
from slime_core.processes.server import Server
from slime_core.roles import CallSpec, ChecksLabels, Isolation, PluginSet, RewardContext, Settings, is_async
from slime_core.roles.rewards import misfit
from slime_core.sample import Json, Sample
from slime_core.score import Unscored, Verdict
from slime_core.secrets import REDACTOR
from slime_core.stats import CallStats, PluginStats, measures

# OnLoop: an async callable run where it is, under a time limit and a limit of calls at once, and measured.

SubjectT = TypeVar("SubjectT")
ContextT = TypeVar("ContextT")
ResultT = TypeVar("ResultT")


class OnLoop(Generic[SubjectT, ContextT, ResultT]):
    """Calls `call(subject, ctx)` on the event loop; what it raises passes through."""

    def __init__(
        self,
        call: Callable[[SubjectT, ContextT], Awaitable[ResultT]],
        *,
        timeout_s: float,
        max_concurrency: int | None,
        calls: CallStats,
        until: Callable[[ContextT, float], ContextT] | None = None,
        convert: Callable[[object], object] | None = None,
    ) -> None:
        """Wrap it.

        Args:
            call: what is called.
            timeout_s: its time limit, which begins when the call does, not when it begins to wait for a place.
            max_concurrency: calls at once; None for as many as come.
            calls: where calls are counted.
            convert: makes of what it returned what the caller gets.
            until: puts into a call's context when the call will be given up, by the loop's clock.
        """
        self.called = call
        self._timeout_s = timeout_s
        self._slots = Slots(max_concurrency) if max_concurrency else None
        self._calls = calls
        self._until = until
        self._convert = convert
        calls.limit_s = min(calls.limit_s, timeout_s)

    @measures
    async def __call__(self, subject: SubjectT, ctx: ContextT) -> ResultT:
        """One call.

        Raises:
            TimeoutError: it was given up.
            PluginError: it raised `SystemExit`, or what else ends an event loop.
        """
        calls = self._calls
        if self._slots is not None:
            await self._slots.acquire()
        if self._until is not None:
            ctx = self._until(ctx, asyncio.get_running_loop().time() + self._timeout_s)
        began = perf_counter()
        try:
            answer = await limited(self.called(subject, ctx), self._timeout_s)
            return answer if self._convert is None else cast(ResultT, self._convert(answer))
        except TimeoutError:
            calls.timeouts += 1
            raise
        except (Exception, asyncio.CancelledError, GeneratorExit) as error:
            calls.errors += isinstance(error, Exception)
            raise
        except BaseException as error:
            calls.errors += 1
            raise PluginError(
                f"it raised {type(error).__name__}: {said_by(error)}"
            ) from error  # asyncio would end the run with it
        finally:
            calls.seconds.append(perf_counter() - began)
            if self._slots is not None:
                self._slots.release()


# ThreadPool: daemon threads for calls that block on I/O. A thread is left behind at its time limit, and replaced.

_Work: TypeAlias = "tuple[Callable[[], object], _Answer]"


@dataclass(slots=True)
class _Answer:
    """The future of one call, told from its thread how the call ended."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[object]

    def give(self, value: object, error: BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(self._set, value, error)

    def _set(self, value: object, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(value)
        else:
            self.future.set_exception(error)


class ThreadPool:
    """At most `size` threads, not counting those left behind."""

    def __init__(self, size: int, name: str) -> None:
        """No thread is started yet."""
        self._slots = Slots(size)
        self._idle: list[_Thread] = []
        self._names = (f"{name} {number}" for number in itertools.count())

    async def call(self, function: Callable[[], object], timeout_s: float, calls: CallStats) -> object:
        """Run a function in a free thread; waits for one without a limit, and does not count that in `calls`.

        Raises:
            TimeoutError: it took longer than `timeout_s`, and runs on, alone.
        """
        await self._slots.acquire()
        thread = self._idle.pop() if self._idle else _Thread(next(self._names))
        loop = asyncio.get_running_loop()
        answer = _Answer(loop, loop.create_future())
        began = perf_counter()
        try:
            thread.work.put((function, answer))
            async with asyncio.timeout(timeout_s):
                return await answer.future
        finally:
            calls.seconds.append(perf_counter() - began)
            # Cancelled, or done without this task: a thread is free only when its function has ended.
            if answer.future.done() and not answer.future.cancelled():
                self._idle.append(thread)
            else:
                thread.work.put(None)
            self._slots.release()

    def close(self) -> None:
        """Let the idle threads end."""
        while self._idle:
            self._idle.pop().work.put(None)


class _Thread:
    """A thread and what it is to do; None ends it."""

    def __init__(self, name: str) -> None:
        self.work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(self.work,), name=name, daemon=True).start()

    @staticmethod
    def _run(work: "queue.SimpleQueue[_Work | None]") -> None:
        while (given := work.get()) is not None:
            function, answer = given
            try:
                value = function()
            except Exception as error:
                answer.give(None, RuntimeError(f"it raised {error!r}") if isinstance(error, StopIteration) else error)
            except BaseException as error:
                answer.give(
                    None, PluginError(f"it raised {type(error).__name__}: {said_by(error)}")
                )  # ends a call, not the run
            else:
                answer.give(value, None)
            del given, function, answer


# Lanes: where the calls of one choice run apart from the driver, and come back as verdicts whatever happens.


class Lane(Protocol):
    """One kind of isolation of one choice."""

    async def ask(self, samples: Sequence[Sample], ctx: RewardContext, calls: CallStats) -> list[Verdict]:
        """One verdict a sample; the time without the wait for a place is counted in `calls`.

        Raises:
            CallFailure: there are none.
            StartError: the plugin cannot be built where its calls run.
        """
        ...

    async def start(self) -> None:
        """Find out whether the plugin can be built; raises as `ask` does."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...

    async def check_label(self, sample: Sample) -> str | None:
        """What the reward's `check_label` says; None, too, where it has none.

        Raises:
            CallFailure: it gave no answer.
        """
        ...


class ProcessLane:
    """Calls run in worker processes, which can be killed."""

    def __init__(self, spec: CallSpec[object], pool: WorkerPool) -> None:
        """Use this pool, which is closed with the lane."""
        self._spec, self._pool = spec, pool

    async def start(self) -> None:
        """Start one worker."""
        await self._pool.start()

    async def ask(self, samples: Sequence[Sample], ctx: RewardContext, calls: CallStats) -> list[Verdict]:
        """See `Lane`."""
        sent: list[Json] = [send_sample(sample, self._spec.fields) for sample in samples]
        answer = await self._pool.call({"samples": sent, "ctx": send_context(ctx)}, self._spec.timeout_s, calls)
        try:
            verdicts = [receive_verdict(each) for each in cast(list[Json], answer)]
        except (TypeError, ValueError) as error:
            raise CallFailure("contract", str(error)) from None
        if len(verdicts) != len(samples):
            raise CallFailure("contract", f"{len(verdicts)} verdicts for {len(samples)} samples")
        return verdicts

    async def check_label(self, sample: Sample) -> str | None:
        """See `Lane`."""
        request: dict[str, Json] = {"samples": [send_sample(sample, self._spec.fields)], "check_label": True}
        calls = CallStats(self._spec.role, self._spec.name, "")  # not among those of the run
        answer = receive_verdict(cast(list[Json], await self._pool.call(request, self._spec.timeout_s, calls))[0])
        return answer.reason if isinstance(answer, Unscored) else None

    def close(self) -> None:
        """Kill the workers."""
        self._pool.close()


class ThreadLane:
    """Calls run in threads of the driver."""

    def __init__(
        self, spec: CallSpec[object], plugin: str, call: Callable[..., object], many: bool, pool: ThreadPool
    ) -> None:
        """`call` takes a list of samples if `many`, else one."""
        self._spec, self._plugin, self._call, self._many, self._pool = spec, plugin, call, many, pool

    async def start(self) -> None:
        """Nothing: what runs in threads was built in the driver."""

    async def ask(self, samples: Sequence[Sample], ctx: RewardContext, calls: CallStats) -> list[Verdict]:
        """See `Lane`."""
        copies = [receive_sample(send_sample(sample, self._spec.fields)) for sample in samples]
        subject = copies if self._many else copies[0]
        limit = self._spec.timeout_s
        try:
            answer = await self._pool.call(lambda: self._call(subject, ctx), limit, calls)
            if self._many:
                return list(check_verdicts(answer, plugin=self._plugin, samples=copies))
            return [check_verdict(answer, plugin=self._plugin, sample=copies[0])]
        except TimeoutError:
            raise CallFailure(
                "timeout", f"no answer in {limit:g} s; its thread was left behind", retryable=True
            ) from None
        except ContractError as error:
            raise CallFailure("contract", str(error)) from error
        except Exception as error:
            raise CallFailure(type(error).__name__, traceback.format_exc()) from error

    async def check_label(self, sample: Sample) -> str | None:
        """See `Lane`; here and not in a thread, for it is a plain function that is fast."""
        called: object = self._call
        if not isinstance(called, ChecksLabels):
            return None
        return checked_label(called.check_label(receive_sample(send_sample(sample, self._spec.fields))))

    def close(self) -> None:
        """Let idle threads end."""
        self._pool.close()


class Isolated:
    """A `Reward` whose calls run in a lane."""

    def __init__(self, lane: Lane, calls: CallStats) -> None:
        """Calls are counted in `calls`."""
        self.lane, self._stats = lane, calls

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """The verdict; `Unscored` when there is none."""
        return (await self._ask([sample], ctx))[0]

    async def _ask(self, samples: Sequence[Sample], ctx: RewardContext) -> list[Verdict]:
        try:
            return await self.lane.ask(samples, ctx, self._stats)
        except CallFailure as failure:
            if failure.reason == "timeout":
                self._stats.timeouts += 1
            else:
                self._stats.errors += 1
            return [failure.verdict() for _ in samples]


class IsolatedGroup(Isolated):
    """A `GroupReward` whose calls run in a lane."""

    async def __call__(self, samples: Sequence[Sample], ctx: RewardContext) -> list[Verdict]:  # type: ignore[override]  # a group's samples where a reward has one
        """One verdict a sample, in their order."""
        return await self._ask(samples, ctx)


# Protection: puts a plugin's rewards where their specs say, so that everybody else awaits them alike.

THREADS = 32
"""Threads of a choice that does not say."""


class Protection:
    """Owns the workers of a run's rewards and group rewards."""

    def __init__(self, *, plugins: PluginSet, seed: int, stats: PluginStats) -> None:
        """Nothing is started.

        Args:
            plugins: what workers load: the driver's plugins, in its versions.
            seed: the run's, for factories.
            stats: where calls are counted.
        """
        self._plugins = plugins
        self._seed = seed
        self._stats = stats
        self._lanes: dict[str, Lane] = {}
        self._server = Server(preload=[WORKER])

    def protect(self, registered: Registered, settings: Settings, build: Callable[[], object], *, name: str) -> object:
        """What `build` makes of a choice; a reward or a group reward may be awaited, wherever its calls run.

        What a spec that says PROCESS offers is built in workers only. `name` is what the run calls the choice.

        Raises:
            PluginError: the spec and the object that its factory makes do not fit.
        """
        spec = registered.spec
        if not isinstance(spec, CallSpec):
            return build()
        calls = self._stats.calls(spec.role, name, registered.plugin)
        made = None if spec.isolation is Isolation.PROCESS else build()
        isolation = isolation_of(spec, made)
        if isolation is Isolation.LOOP:
            call = cast(Callable[..., object], made)
            return OnLoop(
                call,  # type: ignore[arg-type]  # it is awaited: `isolation_of` has seen that
                timeout_s=spec.timeout_s,
                max_concurrency=spec.max_concurrency,
                calls=calls,
                convert=as_verdict if spec.role == "reward" else None,
            )
        key = json.dumps([spec.role, registered.qualified, plain(settings)], sort_keys=True)
        if key not in self._lanes:
            self._lanes[key] = self._lane(registered, spec, settings, isolation, made)
        return (IsolatedGroup if spec.role == "group_reward" else Isolated)(self._lanes[key], calls)

    def _lane(
        self, registered: Registered, spec: CallSpec[object], settings: Settings, isolation: Isolation, made: object
    ) -> Lane:
        title = f"{spec.role} {registered.qualified}"
        if isolation is Isolation.THREAD:
            call = cast(Callable[..., object], made)
            pool = ThreadPool(spec.max_concurrency or THREADS, title)
            return ThreadLane(spec, registered.plugin, call, spec.role == "group_reward", pool)
        start: dict[str, Json] = {
            "role": spec.role,
            "name": registered.qualified,
            "plugin": registered.plugin,
            "settings": plain(settings),
            "plugins": {
                "only": plain(self._plugins.only or ()),
                "modules": plain(self._plugins.modules),
                "expected": plain(self._plugins.expected),
                "root": str(self._plugins.root or Path.cwd()),
            },
            "secrets": plain(REDACTOR.within(settings.model_dump())),
            "seed": self._seed,
            "memory_mb": spec.memory_mb,
        }
        launch = partial(WorkerProcess, self._server, start, title=title, memory_mb=spec.memory_mb)
        return ProcessLane(spec, WorkerPool(launch, spec.max_concurrency or _cores()))

    async def start(self) -> None:
        """Start a worker of each choice that runs in processes.

        Raises:
            PluginError: a worker cannot build its plugin; shows what it printed.
        """
        try:
            async with asyncio.TaskGroup() as starting:
                for lane in self._lanes.values():
                    starting.create_task(lane.start())
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    def close(self) -> None:
        """End everything that was started; does nothing the second time."""
        for lane in self._lanes.values():
            lane.close()
        self._server.close()


def _cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def isolation_of(spec: CallSpec[object], made: object) -> Isolation:
    """Where the calls of what a factory made run: as the spec says, else by how it is written.

    Raises:
        PluginError: a plain `def` is to run on the event loop, or an `async def` in threads.
    """
    what = f"{spec.role} {spec.name!r}"
    if spec.isolation is Isolation.PROCESS:
        return Isolation.PROCESS
    if not callable(made):
        raise PluginError(f"{what}: the factory returned {made!r:.80}, which cannot be called")
    if (why := misfit(made, spec.name, spec.role)) is not None:
        raise PluginError(f"{what}: {why}")
    asynchronous = is_async(made)
    if spec.isolation is Isolation.LOOP and not asynchronous:
        raise PluginError(
            f"{what} is a plain `def`, and its spec says isolation=Isolation.LOOP, where it would keep everything else "
            "waiting. Write `async def` and `await` what takes time, or remove the isolation: then it runs in a process"
        )
    if spec.isolation is Isolation.THREAD and asynchronous:
        raise PluginError(
            f"{what} is an `async def`, and its spec says isolation=Isolation.THREAD, which is for a plain `def` that "
            "blocks. Remove the isolation: then it runs on the event loop"
        )
    if spec.isolation is not None:
        return spec.isolation
    return Isolation.LOOP if asynchronous else Isolation.PROCESS


# LabelCheck: `check_label` of a reward, called where the reward runs, from plain code.


class LabelCheck:
    """The check of one protected reward."""

    def __init__(self, reward: object) -> None:
        """Start nothing; a reward that runs in a process gets its first worker at the first call."""
        self._called = reward.called if isinstance(reward, OnLoop) else reward
        self._lane: Lane | None = reward.lane if isinstance(reward, Isolated) else None
        # The caller's thread may have an event loop that runs, so the lane gets one in another thread.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="check_label") if self._lane else None
        self._runner = asyncio.Runner()

    def __enter__(self) -> "LabelCheck":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the event loop; the worker stays, for the run."""
        if self._thread is not None:
            self._thread.submit(self._runner.close).result()
            self._thread.shutdown()

    def __call__(self, sample: Sample) -> str | None:
        """Return why no response can earn full marks against the label; None if one can, or if nothing is known.

        Raises:
            CallFailure: the reward runs in a process, and failed there.
            StartError: its worker cannot be started.
        """
        lane = self._lane
        if lane is not None and self._thread is not None:
            try:
                return self._thread.submit(lambda: self._runner.run(lane.check_label(sample))).result()
            except CallFailure as failure:
                if failure.reason == "timeout":
                    return "its check took longer than the reward's time limit"
                raise
        if isinstance(self._called, ChecksLabels):
            return checked_label(self._called.check_label(sample))
        return None


def may_check_labels(spec: CallSpec[object]) -> bool:
    """Whether what a spec offers may have a `check_label`; False where its function or class shows that it has none."""
    made: object = inspect.unwrap(spec.factory)
    return hasattr(made, "check_label") or (made is spec.factory and not isinstance(made, type))
