"""Attendance: which workers of a fleet are there, said when one comes and when one has gone.

A worker is there while it waits for work or has some. Between two requests it has neither, for a moment.

Example:

    attendance = Attendance(log.warning)
    attendance.enter("gpu-7/4711")                  # "worker gpu-7/4711 has come: 1 is there"
    attendance.leave("gpu-7/4711")                  # some seconds later: "worker gpu-7/4711 has gone: none is there"
"""

import asyncio
from collections import Counter
from collections.abc import Callable

AWAY_S = 10.0
"""Seconds without a request after which a worker has gone: longer than a client waits before it asks again."""
QUIET_S = 15.0
"""Seconds that a task waits before it is said that no worker is there; each time after twice as long."""


class Attendance:
    """The workers of one fleet, by name."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """Nobody is there; `tell` is given a line of text."""
        self._tell = tell
        self._there: set[str] = set()
        self._busy: Counter[str] = Counter()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._quiet: asyncio.TimerHandle | None = None
        self._how_to_start = ""
        self._is_closed = False

    def open(self, url: str) -> None:
        """Say where workers ask from now on."""
        self._how_to_start = f"slime agent work {url} FILE.py:FUNCTION"
        self._tell(f"the fleet is served at {url}; start workers elsewhere: {self._how_to_start}")

    def close(self) -> None:
        """Say nothing more."""
        self._is_closed = True
        for timer in (*self._timers.values(), *([self._quiet] if self._quiet is not None else [])):
            timer.cancel()
        self._timers.clear()
        self._quiet = None

    def enter(self, name: str) -> None:
        """A worker asks, or has a task."""
        self._busy[name] += 1
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        if name not in self._there:
            self._there.add(name)
            self._tell(f"worker {name} has come: {self._counted()}")

    def leave(self, name: str) -> None:
        """It does so no more."""
        self._busy[name] -= 1
        if not self._busy[name]:
            del self._busy[name]
            if self._is_closed:
                return
            self._timers[name] = asyncio.get_running_loop().call_later(AWAY_S, self._gone, name)

    def expect(self, after_s: float | None = None) -> None:
        """A task waits: say so if nobody comes for it, and again, until `relax`."""
        if self._quiet is None:
            wait_s = QUIET_S if after_s is None else after_s
            self._quiet = asyncio.get_running_loop().call_later(wait_s, self._alone, wait_s)

    def relax(self) -> None:
        """No task waits any more."""
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None

    def _gone(self, name: str) -> None:
        del self._timers[name]
        self._there.discard(name)
        self._tell(f"worker {name} has gone: {self._counted()}")

    def _alone(self, waited_s: float) -> None:
        self._quiet = None
        if not self._there:
            self._tell(f"tasks wait, and no worker of the fleet asks for them: start some, {self._how_to_start}")
        self.expect(2 * waited_s)

    def _counted(self) -> str:
        match len(self._there):
            case 0:
                return "none is there"
            case 1:
                return "1 is there"
            case many:
                return f"{many} are there"
