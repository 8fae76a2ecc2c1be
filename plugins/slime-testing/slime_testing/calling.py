"""Calls plugin code and observes side effects: started processes, output, leaks, connections.

Example:

    find_leaks(lambda: lambda: call(reward, sample, ctx))         # "8 threads after 8 calls", or ""

A `CallFactory` makes one new call. Errors of the call are ignored here; other checks report them.
"""

import asyncio
import contextlib
import ctypes
import dataclasses
import gc
import inspect
import io
import os
import select
import signal
import socket
import threading
import time
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar, cast
from unittest import mock

from slime_core.processes.limits import children, descendants
from slime_core.sample import Sample

SETTLE_S = 2.0
"""Seconds in which stopped processes and cancelled requests must end."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Open file descriptors and running processes."""

    files: frozenset[str] = frozenset()
    """Number and target of each file descriptor: "7 -> socket:[4711]"."""
    processes: frozenset[int] = frozenset()
    """Ids of child processes, and of all descendants if the system reports them."""

    def __sub__(self, earlier: "Resources") -> "Resources":
        return Resources(self.files - earlier.files, self.processes - earlier.processes)

    def __bool__(self) -> bool:
        return bool(self.files or self.processes)

    def __str__(self) -> str:
        parts = [f"process {pid}" for pid in sorted(self.processes)] + [f"file {each}" for each in sorted(self.files)]
        return ", ".join(parts) or "nothing"  # for error messages: "process 4711, file 7 -> socket:[1]"


def resources() -> Resources:
    """This process's open descriptors and running descendants."""
    return Resources(frozenset(_files()), frozenset(pid for pid in descendants(os.getpid()) if is_running(pid)))


def wait_released(left: Callable[[], Resources]) -> Resources:
    """The last result of `left`, once it finds nothing or `SETTLE_S` is over."""
    until = time.monotonic() + SETTLE_S
    while (found := left()) and time.monotonic() < until:
        time.sleep(0.02)
    return found


def _files() -> list[str]:
    found = []
    for name in os.listdir("/dev/fd"):  # noqa: PTH208  # names are numbers, not paths
        try:
            found.append(f"{name} -> {os.readlink(f'/dev/fd/{name}')}")  # noqa: PTH115
        except OSError:
            continue  # the descriptor of the listing itself
    return found


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


ResultT = TypeVar("ResultT")
CallFactory: TypeAlias = Callable[[], Coroutine[object, object, object]]

HANG_S = 5.0
"""Seconds after which a call that does not return is abandoned."""
CANCEL_S = 1.0
"""Seconds that a cancelled call may take to end."""
LEAK_BYTES = 8_192
"""Bytes that a call may leave allocated. The calls that measure it use samples six times as large."""
RAISED = (Exception, SystemExit)
"""Errors of plugin code that do not end a check of its side effects."""
ROUNDS = 8
"""Number of calls in a check for leaks. A leak counts if there is one per call."""


class CallTimeoutError(AssertionError):
    """A call did not return."""


async def call(function: object, *arguments: object) -> object:
    """Call plugin code, `def` or `async def`, in this process."""
    pid = os.getpid()
    try:
        returned = cast(Callable[..., object], function)(*arguments)
        return await returned if inspect.isawaitable(returned) else returned
    finally:
        if os.getpid() != pid:
            os._exit(0)  # the plugin forked: end the kit's copy


def in_thread(work: Callable[[], ResultT], limit_s: float) -> ResultT:
    """The result of `work`, computed in another thread.

    Raises:
        CallTimeoutError: it took too long. A thread that runs Python code is ended; a sleeping thread stays.
    """
    found: list[ResultT] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="slime-kit")
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        end_thread(thread)
        raise CallTimeoutError(f"no result after {limit_s:g} s")
    if errors:
        raise errors[0]
    return found[0]


def ignores_cancellation(make_call: CallFactory, delays: tuple[float, ...] = (0.0, 0.002, 0.02)) -> bool:
    """Whether a call continues after it is cancelled, after one of several delays."""

    async def cancelled(delay: float) -> bool:
        task = asyncio.ensure_future(make_call())
        await asyncio.sleep(delay)
        if not task.cancel():
            with contextlib.suppress(*RAISED):
                task.result()
            return True
        await asyncio.wait({task}, timeout=CANCEL_S)
        return task.cancelled()

    try:
        return not all(in_thread(lambda: asyncio.run(cancelled(delay)), HANG_S) for delay in delays)  # noqa: B023
    except CallTimeoutError:
        return True


def find_leaks(build: Callable[[], CallFactory]) -> str:
    """Description of the resources that calls leak, on one object or on objects that are built for one call each."""
    asyncio.run(_tasks_left(build))  # a first call, since resources that exist once per process are allowed
    make_call = build()
    of_calls = _leaks_of_rounds(lambda: asyncio.run(_tasks_left(lambda: make_call)))
    return f"{of_calls} after {ROUNDS} calls" if of_calls else _of_objects(build)


def _of_objects(build: Callable[[], CallFactory]) -> str:
    left = _leaks_of_rounds(lambda: asyncio.run(_tasks_left(build)))
    return f"{left} after it was built, called once and deleted {ROUNDS} times" if left else ""


async def _tasks_left(build: Callable[[], CallFactory]) -> int:
    before = asyncio.all_tasks()
    with contextlib.suppress(*RAISED):
        await build()()
    for _ in range(20):
        if not (left := len(asyncio.all_tasks() - before)):
            break
        await asyncio.sleep(0.005)  # lets tasks that are ending finish
    return left


