"""Revival: a quarantined engine is closed and another started in its place, until one answers a probe.

The pauses between attempts double, up to `LONGEST_PAUSE_S`; an engine that served ten times as long as it last paused
begins with a short one, and while none serves, none pauses for long.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from slime_core.errors import WorkerError
from slime_core.roles import Engine, GenerateRequest, WeightChannel
from slime_core.rollout.engines._case import told
from slime_core.rollout.engines._member import Member
from slime_core.rollout.engines._speed import Speed

FIRST_PAUSE_S = 1.0
"""Pause before the first attempt."""
LONGEST_PAUSE_S = 300.0
"""And before any."""
URGENT_PAUSE_S = 4.0
"""Longest pause while no engine serves."""
SERVED_PAUSES = 10.0
"""Earlier falls are forgotten after service of so many times the last pause."""
CLOSE_S = 15.0
"""Seconds that a quarantined engine has to close."""
AGAIN_S = 1.0
"""Seconds between two cancellations of what a quarantined engine is at."""
START_S = 600.0
"""Seconds that an engine has to start and load weights."""
PROBE_S = 30.0
"""Seconds that it has to answer the probe."""

log = logging.getLogger(__name__)


class Silent(WorkerError):
    """An engine did not answer in time."""


@dataclass(frozen=True, slots=True)
class Published:
    """The weights that engines are to serve."""

    channel: WeightChannel
    """Where they are."""
    version: int
    """Which."""


@dataclass(slots=True)
class Seat:
    """One of the run's engines by number, whichever member serves as it."""

    number: int
    """From 0."""
    member: Member
    """The newest."""
    falls: int = 0
    """Quarantines and failed attempts since it last served for long."""
    since: float = 0.0
    """Loop time of its last return."""
    trouble: str = ""
    """Why it fell; empty while it serves."""
    restart: str = ""
    """Why it could not be restarted the last time."""
    task: "asyncio.Task[None] | None" = None
    """The revival under way."""

    def pause_s(self) -> float:
        """Seconds until the next attempt, while other engines serve."""
        return min(FIRST_PAUSE_S * 2.0 ** min(self.falls - 1, 30), LONGEST_PAUSE_S)

    def fall(self, trouble: str, now: float) -> None:
        """It serves no more."""
        self.falls = 1 if now - self.since >= SERVED_PAUSES * self.pause_s() else self.falls + 1
        self.trouble, self.restart = trouble, ""

    def rise(self, member: Member, now: float) -> None:
        """Another member serves as it."""
        self.member, self.since, self.trouble = member, now, ""

    @property
    def told(self) -> str:
        """What is the matter, for an error's text."""
        tried = f"; restart {self.falls - 1} failed: {self.restart}" if self.restart else ""
        return f"engine {self.number}: {self.trouble}{tried}"


class Revival:
    """Brings engines back."""

    def __init__(self, make: Callable[[int], Engine], probe: GenerateRequest) -> None:
        """Take the factory of engines, and a request that any of them can answer."""
        self.published: Published | None = None
        """What engines are to serve."""
        self.urgent = asyncio.Event()
        """Set while no engine serves."""
        self._make, self._probe = make, probe

    async def revive(self, seat: Seat, join: Callable[[Member], None]) -> None:
        """Close the fallen engine, then try until another serves; `join` is told in the very tick it is found fit."""
        await _put_down(seat.member)
        while True:
            await self._pause(seat)
            try:
                member = await self._bring_up(seat.number)
            except Exception as error:
                seat.falls += 1
                seat.restart = told(error)
                next_s = self.pause_s(seat)
                log.warning("engine %d: restart failed, next in %g s: %s", seat.number, next_s, seat.restart)
                continue
            seat.rise(member, asyncio.get_running_loop().time())
            join(member)
            return

    def pause_s(self, seat: Seat) -> float:
        """Seconds until a seat's next attempt."""
        return min(seat.pause_s(), URGENT_PAUSE_S) if self.urgent.is_set() else seat.pause_s()

    async def _pause(self, seat: Seat) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seat.pause_s()):
                await self.urgent.wait()
                await asyncio.sleep(URGENT_PAUSE_S)

    async def _bring_up(self, number: int) -> Member:
        member = Member(number, self._make(number))
        try:
            async with asyncio.timeout(START_S):
                await member.engine.start()
            while True:
                await self.load(member, START_S)
                await within_s(PROBE_S, member.generate(self._probe), "a probe")
                if self.published is None or self.published.version == member.oldest:
                    member.answers = member.tokens = 0
                    member.speed = Speed()
                    return member
        except BaseException:
            await close(member)
            raise

    async def load(self, member: Member, limit_s: float) -> None:
        """Switch an engine to the newest weights, if there are any.

        Raises:
            WorkerError: it did not end in time, or what the engine raises.
        """
        if published := self.published:
            member.newest = published.version
            loading = member.engine.load_weights(published.channel, published.version)
            await within_s(limit_s, loading, f"load_weights({published.version})")
            member.oldest = published.version


async def _put_down(member: Member) -> None:
    """Have its requests asked elsewhere, whatever their cleaning up waits for, and close it."""
    for _ in range(round(CLOSE_S / AGAIN_S)):
        await asyncio.sleep(0)
        if not member.attempts:
            break
        await asyncio.sleep(AGAIN_S)
        member.withdraw()
    await close(member)


async def close(member: Member) -> None:
    """Close an engine that may be past it."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await member.engine.close()
    except Exception as error:
        log.warning("engine %d could not be closed (%s): its processes may go on", member.number, told(error))


async def within_s(seconds: float, call: Awaitable[object], what: str) -> None:
    """Await a call of an engine's.

    Raises:
        Silent: it took too long.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            await call
    except TimeoutError:
        if not limit.expired():
            raise
        raise Silent(f"it did not answer {what} within {seconds:g} s") from None
