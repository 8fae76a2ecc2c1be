"""Calls plugin code and watches what it does besides answering: starts processes, prints, leaks, connects.

Example:

    left_behind(lambda: lambda: call(reward, sample, ctx))        # "8 threads after 8 calls", or nothing

`Act` is one fresh call. What it raises is the business of another check: here its conduct is judged.
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
"""How long what was told to end may take to be gone."""


@dataclass(frozen=True, slots=True)
class Held:
    """Open file descriptors and living processes."""

    files: frozenset[str] = frozenset()
    """Number and target of each descriptor: "7 -> socket:[4711]"."""
    processes: frozenset[int] = frozenset()
    """Ids of children, and of theirs where the system can tell."""

    def __sub__(self, earlier: "Held") -> "Held":
        return Held(self.files - earlier.files, self.processes - earlier.processes)

    def __bool__(self) -> bool:
        return bool(self.files or self.processes)

    def told(self) -> str:
        """What is held, as an error says it: "process 4711, file 7 -> socket:[1]"."""
        parts = [f"process {pid}" for pid in sorted(self.processes)] + [f"file {each}" for each in sorted(self.files)]
        return ", ".join(parts) or "nothing"


def held() -> Held:
    """Open descriptors and living descendants of this process now."""
    return Held(frozenset(_files()), frozenset(pid for pid in descendants(os.getpid()) if is_running(pid)))


def settled(left: Callable[[], Held]) -> Held:
    """What `left` still finds when it finds nothing any more, or when `SETTLE_S` is over."""
    until = time.monotonic() + SETTLE_S
    while (found := left()) and time.monotonic() < until:
        time.sleep(0.02)
    return found


def _files() -> list[str]:
    found = []
    for name in os.listdir("/dev/fd"):  # noqa: PTH208  # numbers, not paths
        try:
            found.append(f"{name} -> {os.readlink(f'/dev/fd/{name}')}")  # noqa: PTH115
        except OSError:
            continue  # the descriptor that listed the folder
    return found


def is_running(pid: int) -> bool:
    """Whether a process is there, and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


ResultT = TypeVar("ResultT")
Act: TypeAlias = Callable[[], Coroutine[object, object, object]]

HANG_S = 5.0
"""When code that does not come back is given up."""
CANCEL_S = 1.0
"""How long a cancelled call may take to end."""
LEAK_BYTES = 8_192
"""What each call may keep for ever; the calls that measure it are given samples six times as large."""
RAISED = (Exception, SystemExit)
"""What plugin code may raise without ending the check: its conduct is judged all the same."""
ROUNDS = 8
"""Calls that must not leave a process or a thread each."""


class Stuck(AssertionError):
    """A call did not come back."""


async def call(function: object, *arguments: object) -> object:
    """Call plugin code, `def` or `async def`, in this process."""
    pid = os.getpid()
    try:
        returned = cast(Callable[..., object], function)(*arguments)
        return await returned if inspect.isawaitable(returned) else returned
    finally:
        if os.getpid() != pid:
            os._exit(0)  # the plugin forked: its copy of the kit ends here


