"""Finds plugin calls that block the event loop. A warning names plugin and line; an endless block ends the run.

Example:

    with Watchdog():
        ...   # reward "mine" of plugin slime-reward-mine blocked the event loop for 1.3 s in my_rewards/judge.py:41
"""

import asyncio
import logging
import os
import sys
import threading
import time
from dataclasses import dataclass
from types import FrameType
from typing import Self

from slime_core.stats import CallStats, call_in

BLOCKED_S = 0.25
"""Seconds without a turn after which the event loop counts as blocked."""
BEAT_S = 0.05
"""Seconds between two heartbeats of the loop, and between two checks."""
LONG_S = 10.0
"""Seconds after which a warning names a call that still blocks the loop."""
END_S = 600.0
"""Seconds after which a call that still blocks the loop ends the process."""
ISOLATED = ("reward", "group_reward")
"""Roles whose plain `def` functions run in a separate process."""

log = logging.getLogger(__name__)


class Watchdog:
    """A daemon thread that inspects the loop's stack when its heartbeat stops."""

    def __init__(self, end_s: float = END_S) -> None:
        """Do not watch yet; a block of `end_s` seconds will end the process."""
        self._end_s = end_s
        self._stop = threading.Event()
        self._warned = set[tuple[str, str]]()
        self._beat = 0.0

    def __enter__(self) -> Self:
        """Watch the running loop from a new thread."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._pulse()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop watching."""
        self._stop.set()
        self._timer.cancel()
        self._thread.join()

    def _pulse(self) -> None:
        self._beat = time.monotonic()
        self._timer = self._loop.call_later(BEAT_S, self._pulse)

    def _watch(self) -> None:
        """Inspect the stack while there is no heartbeat, and count a call that stayed there too long.

        Only a single long call counts; many short calls in a row are not a plugin's fault.
        """
        suspect, looked, since, until = None, 0.0, 0.0, 0.0
        while not self._stop.wait(BEAT_S):
            now, beat = time.monotonic(), self._beat
            is_late = now - beat > 2 * BEAT_S
            seen = self._look() if is_late else None
            if suspect is not None and (seen is None or seen.entry is not suspect.entry or beat != looked):
                self._count(suspect, until - since)
                suspect = None
            if suspect is None and seen is not None:
                # The first look may be late: C code that holds the GIL stops this thread too.
                suspect, since = seen, now if beat == looked else beat + BEAT_S
            until, looked = now, beat if is_late else looked
            if suspect is not None and now - since > LONG_S:
                self._warn(suspect, now - since)
            if suspect is not None and now - since > self._end_s:
                text = f"{suspect.name} has kept the event loop for {now - since:.0f} s in {suspect.place}"
                os.write(2, f"error: {text}: the run ends. Write {suspect.advice}\n".encode())
                os._exit(1)
        if suspect is not None:
            self._count(suspect, until - since)

    def _look(self) -> "_Suspect | None":
        inside: list[FrameType] = []
        frame = sys._current_frames().get(self._thread_id)
        while frame is not None:
            if calls := call_in(frame):
                outer_first = inside[::-1]
                shown = next((each for each in outer_first if not _is_ours(each)), outer_first[0] if inside else None)
                return shown and _Suspect(calls, frame, f"{shown.f_code.co_filename}:{shown.f_lineno}")
            inside.append(frame)
            frame = frame.f_back
        return None

    def _count(self, suspect: "_Suspect", seconds: float) -> None:
        if seconds >= BLOCKED_S:
            suspect.calls.blocked += seconds
            self._warn(suspect, seconds)

    def _warn(self, suspect: "_Suspect", seconds: float) -> None:
        key = suspect.calls.role, suspect.calls.name
        if key not in self._warned:
            self._warned.add(key)
            log.warning(
                "%s blocked the event loop for %.1f s in %s: everything else waited. Write %s (logged once)",
                suspect.name,
                seconds,
                suspect.place,
                suspect.advice,
            )


@dataclass(frozen=True, slots=True)
class _Suspect:
    calls: CallStats
    entry: FrameType
    """Frame of the core that called the plugin; the reference keeps its identity unique."""
    place: str

    @property
    def name(self) -> str:
        calls = self.calls
        what = f"{calls.role} {calls.name}" if calls.name != calls.plugin else calls.role
        return f"{what} of plugin {calls.plugin}"

    @property
    def advice(self) -> str:
        if self.calls.role in ISOLATED:
            return "`await` for what takes time, or a plain `def`, which runs in a separate process"
        return "`await` for what takes time, and `await asyncio.to_thread(...)` for what computes"


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("slime_core.")
