"""Finds plugins that block the event loop: names the plugin and the line, and interrupts a call over its limit.

The interrupt is a signal that raises TimeoutError in the main thread. It ends Python code, sleeps, locks and
regular expressions. It cannot end C code that does not check for signals.

Example:

    with Watchdog(stats, packages={"my_rewards": "slime-reward-mine"}):
        ...   # reward "mine" of plugin slime-reward-mine blocked the event loop for 1.3 s in my_rewards/judge.py:41
"""

import asyncio
import inspect
import itertools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Protocol, Self

from slime_core.stats import CallStats, PluginStats, call_in

# Interrupt: raises TimeoutError in a plugin's code that keeps the event loop's thread beyond its limit.

SIGNAL = signal.SIGVTALRM
"""Signal of the CPU timer: it fires even while C code holds the interpreter and no other thread runs."""
FIRST_S, EVERY_S = 2.0, 1.0
"""CPU seconds without a turn of the loop before the first look, and between two looks."""
GRACE_S = 1.0
"""Seconds between two interrupts of one call."""
MOST_INTERRUPTS = 10
"""Interrupts that one call may catch; then the process ends."""


class Held(Protocol):
    """A call that the thread is in."""

    @property
    def entry(self) -> FrameType:
        """Where the core called the plugin."""
        ...

    @property
    def limit_s(self) -> float:
        """Seconds for which it may keep the loop."""
        ...

    @property
    def told(self) -> str:
        """Role, plugin and place."""
        ...


class Interrupt:
    """Signals to the main thread; elsewhere Python has none, and this does nothing."""

    def __init__(self, look: Callable[[FrameType], Held | None]) -> None:
        """Watch nothing yet; `look` is None where no plugin's code runs."""
        self._look = look
        self._entry: FrameType | None = None
        self._since = 0.0
        self._count = 0
        self._on = False

    def __enter__(self) -> Self:
        """Take the signal over."""
        self._on = threading.current_thread() is threading.main_thread()
        if self._on:
            self._before = signal.signal(SIGNAL, self._heard)
            if (wakeup := signal.set_wakeup_fd(-1)) >= 0:  # the loop's; it need not hear of each signal
                signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        return self

    def __exit__(self, *exc: object) -> None:
        """Give the signal back."""
        if self._on:
            self._on = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            signal.signal(SIGNAL, self._before)
            self._entry = None

    def put_off(self) -> None:
        """The loop lives: start the timer anew."""
        self._entry = None
        if self._on:
            signal.setitimer(signal.ITIMER_VIRTUAL, FIRST_S, EVERY_S)

    def now(self, thread_id: int) -> None:
        """Have the main thread look at what it is doing; called from another thread."""
        if self._on:
            with suppress(ProcessLookupError):
                signal.pthread_kill(thread_id, SIGNAL)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        """Runs in the main thread, between two instructions of what it does; what this raises is raised there."""
        held, now = self._look(frame) if frame is not None else None, time.monotonic()
        if held is None or held.entry is not self._entry:
            # The frame is kept, so that no later call has the same identity.
            self._entry, self._since, self._count = held.entry if held else None, now, 0
            return
        if now - self._since < held.limit_s + self._count * GRACE_S:
            return
        self._count += 1
        if self._count > MOST_INTERRUPTS:
            os.write(2, f"error: {held.told} keeps the event loop and cannot be stopped: the run ends\n".encode())
            os._exit(1)
        raise TimeoutError(f"it kept the event loop for {now - self._since:.1f} s")


# Watchdog: names the plugin that keeps the event loop from everything else.

BLOCKED_S = 0.25
"""Seconds without a turn after which the loop counts as blocked."""
BEAT_S = 0.05
"""Seconds between two signs of life of the loop, and between two looks at them."""
OURS = frozenset({"slime_core", "slime_testing", "slime_train", "slime_view"})
ISOLATED = ("reward", "group_reward")
"""Roles of which a plain `def` runs in a process of its own."""
IN_A_PROCESS = "`await` for what takes time, or a plain `def`, which runs in a process of its own"
IN_A_THREAD = "`await` for what takes time, and `await asyncio.to_thread(...)` for what computes"

log = logging.getLogger(__name__)


