"""Watchdog: names the plugin that keeps the event loop from everything else.

Example:

    with Watchdog(stats, packages={"my_rewards": "slime-reward-mine"}):
        ...     # reward "mine" of plugin slime-reward-mine blocked the event loop for 1.3 s in my_rewards/judge.py:41
"""

import asyncio
import inspect
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Self

from slime_core.stats import CallStats, PluginStats

BLOCKED_S = 0.25
"""Seconds without a turn after which the loop counts as blocked."""
BEAT_S = 0.1
"""Seconds between two signs of life of the loop, and between two looks at them."""
CORE = "slime_core"
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
        self._stop = threading.Event()
        self._told: set[str] = set()
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
            began, seen = self._beat, time.monotonic()
            if seen - began < self._blocked_s + BEAT_S:
                continue
            culprit = self._culprit()
            while self._beat == began and not self._stop.wait(BEAT_S / 2):
                culprit = culprit or self._culprit()
            if culprit is not None:
                # The loop's next sign of life was due BEAT_S after the last one.
                self._tell(*culprit, time.monotonic() - began - BEAT_S)

    def _culprit(self) -> tuple[CallStats, str] | None:
        """The call that the loop is in, and the line of the plugin."""
        frame = sys._current_frames().get(self._thread_id)
        inside: list[FrameType] = []
        for each in _outwards(frame):
            calls = each.f_locals.get("calls")
            if isinstance(calls, CallStats):
                return (calls, _place(self._own(inside, calls.plugin))) if inside else None
            inside.append(each)
        for each in inside:
            if plugin := self._packages.get(_package(each)):
                return self._stats.calls("task", plugin, plugin), _place(each)
        return None

    def _own(self, inside: list[FrameType], plugin: str) -> FrameType:
        """The innermost frame of the plugin's own code; the innermost one not of the core where none is known."""
        for frame in inside:
            if self._packages.get(_package(frame)) == plugin:
                return frame
        return next((frame for frame in reversed(inside) if _package(frame) != CORE), inside[-1])

    def _tell(self, calls: CallStats, place: str, seconds: float) -> None:
        calls.blocked += seconds
        key = f"{calls.role}/{calls.name}"
        if key in self._told:
            return
        self._told.add(key)
        what = f"{calls.role} {calls.name}" if calls.name != calls.plugin else calls.role
        log.warning(
            "%s of plugin %s blocked the event loop for %.1f s in %s: everything else waited. Write `await` for what "
            "takes time, or a plain `def`, which runs in a process of its own (said once)",
            what,
            calls.plugin,
            seconds,
            place,
        )


def packages_of(offered: Iterable[tuple[str, Callable[..., object]]]) -> dict[str, str]:
    """Plugin by top-level package, from pairs of a plugin and something that it defines; the core is left out."""
    found = {}
    for plugin, defined in offered:
        module = getattr(inspect.unwrap(defined), "__module__", None) or type(defined).__module__
        found[module.partition(".")[0]] = plugin
    found.pop(CORE, None)
    return found


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
