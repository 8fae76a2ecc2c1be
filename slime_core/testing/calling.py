"""Calls plugin code and watches what it does besides answering: blocks, starts processes, prints, leaks, connects.

Example:

    stall_s(lambda: call(reward, sample, ctx))        # longest time for which it kept the event loop, seconds

`Act` is one fresh call. What it raises is another check's business: here its conduct is judged.
"""

import asyncio
import contextlib
import ctypes
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

STALL_S = 0.25
"""How long plugin code may keep the event loop from everything else."""
HANG_S = 5.0
"""When code that keeps the event loop is given up."""
CANCEL_S = 1.0
"""How long a cancelled call may take to end."""
LEAK_BYTES = 8_192
"""What each call may keep for ever; the calls that measure it are given samples six times as large."""
RAISED = (Exception, SystemExit)
"""What plugin code may raise; conduct is judged all the same."""
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
        _end(thread)
        raise Stuck(f"no answer in {limit_s:g} s")
    if errors:
        raise errors[0]
    return found[0]


def stall_s(act: Act) -> float:
    """The longest time, in seconds, for which a call kept another task of the loop from running; infinity: for ever."""
    beat = longest = 0.0

    async def watched() -> None:
        nonlocal beat, longest

        async def tick() -> None:
            nonlocal beat, longest
            while True:
                await asyncio.sleep(0.005)
                now = time.perf_counter()
                longest, beat = max(longest, now - beat), now

        beat = time.perf_counter()
        ticking = asyncio.create_task(tick())
        await asyncio.sleep(0)
        with contextlib.suppress(*RAISED):
            await act()
        await asyncio.sleep(0.01)
        ticking.cancel()

    def run() -> None:
        with contextlib.suppress(SystemExit):  # from _end
            asyncio.run(watched())

    beat = time.perf_counter()
    thread = threading.Thread(target=run, daemon=True, name="slime-kit")
    thread.start()
    while thread.is_alive():
        thread.join(0.05)
        if thread.is_alive() and time.perf_counter() - beat > HANG_S:
            _end(thread)
            return float("inf")
    return longest


def blocks(act: Act) -> str:
    """How long a call keeps the event loop, if that is too long."""
    shortest = float("inf")
    for _ in range(3):  # a busy machine can stall the loop as well, so a stall must show three times
        shortest = min(shortest, stall := stall_s(act))
        if shortest < STALL_S or stall == float("inf"):
            break
    if shortest < STALL_S:
        return ""
    return f"the event loop stood still for {f'more than {HANG_S:g}' if shortest > HANG_S else f'{shortest:.2f}'} s"


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


def left_behind(act: Act) -> str:
    """What several calls leave running, if each leaves something: "8 processes after 8 calls"."""

    async def once() -> None:
        with contextlib.suppress(*RAISED):
            await act()

    asyncio.run(once())  # what a plugin starts once, and keeps, is its own business
    before, threads, files = children(), set(threading.enumerate()), open_files()
    for _ in range(ROUNDS):
        asyncio.run(once())
    left: dict[str, int] = {}
    for _ in range(10):
        left = {
            "processes": len(children() - before),
            "threads": len(set(threading.enumerate()) - threads),
            "open files or sockets": open_files() - files,
        }
        if max(left.values()) < ROUNDS:
            return ""
        time.sleep(0.1)  # what is about to end may do so
    return f"{' and '.join(f'{n} {what}' for what, n in left.items() if n >= ROUNDS)} after {ROUNDS} calls"


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
        before = tracemalloc.get_traced_memory()[0]
        await many(done, 1.2)
        return (tracemalloc.get_traced_memory()[0] - before) / done

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


def _end(thread: threading.Thread) -> None:
    """Raise SystemExit in a thread, as soon as it runs Python code."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
