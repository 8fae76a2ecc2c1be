"""EnginePool: several engines of one kind as one engine, which lives as long as one of them does.

A bad engine (dead, silent, many times slower than its peers, answering garbage or with old weights) gets no new work,
what it was at is asked elsewhere with the same seed, and another is started in its place.

Example:

    pool = EnginePool(make_engine, 8, silence_s=300.0, probe=GenerateRequest([2], SamplingParams(1), seed=0))
    await pool.start()
    await pool.load_weights(channel, 0)
    output = await pool.generate(request)
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress

from slime_core.errors import WorkerError
from slime_core.roles import Engine, FinishReason, GenerateOutput, GenerateRequest, WeightChannel
from slime_core.rollout.engines._case import Case, told
from slime_core.rollout.engines._crew import Crew
from slime_core.rollout.engines._member import Cause, Member, StaleAnswer, Withdrawn
from slime_core.rollout.engines._revival import Published, Silent, close, within_s
from slime_core.rollout.waiting import waits_at

TOGETHER_S = 2.0
"""Seconds within which engines that die are taken to have died together, of one host, say."""


class EnginePool:
    """Implements `slime_core.roles.Engine`."""

    def __init__(self, make: Callable[[int], Engine], count: int, *, silence_s: float, probe: GenerateRequest) -> None:
        """Build the engines; `start` starts them.

        Args:
            make: builds the engine of a number, from 0; called again to replace one.
            count: how many.
            silence_s: seconds without any answer after which an engine that has work is taken out.
            probe: what an engine must have answered before it returns.
        """
        self._crew = Crew(make, count, silence_s, probe)
        self._silence_s = silence_s
        self._are_many = count > 1
        self._aborts = 0

    async def start(self) -> None:
        """Start all; those that cannot be started are tried again later.

        Raises:
            WorkerError: none could be started.
        """
        members = [seat.member for seat in self._crew.seats]
        errors = await _outcomes([member.engine.start() for member in members])
        if None not in errors:
            raise next(error for error in errors if error)
        for member in members:
            self._crew.serve(member)
        for member, error in zip(members, errors, strict=True):
            if error is not None:
                self._crew.quarantine(member, Cause.DIED, f"it could not be started: {told(error)}")
        self._crew.watch()

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        """Switch all; one that cannot is taken out, and returns with this version or a later one.

        Raises:
            WorkerError: no engine serves, and none came back.
            Exception: what all engines raise.
        """
        self._crew.revival.published = Published(channel, version)
        await self._everywhere(lambda member: self._crew.revival.load(member, self._silence_s))
        while not self._crew.dispatch.members:
            await self._crew.news()

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """One answer of one engine; a second one is asked with the same seed.

        Raises:
            WorkerError: no engine serves, and none came back.
            RequestError: several engines died or hung over the request.
            Exception: what an engine raised, and the others that were asked.
        """
        crew, aborts = self._crew, self._aborts
        case: Case | None = None
        member = crew.dispatch.choose(request)
        try:
            while True:
                if member is None:
                    if case is not None and case.failed and crew.dispatch.members:
                        raise case.failed[-1][1]  # there is nobody else to ask
                    await crew.news()
                else:
                    output, case = await self._ask(member, request, case)
                    if output is not None:
                        return output
                    if case is not None and case.is_near_its_end:
                        await self._settle(aborts)
                if aborts != self._aborts:
                    return self._interrupted()
                if case is None:
                    member = crew.dispatch.choose(request)
                elif member := crew.dispatch.choose_again(case.members, suspect=case.is_suspect):
                    crew.counts["asked_again"] += 1
        finally:
            if case is not None:
                case.close()

    async def abort(self) -> None:
        """Interrupt what runs, and what waits for an engine."""
        self._aborts += 1
        self._crew.tell()
        await self._everywhere(lambda member: within_s(self._silence_s, member.engine.abort(), "abort()"))

    async def close(self) -> None:
        """Stop all."""
        self._crew.end("the engine is closed")
        revivals = [seat.task for seat in self._crew.seats if seat.task is not None]
        for task in revivals:
            task.cancel()
        await asyncio.gather(*revivals, return_exceptions=True)
        members = [seat.member for seat in self._crew.seats]
        bad = [close(member) for member in members if member.quarantine is not None]
        good = [member.engine.close() for member in members if member.quarantine is None]
        for error in await _outcomes([*good, *bad]):
            if error is not None:
                raise error

    def take(self) -> dict[str, float]:
        """Metrics since the last call: what happened to engines, and what each of several did."""
        counts, self._crew.counts = self._crew.counts, Counter()
        found = {f"perf/engine/{name}": float(count) for name, count in sorted(counts.items())}
        for member in (seat.member for seat in self._crew.seats):
            if self._are_many:
                found[f"perf/engine/{member.number}/requests"] = float(member.answers)
                found[f"perf/engine/{member.number}/tokens"] = float(member.tokens)
            member.answers = member.tokens = 0
        return found

    async def _ask(
        self, member: Member, request: GenerateRequest, case: Case | None
    ) -> tuple[GenerateOutput | None, Case | None]:
        """One engine's answer, or none and what is known about the request now."""
        crew = self._crew
        if self._are_many:
            waits_at(f"engine {member.number}")
        try:
            output = await member.generate(request, suspect=case is not None and case.is_suspect)
        except WorkerError as error:
            if crew.is_over:
                raise
            crew.quarantine(member, Cause.DIED, told(error))
        except StaleAnswer as error:
            crew.quarantine(member, Cause.STALE, str(error))
        except Withdrawn:
            pass
        except Exception as error:
            case = case or Case()
            case.fail(member, error)
            return None, case
        else:
            if case is not None:
                crew.blame(case.failed)
            return output, case
        case = case or Case()
        case.lose(member)
        return None, case

    async def _settle(self, aborts: int) -> None:
        """Let time pass before a request is blamed for good: engines that die together have not died of it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TOGETHER_S):
                while aborts == self._aborts:
                    await self._crew.news()

    async def _everywhere(self, call: Callable[[Member], Coroutine[object, object, None]]) -> None:
        """Call all engines that serve; what all refuse is the caller's affair, what some refuse is theirs."""
        members = tuple(self._crew.dispatch.members)
        errors = await _outcomes([call(member) for member in members])
        if members and all(error is not None and not isinstance(error, WorkerError) for error in errors):
            raise next(error for error in errors if error)
        for member, error in zip(members, errors, strict=True):
            if isinstance(error, Silent):
                self._crew.quarantine(member, Cause.HUNG, told(error))
            elif error is not None:
                self._crew.quarantine(member, Cause.DIED, told(error))

    def _interrupted(self) -> GenerateOutput:
        published = self._crew.revival.published
        return GenerateOutput((), (), FinishReason.ABORT, published.version if published else 0)


async def _outcomes(calls: list[Coroutine[object, object, None]]) -> list[Exception | None]:
    """What each of several calls raised, if anything; all of them end."""
    found: list[Exception | None] = []
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if outcome is not None and not isinstance(outcome, Exception):
            raise outcome
        found.append(outcome)
    return found