class Watchdog:
    """A daemon thread that looks at the loop's stack when the loop shows no sign of life."""

    def __init__(self, stats: PluginStats, packages: Mapping[str, str], blocked_s: float = BLOCKED_S) -> None:
        """Watch nothing yet.

        Args:
            stats: where blocked time is counted.
            packages: plugin by top-level package of its code, to name a plugin outside of the core's own calls.
            blocked_s: seconds from which on it speaks up.
        """
        self._stats = stats
        self._packages = dict(packages)
        self._blocked_s = blocked_s
        self._interrupt = Interrupt(self._see)
        self._stop = threading.Event()
        self._told: set[str] = set()
        self._beat = 0.0

    def __enter__(self) -> Self:
        """Watch the running loop, from its own thread."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._interrupt.__enter__()
        self._pulse()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Watch no more."""
        self._stop.set()
        self._timer.cancel()
        self._thread.join()
        self._interrupt.__exit__()

    def _pulse(self) -> None:
        self._beat = time.monotonic()
        self._interrupt.put_off()
        self._timer = self._loop.call_later(BEAT_S, self._pulse)

    def _watch(self) -> None:
        while not self._stop.wait(BEAT_S):
            if time.monotonic() - self._beat > 2 * BEAT_S:
                self._follow(self._beat)

    def _follow(self, beat: float) -> None:
        """Look at the stack until the loop shows a sign of life, and tell of a call that was there long enough.

        Only one and the same call counts: a thousand short ones in a row are not a plugin's fault.
        """
        # The first look may come late: C code that keeps the interpreter's lock stops this thread as well.
        suspect, since, until = self._look(), beat + BEAT_S, time.monotonic()
        next_signal = 0.0
        while self._beat == beat and not self._stop.wait(BEAT_S / 2):
            seen, now = self._look(), time.monotonic()
            if suspect is None or seen is None or seen.entry is not suspect.entry:
                self._judge(suspect, until - since)
                suspect, since = seen, now
            until = now
            if suspect is not None and now - since > self._blocked_s and now >= next_signal:
                self._interrupt.now(self._thread_id)
                # Seldom: each signal fills a place in the loop's pipe, which a Ctrl-C needs as well.
                next_signal = now + min(1.0, max(0.1, suspect.limit_s))
        self._judge(suspect, until - since)

    def _judge(self, suspect: "_Seen | None", seconds: float) -> None:
        if suspect is not None and seconds >= self._blocked_s:
            self._tell(suspect, seconds)

    def _look(self) -> "_Seen | None":
        """The call that the loop is in, and the line of the plugin."""
        frame = sys._current_frames().get(self._thread_id)
        return self._see(frame) if frame else None

    def _see(self, frame: FrameType) -> "_Seen | None":
        """The same, of the innermost frame of the loop's thread."""
        inside: list[FrameType] = []
        for each in _outwards(frame):
            if calls := call_in(each):
                return _Seen(calls, each, _place(self._own(inside, calls.plugin))) if inside else None
            inside.append(each)
        # No measured call of the core: take the innermost code, up to where the core or the loop called it.
        theirs = list(itertools.takewhile(lambda each: _package(each) not in {*OURS, "asyncio"}, inside))
        for each in theirs:
            if plugin := self._packages.get(_package(each)):
                return _Seen(self._stats.calls("task", plugin, plugin), theirs[-1], _place(each))
        return None

    def _own(self, inside: list[FrameType], plugin: str) -> FrameType:
        """The innermost frame of the plugin's own code; the outermost one not of the core where none is known."""
        for frame in inside:
            if self._packages.get(_package(frame)) == plugin:
                return frame
        return next((frame for frame in reversed(inside) if _package(frame) not in OURS), inside[-1])

    def _tell(self, seen: "_Seen", seconds: float) -> None:
        calls = seen.calls
        calls.blocked += seconds
        key = f"{calls.role}/{calls.name}"
        if key in self._told:
            return
        self._told.add(key)
        log.warning(
            "%s blocked the event loop for %.1f s in %s: everything else waited. Write %s (said once)",
            seen.told,
            seconds,
            seen.place,
            IN_A_PROCESS if calls.role in ISOLATED else IN_A_THREAD,
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """One look at the stack."""

    calls: CallStats
    entry: FrameType
    """Where the core called the plugin; held, so that no later call has the same identity."""
    place: str

    @property
    def limit_s(self) -> float:
        """Seconds for which it may keep the loop."""
        return self.calls.limit_s

    @property
    def told(self) -> str:
        """Its role and its plugin."""
        calls = self.calls
        what = f"{calls.role} {calls.name}" if calls.name != calls.plugin else calls.role
        return f"{what} of plugin {calls.plugin}"


def packages_of(offered: Iterable[tuple[str, Callable[..., object]]]) -> dict[str, str]:
    """Plugin by top-level package, from pairs of a plugin and something that it defines; `OURS` are left out."""
    found = {}
    for plugin, defined in offered:
        module = getattr(inspect.unwrap(defined), "__module__", None) or type(defined).__module__
        if (package := module.partition(".")[0]) not in OURS:
            found[package] = plugin
    return found


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
