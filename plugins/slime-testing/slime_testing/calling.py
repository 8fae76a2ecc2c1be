"""Calls plugin code and watches what it does besides answering: starts processes, prints, leaks, connects.

Example:

    left_behind(lambda: lambda: call(reward, sample, ctx))        # "8 threads after 8 calls", or nothing

`Act` is one fresh call. What it raises is another check's business: here its conduct is judged.
"""

import asyncio
import contextlib
import ctypes
import gc
import inspect
import io
import os
import socket
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TypeAlias, TypeVar, cast
from unittest import mock

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
    """How many tasks are left by building a callable and calling it."""
    before = asyncio.all_tasks()
    with contextlib.suppress(*RAISED):
        await build()()
    for _ in range(20):
        if not (left := len(asyncio.all_tasks() - before)):
            break
        await asyncio.sleep(0.005)  # tasks that are about to end get a turn for it
    return left


def _grown(once: Callable[[], int]) -> str:
    """What has grown over several rounds, if every round leaves something: "8 processes"."""
    before, threads, files = children(), set(threading.enumerate()), open_files()
    tasks = sum(once() for _ in range(ROUNDS))
    left: dict[str, int] = {}
    for _ in range(10):
        left = {
            "tasks": tasks,
            "processes": len(children() - before),
            "threads": len(set(threading.enumerate()) - threads),
            "open files or sockets": open_files() - files,
        }
        if max(left.values()) < ROUNDS:
            return ""
        gc.collect()  # frees what nobody holds any more, and gives what is about to end time for it
        time.sleep(0.1)
    return " and ".join(f"{n} {what}" for what, n in left.items() if n >= ROUNDS)


def children() -> set[int]:
    """Process ids of this process's children, ended ones that nobody waited for included; none where /proc is not."""
    found, me = set(), os.getpid()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == me:
                found.add(int(stat.parent.name))
    return found


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
