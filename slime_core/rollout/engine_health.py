"""Which engines of a pool serve, which engine a request goes to, and how a lost engine is replaced.

An engine in quarantine never serves again: it is closed, and another starts in its place until one answers a probe.
A request goes to the engine of its session or group, else to the least busy one.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeAlias, cast

from slime_core.errors import WorkerError
from slime_core.roles import Engine, GenerateRequest, MemoryTag, MemoryTags, NoticesDeath, ReleasesMemory, WeightChannel
from slime_core.rollout.engine_member import (
    DEADLY,
    Cause,
    Limits,
    Member,
    Quarantine,
    Speed,
    is_garbage,
    slow_ones,
    told,
)
from slime_core.sample import GroupId

# Revival: a quarantined engine is closed and another started in its place, until one answers a probe.

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


# Dispatch: which of the engines that serve takes a request: that of its session or group, else the least busy one.

AHEAD = 8
"""Requests of this size that an engine may have more than the idlest, for a group to stay together."""
CANDIDATES = 16
"""Engines looked at for one request, in turn: the least loaded of so many is within a request of the least of all."""
MOST_HOMES = 8192
"""Groups and sessions whose engine is remembered."""

_least = attrgetter("doubts", "work", "number")
_least_suspect = attrgetter("doubts", "suspects", "work", "number")


class Dispatch:
    """The engines that serve, in order of their numbers."""

    def __init__(self) -> None:
        """None serves yet."""
        self.members: list[Member] = []
        """All of them, a reserved one included."""
        self._open: list[Member] = []
        self._homes: dict[GroupId | str, Member] = {}
        self._turn = 0

    def add(self, member: Member) -> None:
        """The engine serves from now on."""
        for listed in (self.members, self._open):
            listed.append(member)
            listed.sort(key=attrgetter("number"))

    def remove(self, member: Member) -> None:
        """The engine serves no more."""
        self.members.remove(member)
        self._close(member)

    def _close(self, member: Member) -> None:
        if member in self._open:
            self._open.remove(member)
        self._homes = {key: home for key, home in self._homes.items() if home is not member}

    @contextmanager
    def reserved(self, member: Member) -> Iterator[None]:
        """Keep an engine from being chosen for anything else, for the time of a `with`."""
        self._close(member)
        try:
            yield
        finally:
            if member in self.members:
                self._open.append(member)
                self._open.sort(key=attrgetter("number"))

    def choose(self, request: GenerateRequest) -> Member | None:
        """Who takes a request; None if nobody serves.

        Requests of one group share a prompt, and each turn of a sample begins with the one before, so they stay with
        one engine, which computes that once, for as long as it is not too far behind the others. A session begins where
        its group is, and goes on where it is itself.
        """
        members = self._open
        if len(members) < 2:
            return members[0] if members else None
        least = min(members if len(members) <= CANDIDATES else self._candidates(), key=_least)
        group, session = request.group, request.session
        home = None if session is None else self._homes.get(session)
        if home is None and group is not None:
            home = self._homes.get(group)
        if home is None or home.doubts or self._is_behind(home, least, request):
            home = least
            if group is not None:
                self._keep(group, home)
        if session is not None:
            self._keep(session, home)
        return home

    def choose_again(self, avoid: Collection[Member], *, suspect: bool) -> Member | None:
        """Who takes a request that others failed; None if nobody else serves. Suspects are kept apart."""
        others = [member for member in self._open if member not in avoid]
        return min(others, key=_least_suspect if suspect else _least, default=None)

    def _keep(self, key: GroupId | str, home: Member) -> None:
        self._homes[key] = home
        if len(self._homes) > MOST_HOMES:
            del self._homes[next(iter(self._homes))]

    def _candidates(self) -> list[Member]:
        start, self._turn = self._turn, (self._turn + CANDIDATES) % len(self._open)
        found = self._open[start : start + CANDIDATES]
        return found + self._open[: CANDIDATES - len(found)]

    def _is_behind(self, home: Member, least: Member, request: GenerateRequest) -> bool:
        one = len(request.prompt) + request.sampling.max_new_tokens
        return home.work - least.work > AHEAD * one


# Crew: which engines serve, which are out and why, and what is done about it.

MOST_STRIKES = 3
"""Requests in a row that an engine may fail and another answer."""
LOOK_S = 1.0
"""Seconds between two looks for silent and slow engines."""


class Crew:
    """The engines of a run, by number."""

    def __init__(self, make: Callable[[int], Engine], count: int, limits: Limits, probe: GenerateRequest) -> None:
        """Build them; none serves yet."""
        self.seats = [Seat(number, Member(number, make(number))) for number in range(count)]
        """All of them."""
        self.dispatch = Dispatch()
        """Those that serve."""
        self.revival = Revival(make, limits, probe)
        """Brings them back."""
        self.counts: Counter[str] = Counter()
        """What happened since the last metrics."""
        self.deaths = 0
        """Engines that died or hung so far."""
        self.is_over = False
        """Whether no engine is to come back any more."""
        self._why = ""
        self._limits = limits
        self._news = asyncio.Event()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.watches: dict[int, asyncio.Task[None]] = {}
        """Who waits for the end of which that serves, by number."""

    @property
    def out(self) -> frozenset[Member]:
        """Those that do not serve."""
        return frozenset(seat.member for seat in self.seats).difference(self.dispatch.members)

    def serve(self, member: Member) -> None:
        """Let an engine take requests from now on."""
        self.dispatch.add(member)
        if isinstance(member.engine, NoticesDeath):
            self.watches[member.number] = asyncio.create_task(self._mind(member, member.engine))
        self.revival.urgent.clear()
        if deadline := self._timers.pop("deadline", None):
            deadline.cancel()
        self.tell()

    async def news(self) -> None:
        """Wait until an engine is back, or what runs is interrupted.

        Raises:
            WorkerError: no engine will come back.
        """
        if not self.is_over:
            await self._news.wait()
        if self.is_over:
            raise WorkerError(self._why)

    def tell(self) -> None:
        """Wake whoever waits for news."""
        self._news.set()
        self._news = asyncio.Event()

    async def _mind(self, member: Member, engine: NoticesDeath) -> None:
        """Wait for the end of an engine that has no request, and take it out."""
        try:
            await engine.watch()
        except Exception as error:
            self.quarantine(member, Cause.DIED, told(error))

    def quarantine(self, member: Member, cause: Cause, detail: str) -> None:
        """Take an engine out, have what it is at asked elsewhere, and see to its return."""
        if member.quarantine is not None or self.is_over:
            return
        member.quarantine = Quarantine(cause, detail := detail.strip())
        watch = self.watches.pop(member.number, None)
        if watch is not None and watch is not asyncio.current_task():
            watch.cancel()
        self.dispatch.remove(member)
        self.counts[f"quarantined/{cause.value}"] += 1
        self.deaths += cause in DEADLY
        seat, loop = self.seats[member.number], asyncio.get_running_loop()
        seat.fall(f"{cause.value}: {detail}", loop.time())
        if not (left := len(self.dispatch.members)):
            self.revival.urgent.set()
        log.warning(
            "engine %d is taken out, its %d requests are asked again; %d of %d engines serve; restart in %g s. It %s",
            *(member.number, len(member.attempts), left, len(self.seats), self.revival.pause_s(seat), seat.trouble),
        )
        if not left:
            restart_s = self._limits.restart_s
            log.warning("no engine serves; the run ends in %g s unless one comes back", restart_s)
            self._timers["deadline"] = loop.call_later(restart_s, self._give_up)
        member.withdraw()
        seat.task = asyncio.create_task(self.revival.revive(seat, self._returned))

    def blame(self, failed: Iterable[tuple[Member, Exception]]) -> None:
        """Hold against engines that another one answered what they failed."""
        for member, error in failed:
            member.strikes += 1
            if is_garbage(error):
                self.quarantine(
                    member, Cause.GARBAGE, f"another engine answered what this one could not: {told(error)}"
                )
            elif member.strikes >= MOST_STRIKES:
                detail = (
                    f"others answered {member.strikes} requests in a row that it failed, the last with {told(error)}"
                )
                self.quarantine(member, Cause.ERRORS, detail)

    def watch(self) -> None:
        """Look for silent and slow engines from now on."""
        self._look(asyncio.get_running_loop().time())

    def _look(self, due: float) -> None:
        loop = asyncio.get_running_loop()
        now, members = loop.time(), tuple(self.dispatch.members)
        if now - due > LOOK_S:  # the loop stood still: answers may have come that nobody has read
            for member in members:
                member.sign = now
        slow = slow_ones([member.speed for member in members], now)
        for position, member in enumerate(members):
            if (silent := member.silent_for(now)) > self._limits.silence_s:
                detail = f"it answered none of its {len(member.attempts)} requests for {silent:.0f} s"
                self.quarantine(member, Cause.HUNG, detail)
            elif position in slow:
                self.quarantine(member, Cause.SLOW, slow[position])
        self._timers["look"] = loop.call_later(LOOK_S, self._look, now + LOOK_S)

    def _returned(self, member: Member) -> None:
        self.serve(member)
        self.counts["returned"] += 1
        log.warning(
            "engine %d is back; %d of %d engines serve", member.number, len(self.dispatch.members), len(self.seats)
        )

    def _give_up(self) -> None:
        listed = "\n  ".join(seat.told for seat in self.seats)
        self.end(
            f"no engine has served for {self._limits.restart_s:g} s, and none could be restarted:\n  {listed}\n"
            "The newest checkpoint is as it was: see to the engines, then continue with `slime resume RUN`."
        )
        for seat in self.seats:
            if seat.task is not None:
                seat.task.cancel()

    def end(self, why: str) -> None:
        """No engine comes back from now on; whoever waits for one is told why."""
        if not self.is_over:
            self.is_over, self._why = True, why
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for watch in self.watches.values():
            watch.cancel()
        self.tell()
