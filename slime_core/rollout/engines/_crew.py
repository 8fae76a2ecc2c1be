"""Crew: which engines serve, which are out and why, and what is done about it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable

from slime_core.errors import WorkerError
from slime_core.roles import Engine, GenerateRequest, NoticesDeath
from slime_core.rollout.engines._case import is_garbage, told
from slime_core.rollout.engines._dispatch import Dispatch
from slime_core.rollout.engines._member import DEADLY, Cause, Member, Quarantine
from slime_core.rollout.engines._revival import Revival, Seat
from slime_core.rollout.engines._speed import slow_ones
from slime_core.rollout.engines.limits import Limits

MOST_STRIKES = 3
"""Requests in a row that an engine may fail and another answer."""
LOOK_S = 1.0
"""Seconds between two looks for silent and slow engines."""

log = logging.getLogger(__name__)


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
