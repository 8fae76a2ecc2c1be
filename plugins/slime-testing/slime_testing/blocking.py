"""Measures how long plugin code blocks the event loop; reliable on busy machines.

Example:

    if stall := blocks(lambda: call(reward, sample, ctx), BLOCK_S):
        raise AssertionError(stall)         # "it blocked the event loop for 0.03 s; at most 0.02 s is allowed"

A step is the code between two awaits. Its duration excludes the time in which its thread waited for a processor. The
delay of the next step is not used: on a busy machine it would hide a blocking call of a few hundredths of a second.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias
from unittest import mock

from slime_testing.calling import HANG_S, RAISED, CallFactory, end_thread

STALL_S = 0.25
"""Seconds that an occasional call may block the event loop."""
BLOCK_S = 0.02
"""Seconds that one step of a per-sample call may take."""
TRIES = 8
"""Number of calls. The fastest counts: a busy machine delays some calls, and a real fault delays all of them."""
Opened: TypeAlias = Callable[[], AbstractAsyncContextManager[CallFactory]]


def queued_s() -> float:
    """Seconds that this thread has waited for a processor so far; 0 if Linux does not report it."""
    try:
        with open("/proc/thread-self/schedstat") as figures:  # noqa: PTH123  # twice as fast as a Path
            return int(figures.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


class _Watch:
    def __init__(self) -> None:
        self.ident: int | None = None
        self.began: float | None = None
        self.longest = 0.0
        self.late = 0.0

    @contextlib.contextmanager
    def timing(self) -> Iterator[None]:
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            if threading.get_ident() != self.ident:
                run(handle)
                return
            queued, self.began = queued_s(), (began := time.perf_counter())
            try:
                run(handle)
            finally:
                step = time.perf_counter() - began - (queued_s() - queued)
                self.longest, self.began = max(self.longest, step), None

        self.ident = threading.get_ident()
        with mock.patch.object(asyncio.Handle, "_run", timed):
            yield

    async def tick(self) -> None:
        beat = time.perf_counter()
        while True:
            await asyncio.sleep(0.005)
            now = time.perf_counter()
            self.late, beat = max(self.late, now - beat), now

    @property
    def hangs(self) -> bool:
        return (began := self.began) is not None and time.perf_counter() - began > HANG_S


def blocks(make_call: CallFactory, limit_s: float = STALL_S, opened: Opened | None = None) -> str:
    """Error message if a call blocks the event loop longer than `limit_s`; else an empty text.

    Args:
        make_call: makes a new call.
        limit_s: seconds that one step may take.
        opened: context manager that yields `make_call`; entering and leaving are not timed.
    """
    shortest = float("inf")
    for tried in range(TRIES):
        stall = _stall_s(make_call, limit_s, opened)
        shortest = min(shortest, stall)
        if not stall or stall == float("inf") or (tried >= 2 and shortest > STALL_S):
            break
    if not shortest:
        return ""
    blocked = f"more than {HANG_S:g}" if shortest > HANG_S else f"{shortest:.2f}"
    return f"it blocked the event loop for {blocked} s; at most {limit_s:g} s is allowed"


def _stall_s(make_call: CallFactory, limit_s: float, opened: Opened | None) -> float:
    watch = _Watch()

    async def watched() -> None:
        ticking = asyncio.create_task(watch.tick())
        with contextlib.suppress(*RAISED):
            async with opened() if opened else _plain(make_call) as called:
                await asyncio.sleep(0)
                watch.longest = watch.late = 0.0
                with contextlib.suppress(*RAISED):
                    await called()
                await asyncio.sleep(0.01)
                longest, late = watch.longest, watch.late
            watch.longest, watch.late = longest, late  # without the time of closing
        ticking.cancel()

    def run() -> None:
        with contextlib.suppress(SystemExit), watch.timing():  # raised here by end_thread
            asyncio.run(watched())

    thread = threading.Thread(target=run, daemon=True, name="slime-kit")
    thread.start()
    while thread.is_alive():
        thread.join(0.05)
        if thread.is_alive() and watch.hangs:
            end_thread(thread)
            return float("inf")
    if watch.longest > limit_s:
        return watch.longest
    return watch.late if watch.late > STALL_S else 0.0


@contextlib.asynccontextmanager
async def _plain(make_call: CallFactory) -> AsyncIterator[CallFactory]:
    yield make_call
