"""Crew: which engines serve, which are out and why, and what is done about it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable

from slime_core.errors import WorkerError
from slime_core.roles import Engine, GenerateRequest
from slime_core.rollout.engines._case import is_garbage, told
from slime_core.rollout.engines._dispatch import Dispatch
from slime_core.rollout.engines._member import Cause, Member, Quarantine
from slime_core.rollout.engines._revival import Revival, Seat
from slime_core.rollout.engines._speed import slow_ones

MOST_STRIKES = 3
"""Requests in a row that an engine may fail and another answer."""
GIVE_UP_S = 40.0
"""Seconds without any engine after which the run ends, loudly and within the minute."""
LOOK_S = 1.0
"""Seconds between two looks for silent and slow engines."""

log = logging.getLogger(__name__)


class Crew:
    """The engines of a run, by number."""

    def __init__(self, make: Callable[[int], Engine], count: int, silence_s: float, probe: GenerateRequest) -> None:
        """Build them; none serves yet."""
        self.seats = [Seat(number, Member(number, make(number))) for number in range(count)]
        """All of them."""
        self.dispatch = Dispatch()
        """Those that serve."""
        self.revival = Revival(make, probe)
        """Brings them back."""
        self.counts: Counter[str] = Counter()
        """What happened since the last metrics."""
        self.is_over = False
        """Whether no engine is to come back any more."""
        self._why = ""
        self._silence_s = silence_s
        self._news = asyncio.Event()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def serve(self, member: Member) -> None:
        """An engine takes requests from now on."""
        self.dispatch.add(member)
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

    def quarantine(self, member: Member, cause: Cause, detail: str) -> None:
        """Take an engine out, have what it is at asked elsewhere, and see to its return."""
        if member.quarantine is not None or self.is_over:
            return
        member.quarantine = Quarantine(cause, detail := detail.strip())
        self.dispatch.remove(member)
        self.counts[f"quarantined/{cause.value}"] += 1
        seat, loop = self.seats[member.number], asyncio.get_running_loop()
        seat.fall(f"{cause.value}: {detail}", loop.time())
        if not (left := len(self.dispatch.members)):
            self.revival.urgent.set()
        log.warning(
            "engine %d is taken out, its %d requests are asked again; %d of %d engines serve; restart in %g s. It %s",
            *(member.number, len(member.attempts), left, len(self.seats), self.revival.pause_s(seat), seat.trouble),
        )
        if not left:
            log.warning("no engine serves; the run ends in %g s unless one comes back", GIVE_UP_S)
            self._timers["deadline"] = loop.call_later(GIVE_UP_S, self._give_up)
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
            if (silent := member.silent_for(now)) > self._silence_s:
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
            f"no engine has served for {GIVE_UP_S:g} s, and none could be restarted:\n  {listed}\n"
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
        self.tell()