def in_thread(work: Callable[[], ResultT], limit_s: float) -> ResultT:
    """The result of `work`, computed in another thread.

    Raises:
        Stuck: it took longer; a thread that runs Python code is ended, one that sleeps is left behind.
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
        raise Stuck(f"no answer in {limit_s:g} s")
    if errors:
        raise errors[0]
    return found[0]


def refuses_cancellation(act: Act, delays: tuple[float, ...] = (0.0, 0.002, 0.02)) -> bool:
    """Whether a call goes on when it is cancelled, at one of several moments."""

    async def cancelled(delay: float) -> bool:
        task = asyncio.ensure_future(act())
        await asyncio.sleep(delay)
        if not task.cancel():
            with contextlib.suppress(*RAISED):
                task.result()
            return True
        await asyncio.wait({task}, timeout=CANCEL_S)
        return task.cancelled()

    try:
        return not all(in_thread(lambda: asyncio.run(cancelled(delay)), HANG_S) for delay in delays)  # noqa: B023
    except Stuck:
        return True


def left_behind(build: Callable[[], Act]) -> str:
    """What is left running by several calls of one object, or by objects that were made, called and forgotten."""
    asyncio.run(_tasks_left(build))  # what a plugin starts once in a process, and keeps, is its own business
    act = build()
    of_calls = _grown(lambda: asyncio.run(_tasks_left(lambda: act)))
    return f"{of_calls} after {ROUNDS} calls" if of_calls else _of_objects(build)


def _of_objects(build: Callable[[], Act]) -> str:
    left = _grown(lambda: asyncio.run(_tasks_left(build)))
    return f"{left} after it was built, called once and dropped {ROUNDS} times" if left else ""


async def _tasks_left(build: Callable[[], Act]) -> int:
    before = asyncio.all_tasks()
    with contextlib.suppress(*RAISED):
        await build()()
    for _ in range(20):
        if not (left := len(asyncio.all_tasks() - before)):
            break
        await asyncio.sleep(0.005)  # tasks that are about to end get a turn for it
    return left


def _grown(once: Callable[[], int]) -> str:
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
        gc.collect()  # frees what nobody holds any more, and gives what is about to end time for it
        time.sleep(0.1)
    return " and ".join(f"{n} {what}" for what, n in left.items() if n >= ROUNDS)


def open_files() -> int:
    """File descriptors of this process; 0 where /proc is not."""
    return len(list(Path("/proc/self/fd").glob("*")))


def leaked_bytes(act: Act) -> float:
    """Bytes that each call keeps, on average over the second half of many: a bounded cache is full by then."""

    async def many(count: int, limit_s: float) -> int:
        done, end = 0, time.perf_counter() + limit_s
        while done < count and (done < 8 or time.perf_counter() < end):
            with contextlib.suppress(*RAISED):
                await act()
            done += 1
        return done

    async def measured() -> float:
        done = await many(160, 0.4)
        before = kept()
        await many(done, 1.2)
        return (kept() - before) / done

    def kept() -> int:
        gc.collect()  # an error and its traceback hold each other, and whatever the call held, until this
        return tracemalloc.get_traced_memory()[0]

    traced = tracemalloc.is_tracing()
    if not traced:
        tracemalloc.start()
    try:
        return asyncio.run(measured())
    finally:
        if not traced:
            tracemalloc.stop()


def printed(act: Act) -> str:
    """What a call writes to standard output."""

    async def once() -> None:
        with contextlib.suppress(*RAISED):
            await act()

    with contextlib.redirect_stdout(io.StringIO()) as out:
        asyncio.run(once())
    return out.getvalue()


@contextlib.contextmanager
def refused_network() -> Iterator[Counter[str]]:
    """Refuse every connection that is opened in this process, and count them."""
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
    """Raise SystemExit in a thread, as soon as it runs Python code."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


DONE = b"."


def fails_in_a_fork(work: Callable[[], object], limit_s: float) -> str:
    """How a fork of this process failed to come back from the work; what the work raises is not a failure."""
    told, tell = os.pipe()
    with warnings.catch_warnings():  # of threads, which a fork does not have: none of them is needed
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            with contextlib.suppress(BaseException):
                work()
            os.write(tell, DONE)
        finally:
            os._exit(0)
    os.close(tell)
    try:
        ready = bool(select.select([told], [], [], limit_s)[0])
        done = ready and os.read(told, 1) == DONE
    finally:
        os.close(told)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if done:
        return ""
    return f"it ended the process ({_ended(status)})" if ready else f"it did not come back in {limit_s:g} s"


def _ended(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"exit status {code}" if code >= 0 else f"signal {-code}"


_IN_A_CALL: ContextVar[bool] = ContextVar("_IN_A_CALL", default=False)


@contextlib.contextmanager
def tasks_of_calls() -> Iterator[Callable[[], int]]:
    """How many tasks that were started in this block still run; those that a server starts for connections are not."""
    loop, made = asyncio.get_running_loop(), list[asyncio.Task[object]]()

    def start(
        loop: asyncio.AbstractEventLoop, work: Coroutine[object, object, object], **options: object
    ) -> asyncio.Task[object]:
        task = asyncio.Task(work, loop=loop, **options)  # type: ignore[arg-type]  # as asyncio gives them
        if _IN_A_CALL.get():  # tasks and callbacks inherit it; a server's callbacks have its `start`'s
            made.append(task)
        return task

    loop.set_task_factory(start)  # type: ignore[arg-type]  # typeshed's has no generics
    before = _IN_A_CALL.set(True)
    try:
        yield lambda: sum(not task.done() for task in made)
    finally:
        _IN_A_CALL.reset(before)
        loop.set_task_factory(None)


FIELDS = frozenset(item.name for item in dataclasses.fields(Sample))


class InjectedError(RuntimeError):
    """What reading a field of a faulty sample raises."""


class SpiedSample(Sample):
    """A sample that knows what was read of it."""

    read: set[str]
    """Fields that were read."""
    broken: Collection[str]
    """Fields that raise `InjectedError` when they are read."""

    def __getattribute__(self, name: str) -> object:
        own = object.__getattribute__(self, "__dict__")
        if name in FIELDS and "read" in own:
            own["read"].add(name)
            if name in own["broken"]:
                raise InjectedError(f"the contract kit lets reading {name} fail")
        return object.__getattribute__(self, name)


def spied(sample: Sample, broken: Collection[str] = ()) -> SpiedSample:
    """A copy that notices what is read, and refuses to have some fields read."""
    made = SpiedSample(**{name: getattr(sample, name) for name in FIELDS})
    made.read, made.broken = set(), broken
    return made