def _leaks_of_rounds(once: Callable[[], int]) -> str:
    before, threads, files = set(children(os.getpid())), set(threading.enumerate()), open_files()
    tasks = sum(once() for _ in range(ROUNDS))
    left: dict[str, int] = {}
    for _ in range(10):
        left = {
            "tasks": tasks,
            "processes": len(set(children(os.getpid())) - before),
            "threads": len(set(threading.enumerate()) - threads),
            "open files or sockets": open_files() - files,
        }
        if max(left.values()) < ROUNDS:
            return ""
        gc.collect()  # frees unreferenced objects and gives threads time to end
        time.sleep(0.1)
    return " and ".join(f"{n} {what}" for what, n in left.items() if n >= ROUNDS)


def open_files() -> int:
    """Number of this process's file descriptors; 0 without /proc."""
    return len(list(Path("/proc/self/fd").glob("*")))


def leaked_bytes(make_call: CallFactory) -> float:
    """Bytes leaked per call, averaged over the second half of many calls, when bounded caches are full."""

    async def many(count: int, limit_s: float) -> int:
        done, end = 0, time.perf_counter() + limit_s
        while done < count and (done < 8 or time.perf_counter() < end):
            with contextlib.suppress(*RAISED):
                await make_call()
            done += 1
        return done

    async def measured() -> float:
        done = await many(160, 0.4)
        before = allocated()
        await many(done, 1.2)
        return (allocated() - before) / done

    def allocated() -> int:
        gc.collect()  # errors and tracebacks reference each other and the call's objects
        return tracemalloc.get_traced_memory()[0]

    traced = tracemalloc.is_tracing()
    if not traced:
        tracemalloc.start()
    try:
        return asyncio.run(measured())
    finally:
        if not traced:
            tracemalloc.stop()


def capture_stdout(make_call: CallFactory) -> str:
    """What a call writes to standard output."""

    async def once() -> None:
        with contextlib.suppress(*RAISED):
            await make_call()

    with contextlib.redirect_stdout(io.StringIO()) as out:
        asyncio.run(once())
    return out.getvalue()


@contextlib.contextmanager
def block_network() -> Iterator[Counter[str]]:
    """Refuse and count every connection that this process opens."""
    attempts: Counter[str] = Counter()

    def refuse(*arguments: object, **options: object) -> object:
        attempts["connections"] += 1
        raise ConnectionRefusedError("the contract kit refuses all connections")

    with (
        mock.patch.object(socket.socket, "connect", refuse),
        mock.patch.object(socket.socket, "connect_ex", refuse),
        mock.patch.object(socket, "getaddrinfo", refuse),
    ):
        yield attempts


def end_thread(thread: threading.Thread) -> None:
    """Raise SystemExit in a thread the next time that it runs Python code."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


DONE = b"."


def failure_in_fork(work: Callable[[], object], limit_s: float) -> str:
    """How a fork of this process crashed or hung while it did the work, or ""; ignores errors that the work raises."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():  # about threads, which the fork does not need
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            with contextlib.suppress(BaseException):
                work()
            os.write(writing, DONE)
        finally:
            os._exit(0)
    os.close(writing)
    try:
        ready = bool(select.select([reading], [], [], limit_s)[0])
        done = ready and os.read(reading, 1) == DONE
    finally:
        os.close(reading)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if done:
        return ""
    return f"it ended the process ({_exit_text(status)})" if ready else f"it did not return within {limit_s:g} s"


def _exit_text(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"exit status {code}" if code >= 0 else f"signal {-code}"


_IN_A_CALL: ContextVar[bool] = ContextVar("_IN_A_CALL", default=False)


@contextlib.contextmanager
def count_call_tasks() -> Iterator[Callable[[], int]]:
    """Counts tasks started in this block that still run; a server's tasks for its connections do not count."""
    loop, created = asyncio.get_running_loop(), list[asyncio.Task[object]]()

    def start(
        loop: asyncio.AbstractEventLoop, work: Coroutine[object, object, object], **options: object
    ) -> asyncio.Task[object]:
        task = asyncio.Task(work, loop=loop, **options)  # type: ignore[arg-type]  # arguments as asyncio passes them
        if _IN_A_CALL.get():  # inherited by tasks and callbacks; a server's callbacks inherit the context of `start`
            created.append(task)
        return task

    loop.set_task_factory(start)  # type: ignore[arg-type]  # typeshed's has no generics
    before = _IN_A_CALL.set(True)
    try:
        yield lambda: sum(not task.done() for task in created)
    finally:
        _IN_A_CALL.reset(before)
        loop.set_task_factory(None)


FIELDS = frozenset(item.name for item in dataclasses.fields(Sample))


class InjectedError(RuntimeError):
    """Raised when an unreadable field of a sample is read."""


class SpySample(Sample):
    """A sample that records which of its fields are read."""

    read: set[str]
    """Fields read so far."""
    broken: Collection[str]
    """Fields that raise `InjectedError` when read."""

    def __getattribute__(self, name: str) -> object:
        own = object.__getattribute__(self, "__dict__")
        if name in FIELDS and "read" in own:
            own["read"].add(name)
            if name in own["broken"]:
                raise InjectedError(f"the contract kit lets reading {name} fail")
        return object.__getattribute__(self, name)


def spy_on(sample: Sample, broken: Collection[str] = ()) -> SpySample:
    """A copy of the sample that records reads, and raises when a field in `broken` is read."""
    spy = SpySample(**{name: getattr(sample, name) for name in FIELDS})
    spy.read, spy.broken = set(), broken
    return spy
