"""Revival: a quarantined engine is closed and another started in its place, until one answers a probe.

The pauses between attempts double, up to `LONGEST_PAUSE_S`; an engine that served ten times as long as it last paused
begins with a short one, and while none serves, none pauses for long.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias, cast

from slime_core.errors import WorkerError
from slime_core.roles import Engine, GenerateRequest, MemoryTag, MemoryTags, ReleasesMemory, WeightChannel
from slime_core.rollout.engines._case import told
from slime_core.rollout.engines._member import Member
from slime_core.rollout.engines._speed import Speed
from slime_core.rollout.engines.limits import Limits

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

SendAgain: TypeAlias = Callable[[int, Callable[[int], Coroutine[object, object, None]]], Awaitable[None]]
"""Called with an engine's number, and with what receives a version."""

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
        """The engine of this seat serves no more."""
        self.falls = 1 if now - self.since >= SERVED_PAUSES * self.pause_s() else self.falls + 1
        self.trouble, self.restart = trouble, ""

    def rise(self, member: Member, now: float) -> None:
        """Another engine serves in its place."""
        self.member, self.since, self.trouble = member, now, ""

    @property
    def told(self) -> str:
        """Why it does not serve, for an error's text."""
        tried = f"; restart {self.falls - 1} failed: {self.restart}" if self.restart else ""
        return f"engine {self.number}: {self.trouble}{tried}"


class Revival:
    """Brings engines back."""

    def __init__(self, make: Callable[[int], Engine], limits: Limits, probe: GenerateRequest) -> None:
        """Take the factory of engines, how long they may take, and a request that any of them can answer."""
        self.published: Published | None = None
        """What engines are to serve."""
        self.released: MemoryTags = frozenset()
        """What memory engines are to do without."""
        self.urgent = asyncio.Event()
        """Set while no engine serves."""
        self._make, self._limits, self._probe = make, limits, probe
        self.send_again: SendAgain | None = None
        """Sends what is published to one more engine, while that receives it."""

    async def _catch_up(self, member: Member) -> None:
        """Give an engine that comes late the newest weights; where it cannot read them alone, they are sent again."""
        published = self.published
        if published is None or published.channel.late_readers:
            await self.load(member, published)
            return
        channel = published.channel
        assert self.send_again is not None, "who publishes by such a channel says how"
        await self.send_again(member.number, lambda version: self.load(member, Published(channel, version)))

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
            await within_s(self._limits.start_s, member.engine.start(), "start()")
            while True:
                await self._catch_up(member)
                await within_s(self._limits.probe_s, member.generate(self._probe), "a probe")
                await self._release_as_others(member)
                if self.published is None or self.published.version == member.oldest:
                    member.answers = member.tokens = 0
                    member.speed = Speed()
                    return member
        except BaseException:
            await close(member)
            raise

    async def _release_as_others(self, member: Member) -> None:
        """Give up the memory that the engines that serve have given up, however that changes meanwhile."""
        engine, out = cast(ReleasesMemory, member.engine), frozenset[MemoryTag]()
        while out != (wanted := self.released):
            if more := wanted - out:
                await within_s(self._limits.load_s, engine.release(more), "release()")
            if back := out - wanted:
                await within_s(self._limits.load_s, engine.resume(back), "resume()")
            out = wanted

    async def load(self, member: Member, published: Published | None) -> None:
        """Switch an engine to these weights, if there are any.

        What it was at when it was told ends first, which may take as long as it may; then its time begins.

        Raises:
            WorkerError: it did not end in time, or what the engine raises.
        """
        if published is not None:
            member.newest = published.version
            loading = member.engine.load_weights(published.channel, published.version)
            try:
                await within_s(
                    self._limits.load_s, loading, f"load_weights({published.version})", after=member.begin_switch
                )
            finally:
                member.end_switch()
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
    """Close an engine that may have died already."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await member.engine.close()
    except Exception as error:
        log.warning("engine %d could not be closed (%s): its processes may go on", member.number, told(error))


async def within_s(
    seconds: float, call: Awaitable[object], what: str, *, after: Callable[[Callable[[], None]], None] | None = None
) -> None:
    """Await a call of an engine's; its time begins now, or when `after` calls what it is given.

    Raises:
        Silent: it took too long.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as limit:

            def begin() -> None:
                limit.reschedule(loop.time() + seconds)

            (after or _now)(begin)
            await call
    except TimeoutError:
        if not limit.expired():
            raise
        raise Silent(f"it did not answer {what} within {seconds:g} s") from None


def _now(call: Callable[[], None]) -> None:
    call()
