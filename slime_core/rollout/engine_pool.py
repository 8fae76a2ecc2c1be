"""EnginePool: several engines of one kind that act as one, as long as at least one works.

An engine that dies, hangs, answers garbage or answers with old weights is taken out. Its requests go to another engine
with the same seed, and a new engine is started in its place until one answers a probe.

Example:

    pool = EnginePool(make_engine, 8, Limits.of(spec, silence_s=300.0), probe=request)
    await pool.start()
    await pool.load_weights(channel, 0)
    output = await pool.generate(request)
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import nullcontext, suppress
from itertools import count
from operator import attrgetter
from typing import TypeAlias

from slime_core.aio import cancel_all
from slime_core.catalog.catalog import BuiltChoice
from slime_core.errors import ContractError, RequestError, SlimeError, WorkerError, error_text
from slime_core.roles import (
    Engine,
    FinishReason,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    MemoryTag,
    MemoryTags,
    WatchesWorkers,
    WeightChannel,
)
from slime_core.rollout.calls import OnChunk, set_engine
from slime_core.rollout.engine_handle import EngineFailure, EngineHandle, EngineReplaced, Limits
from slime_core.sample import GroupId

Load: TypeAlias = Callable[[int], Coroutine[object, object, None]]
Resend: TypeAlias = Callable[[int, Load], Awaitable[None]]
"""Called with an engine's number and the load that receives the version there."""

AHEAD = 8
"""A group stays on its engine until that engine has `AHEAD` requests more work than the least busy one."""
MAX_AFFINITIES = 8192
"""Groups and sessions whose engine is remembered, for cache reuse."""
MAX_FAILURES_PER_REQUEST = 3
"""Engines that may raise or return garbage for a request before it fails."""
MAX_ERRORS_PER_ENGINE = 3
"""Requests in a row that an engine may fail before it is taken out, if another engine answers the last one."""
SUSPECT_LOST = 2
"""Lost engines after which a request is a suspect; suspects run one at a time."""
MAX_LOSSES_PER_REQUEST = 6
"""Engines that may die or hang over a request before it fails."""
FIRST_PAUSE_S, MAX_PAUSE_S, URGENT_PAUSE_S = 1.0, 300.0, 4.0
"""First restart delay, which doubles each time; its maximum; and its maximum while no engine serves."""
SERVED_PAUSES = 10.0
"""An engine that served for this many delays restarts with the first delay again."""
CLOSE_S = 15.0
"""Seconds that a failed engine has to close."""
LOOK_S = 1.0
"""Seconds between two checks for silent engines."""

LATE_START_FACTOR = 3.0
"""Once one engine has started, the others may take this multiple of its start time."""
MIN_LATE_START_S = 60.0
"""Least seconds that the others may take."""

_LEAST, _FEWEST_ERRORS = attrgetter("work", "number"), attrgetter("errors_in_a_row", "work", "number")
_NO_LOCK = nullcontext()

log = logging.getLogger(__name__)


