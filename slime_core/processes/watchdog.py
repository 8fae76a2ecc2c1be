"""Finds plugins that block the event loop: a warning names the plugin and the line; a block without end ends the run.

Example:

    with Watchdog(stats, packages={"my_rewards": "slime-reward-mine"}):
        ...   # reward "mine" of plugin slime-reward-mine blocked the event loop for 1.3 s in my_rewards/judge.py:41
"""

import asyncio
import inspect
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Self

from slime_core.stats import CallStats, PluginStats, call_in

BLOCKED_S = 0.25
"""Seconds without a turn after which the loop counts as blocked."""
BEAT_S = 0.05
"""Seconds between two signs of life of the loop, and between two looks at them."""
END_S = 600.0
"""Seconds after which a call that still keeps the loop ends the process."""
OURS = frozenset({"slime_core", "slime_testing", "slime_train", "slime_view"})
ISOLATED = ("reward", "group_reward")
"""Roles of which a plain `def` runs in a process of its own."""
IN_A_PROCESS = "`await` for what takes time, or a plain `def`, which runs in a process of its own"
IN_A_THREAD = "`await` for what takes time, and `await asyncio.to_thread(...)` for what computes"

log = logging.getLogger(__name__)


class Watchdog:
    """A daemon thread that looks at the loop's stack when the loop shows no sign of life."""

    def __init__(
        self, stats: PluginStats, packages: Mapping[str, str], blocked_s: float = BLOCKED_S, end_s: float = END_S
    ) -> None:
        """Watch nothing yet.

        Args:
            stats: counts blocked time.
            packages: plugin by top-level package of its code, to name a plugin outside of the core's own calls.
            blocked_s: seconds after which it warns.
            end_s: seconds after which it ends the process.
        """
        self._stats, self._packages = stats, dict(packages)
        self._blocked_s, self._end_s = blocked_s, end_s
        self._stop = threading.Event()
        self._warned: set[str] = set()
        self._beat = 0.0

    def __enter__(self) -> Self:
        """Watch the running loop, from its own thread."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._pulse()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Watch no more."""
        self._stop.set()
        self._timer.cancel()
        self._thread.join()

    def _pulse(self) -> None:
        self._beat = time.monotonic()
        self._timer = self._loop.call_later(BEAT_S, self._pulse)

    def _watch(self) -> None:
        while not self._stop.wait(BEAT_S):
            if time.monotonic() - self._beat > 2 * BEAT_S:
                self._follow(self._beat)

    def _follow(self, beat: float) -> None:
        """Look at the stack until the loop shows a sign of life, and warn of a call that was there long enough.

        Only one and the same call counts: a thousand short ones in a row are not a plugin's fault.
        """
        # The first look may come late: C code that keeps the interpreter's lock stops this thread as well.
        suspect, since, until = self._look(), beat + BEAT_S, time.monotonic()
        while self._beat == beat and not self._stop.wait(BEAT_S / 2):
            seen, now = self._look(), time.monotonic()
            if suspect is None or seen is None or seen.entry is not suspect.entry:
                self._judge(suspect, until - since)
                suspect, since = seen, now
            until = now
            if suspect is not None and now - since > self._end_s:
                text = f"{suspect.name} has kept the event loop for {now - since:.0f} s in {suspect.place}"
                os.write(2, f"error: {text}: the run ends. Write {_advice(suspect.calls)}\n".encode())
                os._exit(1)
        self._judge(suspect, until - since)

    def _look(self) -> "_Suspect | None":
        inside: list[FrameType] = []
        for each in _outwards(sys._current_frames().get(self._thread_id)):
            if calls := call_in(each):
                return _Suspect(calls, each, _place(self._own(inside, calls.plugin))) if inside else None
            inside.append(each)
        # No measured call of the core: take the innermost code, up to where the core or the loop called it.
        theirs = list(itertools.takewhile(lambda each: _package(each) not in {*OURS, "asyncio"}, inside))
        for each in theirs:
            if plugin := self._packages.get(_package(each)):
                return _Suspect(self._stats.calls("task", plugin, plugin), theirs[-1], _place(each))
        return None

    def _own(self, inside: list[FrameType], plugin: str) -> FrameType:
        """The innermost frame of the plugin's own code; the outermost one not of the core where none is known."""
        for frame in inside:
            if self._packages.get(_package(frame)) == plugin:
                return frame
        return next((frame for frame in reversed(inside) if _package(frame) not in OURS), inside[-1])

    def _judge(self, suspect: "_Suspect | None", seconds: float) -> None:
        if suspect is None or seconds < self._blocked_s:
            return
        calls = suspect.calls
        calls.blocked += seconds
        key = f"{calls.role}/{calls.name}"
        if key not in self._warned:
            self._warned.add(key)
            log.warning(
                "%s blocked the event loop for %.1f s in %s: everything else waited. Write %s (said once)",
                suspect.name,
                seconds,
                suspect.place,
                _advice(calls),
            )


@dataclass(frozen=True, slots=True)
class _Suspect:
    calls: CallStats
    entry: FrameType
    """Where the core called the plugin; held, so that no later call has the same identity."""
    place: str

    @property
    def name(self) -> str:
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


def _advice(calls: CallStats) -> str:
    return IN_A_PROCESS if calls.role in ISOLATED else IN_A_THREAD


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