class EnginePool:
    """Implements `slime_core.roles.Engine`; its `generate` can also stream an answer."""

    def __init__(
        self,
        make: Callable[[int], BuiltChoice[Engine]],
        count: int,
        limits: Limits,
        *,
        probe: GenerateRequest,
        load_checkpoint: bool = False,
    ) -> None:
        """Build the engines; `start` starts them.

        Args:
            make: builds the engine with a number, from 0; called again to replace one.
            count: number of engines.
            limits: time limits of each engine.
            probe: request that a restarted engine must answer before it serves.
            load_checkpoint: whether engines serve their model directory instead of published weights.
        """
        self._make, self._limits, self._probe = make, limits, probe
        self._load_checkpoint = load_checkpoint
        self._engines = [self._build(number) for number in range(count)]
        """The newest engine of each number."""
        self._serving: list[EngineHandle] = []
        """Engines that take requests, by number."""
        self._affinity: dict[GroupId | str | None, EngineHandle] = {}
        self._aborts = 0
        self._weights: tuple[WeightChannel, int] | None = None
        """Channel and version of the weights that engines must serve."""
        self._released: MemoryTags = frozenset()
        self._resend: Resend | None = None
        self._counts: Counter[str] = Counter()
        self._suspects = asyncio.Lock()
        self._changed = asyncio.Event()
        self._ended = ""
        """Why no engine will serve again; empty while one may."""
        self._served_at = 0.0
        """Loop time at which an engine last served."""
        self._timer: asyncio.TimerHandle | None = None
        self._watches: dict[EngineHandle, asyncio.Task[None]] = {}
        self._restarts: dict[int, asyncio.Task[None]] = {}

    def _build(self, number: int, failures: int = 0) -> EngineHandle:
        return EngineHandle(number, self._make(number), self._limits, self._load_checkpoint, failures=failures)

    # --- what a run calls

    async def start(self) -> None:
        """Start all engines; retry later each one that fails or takes much longer than the first.

        Raises:
            WorkerError: none could be started.
        """
        loop, engines = asyncio.get_running_loop(), tuple(self._engines)
        began, start_s = loop.time(), self._limits.start_s
        starts = [asyncio.create_task(handle.call("start", limit_s=start_s)) for handle in engines]
        try:
            for ended in asyncio.as_completed(starts):
                with suppress(Exception):
                    await ended
                    break
            await asyncio.wait(starts, timeout=max(MIN_LATE_START_S, LATE_START_FACTOR * (loop.time() - began)))
        finally:
            await cancel_all(starts)
        late = EngineFailure("died", f"it had not started after {loop.time() - began:.0f} s")
        errors = [late if each.cancelled() else each.exception() for each in starts]
        if None not in errors:
            raise next(error for error in errors if error)
        for handle in engines:
            self._serve(handle)
        for handle, error in zip(engines, errors, strict=True):
            if error is not None:
                self._take_out(handle, EngineFailure("died", f"it could not be started: {_text(error)}"))
        self._check_progress(asyncio.get_running_loop().time())

    @property
    def serving(self) -> tuple[int, ...]:
        """Numbers of the engines that `load_weights` would switch now."""
        return tuple(handle.number for handle in self._serving)

    def set_resend(self, resend: Resend) -> None:
        """Set how to send weights again to a restarted engine that cannot read them alone."""
        self._resend = resend

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        """Load a version into all engines. One that fails is taken out, and returns with this version or a later one.

        Raises:
            WorkerError: no engine serves, and none was restarted.
            Exception: what all engines raised; they keep the weights that they served.
        """
        before, self._weights = self._weights, (channel, version)
        try:
            await self._call_all(lambda handle: handle.load(channel, version))
        except BaseException:
            self._weights = before
            raise
        while not self._serving:
            await self._wait_for_change()

    async def abort(self) -> None:
        """Interrupt the requests in progress and the ones that wait for an engine."""
        self._aborts += 1
        self._notify()
        await self._call_all(lambda handle: handle.call("abort", limit_s=self._limits.silence_s))

    async def release(self, tags: MemoryTags) -> None:
        """Release memory of all engines, restarted ones included; one that fails is taken out."""
        self._released |= tags
        await self._call_all(lambda handle: self._memory(handle, "release", tags))

    async def resume(self, tags: MemoryTags) -> None:
        """Reacquire memory of all engines; one that fails is taken out."""
        self._released -= tags
        await self._call_all(lambda handle: self._memory(handle, "resume", tags))

    async def close(self) -> None:
        """Stop all engines and restarts."""
        self._end("the engine is closed")
        await cancel_all([*self._restarts.values(), *self._watches.values()])
        good = [handle.call("close") for handle in self._engines if handle.failure is None]
        bad = [_close(handle) for handle in self._engines if handle.failure is not None]
        for error in await _outcomes([*good, *bad]):
            if error is not None:
                raise error

    def take(self) -> dict[str, float]:
        """Return metrics since the last call: engine failures and restarts, and the load of each of several engines."""
        counts, self._counts = self._counts, Counter()
        found = {f"perf/engine/{name}": float(count) for name, count in sorted(counts.items())}
        for handle in self._engines:
            if len(self._engines) > 1:
                found[f"perf/engine/{handle.number}/requests"] = float(handle.answers)
                found[f"perf/engine/{handle.number}/tokens"] = float(handle.tokens)
            handle.answers = handle.tokens = 0
        return found

    # --- requests

    async def generate(self, request: GenerateRequest, on_chunk: OnChunk | None = None) -> GenerateOutput:
        """Return one answer, streamed to `on_chunk` if given.

        On failure, another engine retries, unless a part was already streamed.

        Raises:
            WorkerError: no engine serves, and none was restarted.
            RequestError: too many engines died or hung over the request, or one did after it had streamed a part.
            Exception: what several engines raised, or one that had streamed a part.
        """
        aborts, failed, losses, sent = self._aborts, dict[EngineHandle, Exception](), list[str](), list[int]()
        again, counted = False, None if on_chunk is None else _counted(on_chunk, sent)
        while True:
            # A request that kills engines makes the requests on the same engine suspects too. Suspects therefore run
            # one at a time: innocent ones get an answer, and the bad one loses engines alone until it fails.
            async with self._suspects if len(losses) >= SUSPECT_LOST else _NO_LOCK:
                if aborts != self._aborts:
                    output = GenerateOutput((), (), FinishReason.ABORT, self._weights[1] if self._weights else 0)
                    if counted is not None:
                        counted(output.as_chunk)
                    return output
                handle = self._choose(request, failed)
                if handle is None:
                    if failed and self._serving:
                        raise [*failed.values()][-1]  # all engines failed it
                    await self._wait_for_change()
                    continue
                if again:
                    self._counts["retries"] += 1
                again = True
                if len(self._engines) > 1:
                    set_engine(f"engine {handle.number}")
                try:
                    output = await handle.generate(request, counted)
                except (WorkerError, EngineReplaced) as error:
                    losses += self._loss(handle, error, sent)
                    if len(losses) >= MAX_LOSSES_PER_REQUEST:
                        listed = "\n  ".join(losses)
                        raise RequestError(
                            f"{len(losses)} engines died or hung over one request:\n  {listed}"
                        ) from None
                except Exception as error:
                    failed[handle] = error
                    handle.errors_in_a_row += not sent
                    if sent or len(failed) >= MAX_FAILURES_PER_REQUEST:
                        raise
                else:
                    for other, reason in failed.items():
                        self._count_error(other, reason)
                    return output

    def _loss(self, handle: EngineHandle, error: WorkerError | EngineReplaced, sent: list[int]) -> list[str]:
        """Take an engine out. Returns the cause if the request may have caused it.

        Raises:
            RequestError: parts were streamed already, and another engine cannot continue them.
        """
        if self._ended and isinstance(error, WorkerError):
            raise error
        if isinstance(error, WorkerError):
            self._take_out(handle, error)
        failure = handle.failure
        assert failure is not None, "it was taken out"
        if sent:
            raise RequestError(
                f"engine {handle.number} {failure.cause} after {sum(sent)} tokens of its answer. Another engine cannot "
                f"continue them: retry the whole request. {failure}"
            ) from None
        return [f"engine {handle.number} {failure.cause}: {failure}"] if failure.cause in ("died", "hung") else []

    def _count_error(self, handle: EngineHandle, error: Exception) -> None:
        """Take out an engine whose request another engine answered.

        For garbage at once, otherwise after `MAX_ERRORS_PER_ENGINE` errors.
        """
        detail = f"it failed a request that another engine answered: {_text(error)}"
        if isinstance(error, ContractError):
            self._take_out(handle, EngineFailure("garbage", detail))
        elif handle.errors_in_a_row >= MAX_ERRORS_PER_ENGINE:
            self._take_out(handle, EngineFailure("errors", f"{detail} ({handle.errors_in_a_row} requests in a row)"))

    def _choose(self, request: GenerateRequest, avoid: Collection[EngineHandle]) -> EngineHandle | None:
        """Choose the engine of a request's session, else the engine of its group, else the one with the least work.

        Requests of a group share a prompt, and each turn of a session extends the last one. One engine computes such a
        prefix once. A group's engine is not used if it has much more work than the others.
        """
        serving = self._serving
        if avoid:
            return min((handle for handle in serving if handle not in avoid), key=_FEWEST_ERRORS, default=None)
        if len(serving) < 2:
            return serving[0] if serving else None
        least = min(serving, key=_LEAST)
        home = self._affinity.get(request.session) or self._affinity.get(request.group)
        most = AHEAD * (len(request.prompt) + request.sampling.max_new_tokens)
        if home is None or home.failure is not None or home.work - least.work > most:
            home = least
            self._remember(request.group, home)
        self._remember(request.session, home)
        return home

    def _remember(self, key: GroupId | str | None, home: EngineHandle) -> None:
        if key is not None:
            self._affinity[key] = home
            if len(self._affinity) > MAX_AFFINITIES:
                del self._affinity[next(iter(self._affinity))]

    # --- which engines serve

    def _serve(self, handle: EngineHandle) -> None:
        loop = asyncio.get_running_loop()
        self._engines[handle.number] = handle
        self._serving = sorted([*self._serving, handle], key=attrgetter("number"))
        handle.since = loop.time()
        if isinstance(handle.use.part, WatchesWorkers):
            self._watches[handle] = asyncio.create_task(self._watch(handle))
        self._notify()

    async def _watch(self, handle: EngineHandle) -> None:
        """Take an engine out if it dies without a request."""
        try:
            await handle.call("watch")
        except Exception as error:
            self._take_out(handle, error)

    def _take_out(self, handle: EngineHandle, error: Exception) -> None:
        """Stop sending requests to an engine, move its requests to other engines, and start its replacement."""
        if handle.failure is not None or self._ended:
            return
        loop = asyncio.get_running_loop()
        failure = handle.failure = error if isinstance(error, EngineFailure) else EngineFailure("died", _text(error))
        watch = self._watches.pop(handle, None)
        if watch is not None and watch is not asyncio.current_task():
            watch.cancel()
        self._serving.remove(handle)
        self._served_at = loop.time()
        self._counts[f"quarantined/{failure.cause}"] += 1
        served_long = loop.time() - handle.since >= SERVED_PAUSES * self._pause_s(handle.failures)
        handle.failures = 1 if served_long else handle.failures + 1
        log.warning(
            "engine %d failed, its %d requests are retried; %d of %d engines serve; restart in %g s. Cause: %s",
            *(handle.number, len(handle.attempts), len(self._serving), len(self._engines)),
            *(self._pause_s(handle.failures), f"{failure.cause}: {failure}"),
        )
        if not self._serving:
            log.warning("no engine serves; the run ends in %g s unless one comes back", self._limits.restart_s)
        handle.cancel_requests()
        self._restarts[handle.number] = asyncio.create_task(self._replace(handle))

    def _check_progress(self, due: float) -> None:
        """Take silent engines out, once a second; end the run when no engine has served for too long."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for handle in tuple(self._serving):
            if now - due > LOOK_S:  # the loop was blocked: unread answers may have arrived
                handle.last_progress = now
            handle.limit_load()
            if (silent := handle.silent_for(now)) > self._limits.silence_s:
                detail = f"it answered none of its {len(handle.attempts)} requests for {silent:.0f} s"
                self._take_out(handle, EngineFailure("hung", detail))
        if not self._serving and now - self._served_at >= self._limits.restart_s:
            self._give_up()
        else:
            self._timer = loop.call_later(LOOK_S, self._check_progress, now + LOOK_S)

    def _give_up(self) -> None:
        lines = []
        for handle in self._engines:
            assert handle.failure is not None, "none serves"
            tried = f"; restart {handle.failures - 1} failed: {handle.restart_error}" if handle.restart_error else ""
            lines.append(f"engine {handle.number}: {handle.failure.cause}: {handle.failure}{tried}")
        listed = "\n  ".join(lines)
        self._end(
            f"no engine has served for {self._limits.restart_s:g} s, and none could be restarted:\n  {listed}\n"
            "The newest checkpoint is unchanged: repair the engines, then continue with `slime resume RUN`."
        )
        for task in self._restarts.values():
            task.cancel()

    def _end(self, why: str) -> None:
        self._ended = self._ended or why
        if self._timer is not None:
            self._timer.cancel()
        for watch in self._watches.values():
            watch.cancel()
        self._notify()

    async def _wait_for_change(self) -> None:
        """Wait until an engine is back, or until requests are aborted.

        Raises:
            WorkerError: no engine will come back.
        """
        if not self._ended:
            await self._changed.wait()
        if self._ended:
            raise WorkerError(self._ended)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _call_all(self, call: Callable[[EngineHandle], Coroutine[object, object, None]]) -> None:
        """Call all serving engines. If some fail, take those out; raise if all fail and none was lost."""
        handles = tuple(self._serving)
        errors = await _outcomes([call(handle) for handle in handles])
        if handles and all(error is not None and not isinstance(error, WorkerError) for error in errors):
            raise next(error for error in errors if error)
        for handle, error in zip(handles, errors, strict=True):
            if error is not None:
                self._take_out(handle, error)

    # --- restarts

    def _pause_s(self, failures: int) -> float:
        most = MAX_PAUSE_S if self._serving else URGENT_PAUSE_S
        return min(FIRST_PAUSE_S * 2.0 ** min(max(failures, 1) - 1, 30), most)

    async def _replace(self, old: EngineHandle) -> None:
        """Close a failed engine, and start replacements until one answers the probe."""
        for _ in range(round(CLOSE_S)):  # its requests may need long to clean up
            await asyncio.sleep(0)
            if not old.attempts:
                break
            await asyncio.sleep(1.0)
            old.cancel_requests()
        await _close(old)
        number = old.number
        while True:
            for second in count():
                if second >= self._pause_s(old.failures):  # the pause gets shorter once no engine serves
                    break
                await asyncio.sleep(1.0)
            try:
                handle = await self._bring_up(number, old.failures)
            except Exception as error:
                old.failures += 1
                old.restart_error = _text(error)
                log.warning(
                    "engine %d: restart failed, next in %g s: %s", number, self._pause_s(old.failures), _text(error)
                )
                continue
            self._serve(handle)
            self._counts["returned"] += 1
            log.warning("engine %d is back; %d of %d engines serve", number, len(self._serving), len(self._engines))
            return

    async def _bring_up(self, number: int, failures: int) -> EngineHandle:
        """Build and start an engine, and give it the weights and memory state of the serving engines."""
        handle, probe_s = self._build(number, failures), self._limits.probe_s
        try:
            await handle.call("start", limit_s=self._limits.start_s)
            while True:
                await self._catch_up(handle)
                try:
                    async with asyncio.timeout(probe_s):
                        await handle.generate(self._probe)
                except TimeoutError:
                    raise EngineFailure("hung", f"it did not answer a probe within {probe_s:g} s") from None
                released = frozenset[MemoryTag]()
                while released != (wanted := self._released):
                    await self._memory(handle, "release", wanted - released)
                    await self._memory(handle, "resume", released - wanted)
                    released = wanted
                if self._weights is None or self._weights[1] == handle.version:
                    handle.answers = handle.tokens = 0
                    return handle
        except BaseException:
            await _close(handle)
            raise

    async def _catch_up(self, handle: EngineHandle) -> None:
        """Load the newest weights; the trainer sends them again if the engine cannot read them alone."""
        if self._weights is None:
            return
        channel, version = self._weights
        if channel.late_readers:
            await handle.load(channel, version)
            return
        assert self._resend is not None, "set by the publisher of such a channel"
        await self._resend(handle.number, lambda version: handle.load(channel, version))

    async def _memory(self, handle: EngineHandle, method: str, tags: MemoryTags) -> None:
        if tags:
            await handle.call(method, tags, limit_s=self._limits.load_s)


def _counted(on_chunk: OnChunk, sent: list[int]) -> OnChunk:
    """Wrap `on_chunk` so that it also records the number of tokens of each part."""

    def forward(chunk: GenerateChunk) -> None:
        sent.append(len(chunk.tokens))
        on_chunk(chunk)

    return forward


async def _close(handle: EngineHandle) -> None:
    """Close an engine that may have died already."""
    try:
        await handle.call("close", limit_s=CLOSE_S)
    except Exception as error:
        log.warning("engine %d could not be closed (%s): its processes may go on", handle.number, _text(error))


async def _outcomes(calls: list[Coroutine[object, object, None]]) -> list[Exception | None]:
    """The exception of each call, or None; waits for all calls."""
    found: list[Exception | None] = []
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if outcome is not None and not isinstance(outcome, Exception):
            raise outcome
        found.append(outcome)
    return found


def _text(error: BaseException) -> str:
    return error_text(error) if isinstance(error, SlimeError) else f"{type(error).__name__}: {error_text(error)}"
