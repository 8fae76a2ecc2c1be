"""EnginePool: several engines of one kind as one engine, which lives as long as one of them does.

A bad engine (dead, silent, many times slower than its peers, answering garbage or with old weights) gets no new work,
what it was at is asked elsewhere with the same seed, and another is started in its place.

Example:

    pool = EnginePool(make_engine, 8, Limits.of(spec, silence_s=300.0), probe=request)
    await pool.start()
    await pool.load_weights(channel, 0)
    output = await pool.generate(request)
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Protocol, TypeVar, cast

from slime_core.errors import RequestError, WorkerError
from slime_core.roles import (
    Engine,
    FinishReason,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    MemoryTags,
    ReleasesMemory,
    WeightChannel,
)
from slime_core.rollout.calls import waits_at
from slime_core.rollout.engine_health import Crew, Published, SendAgain, Silent, close, within_s
from slime_core.rollout.engine_member import Case, Cause, Limits, Member, Reading, StaleAnswer, Withdrawn, told

AnswerT = TypeVar("AnswerT")
GivenT = TypeVar("GivenT", covariant=True)

LATE, LEAST_LATE_S = 3.0, 60.0
"""How long the others may take to start once one has: so many times as long as that took, or so many seconds."""
TOGETHER_S = 2.0
"""Seconds within which engines that die are taken to have died together, of one host, say."""


class Ask(Protocol[GivenT]):
    """How a member is asked."""

    async def __call__(self, member: Member, request: GenerateRequest, /, *, suspect: bool) -> GivenT:
        """Return an answer, or the beginning of one."""
        ...


class EnginePool:
    """Implements `slime_core.roles.Engine` and `StreamsTokens`."""

    def __init__(self, make: Callable[[int], Engine], count: int, limits: Limits, *, probe: GenerateRequest) -> None:
        """Build the engines; `start` starts them.

        Args:
            make: builds the engine of a number, from 0; called again to replace one.
            count: how many.
            limits: how long they may take.
            probe: what an engine must have answered before it returns.
        """
        self._crew = Crew(make, count, limits, probe)
        self._limits = limits
        self._are_many = count > 1
        self._aborts = 0
        self._trial = asyncio.Lock()

    async def start(self) -> None:
        """Start all; those that cannot be started, or not while others serve already, are tried again later.

        Raises:
            WorkerError: none could be started.
        """
        members = [seat.member for seat in self._crew.seats]
        errors = await self._started(members)
        if None not in errors:
            raise next(error for error in errors if error)
        for member in members:
            self._crew.serve(member)
        for member, error in zip(members, errors, strict=True):
            if error is not None:
                self._crew.quarantine(member, Cause.DIED, f"it could not be started: {told(error)}")
        self._crew.watch()

    async def _started(self, members: list[Member]) -> list[Exception | None]:
        """What each start raised, if anything; one that hangs is not waited for long where another can serve."""
        loop, start_s = asyncio.get_running_loop(), self._limits.start_s
        began = loop.time()
        starting = [asyncio.create_task(within_s(start_s, each.engine.start(), "start()")) for each in members]
        left = set(starting)
        try:
            while left and not any(task.done() and task.exception() is None for task in starting):
                _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            late_s = max(LEAST_LATE_S, LATE * (loop.time() - began))
            if left:
                _, left = await asyncio.wait(left, timeout=late_s)
        finally:
            for task in starting:
                task.cancel()
            outcomes = await asyncio.gather(*starting, return_exceptions=True)
        late = Silent(f"it had not started {late_s:.0f} s after another that had")
        return [late if isinstance(each, asyncio.CancelledError) else cast(Exception | None, each) for each in outcomes]

    @property
    def serving(self) -> tuple[int, ...]:
        """Numbers of the engines that `load_weights` would switch now."""
        return tuple(member.number for member in self._crew.dispatch.members)

    def catch_up_by(self, send_again: SendAgain) -> None:
        """Say how an engine that comes late gets weights which it cannot read alone."""
        self._crew.revival.send_again = send_again

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        """Switch all; one that cannot is taken out, and returns with this version or a later one.

        Raises:
            WorkerError: no engine serves, and none came back.
            Exception: what all engines raise; they serve what they served.
        """
        revival, published = self._crew.revival, Published(channel, version)
        before, revival.published = revival.published, published
        try:
            await self._everywhere(lambda member: revival.load(member, published))
        except BaseException:
            revival.published = before
            raise
        while not self._crew.dispatch.members:
            await self._crew.news()

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """One answer of one engine; a second one is asked with the same seed.

        Raises:
            WorkerError: no engine serves, and none came back.
            RequestError: several engines died or hung over the request.
            Exception: what an engine raised, and the others that were asked.
        """
        output = await self._answer(request, Member.generate)
        return self._interrupted() if output is None else output

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        """The same in parts. Until the first one comes another engine may be asked; after it, none is.

        Raises:
            WorkerError: no engine serves, and none came back.
            RequestError: several engines died or hung over the request, or one did when a part was told.
            Exception: what an engine raised, and the others that were asked.
        """
        reading = await self._answer(request, Reading.begun)
        if reading is None:
            yield self._interrupted().as_chunk
            return
        try:
            while True:
                chunk = await self._next(reading)
                yield chunk
                if chunk.finish is not None:
                    return
        finally:
            await reading.close()

    async def abort(self) -> None:
        """Interrupt what runs, and what waits for an engine."""
        self._aborts += 1
        self._crew.tell()
        await self._everywhere(lambda member: within_s(self._limits.silence_s, member.engine.abort(), "abort()"))

    async def release(self, tags: MemoryTags) -> None:
        """Have all give memory up, and those that come back, too; one that cannot is taken out."""
        revival = self._crew.revival
        revival.released |= tags
        await self._everywhere(
            lambda member: within_s(self._limits.load_s, cast(ReleasesMemory, member.engine).release(tags), "release()")
        )

    async def resume(self, tags: MemoryTags) -> None:
        """Have all take memory back; one that cannot is taken out."""
        revival = self._crew.revival
        revival.released -= tags
        await self._everywhere(
            lambda member: within_s(self._limits.load_s, cast(ReleasesMemory, member.engine).resume(tags), "resume()")
        )

    async def close(self) -> None:
        """Stop all engines, and whatever brings some of them back."""
        self._crew.end("the engine is closed")
        revivals = [seat.task for seat in self._crew.seats if seat.task is not None]
        for task in revivals:
            task.cancel()
        await asyncio.gather(*revivals, *self._crew.watches.values(), return_exceptions=True)
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

    async def _answer(self, request: GenerateRequest, ask: Ask[AnswerT]) -> AnswerT | None:
        """What one engine answers; None if what runs was interrupted while the request waited for an engine."""
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
                    answer, case = await self._ask(member, request, case, ask)
                    if answer is not None:
                        return answer
                    if case is not None and case.is_to_be_tried:
                        return await self._ask_alone(request, case, ask, aborts)
                if aborts != self._aborts:
                    return None
                if case is None:
                    member = crew.dispatch.choose(request)
                elif member := crew.dispatch.choose_again(case.members, suspect=case.is_suspect):
                    crew.counts["asked_again"] += 1
        finally:
            if case is not None:
                case.close()

    async def _ask(
        self, member: Member, request: GenerateRequest, case: Case | None, ask: Ask[AnswerT], *, alone: bool = False
    ) -> tuple[AnswerT | None, Case | None]:
        """One engine's answer, or none and what is known about the request now."""
        crew = self._crew
        if self._are_many:
            waits_at(f"engine {member.number}")
        try:
            answer = await ask(member, request, suspect=case is not None and case.is_suspect)
        except (WorkerError, StaleAnswer) as error:
            self._take_out(member, error)
        except Withdrawn:
            pass
        except Exception as error:
            case = case or Case()
            case.fail(member, error)
            return None, case
        else:
            if case is not None:
                crew.blame(case.failed)
            return answer, case
        case = case or Case()
        case.lose(member, crew.deaths, out=crew.out, alone=alone)
        return None, case

    async def _ask_alone(self, request: GenerateRequest, case: Case, ask: Ask[AnswerT], aborts: int) -> AnswerT | None:
        """The answer of an engine that has no other request meanwhile; one request at a time is tried so."""
        crew = self._crew
        async with self._trial:
            while aborts == self._aborts:
                await self._settle(aborts)
                member = crew.dispatch.choose_again(case.members, suspect=True)
                if member is None:
                    if case.failed and crew.dispatch.members:
                        raise case.failed[-1][1]  # there is nobody else to ask
                    await crew.news()
                    continue
                try:
                    with crew.dispatch.reserved(member):
                        await member.emptied()
                        if member.quarantine is None and aborts == self._aborts:
                            crew.counts["asked_again"] += 1
                            answer, _ = await self._ask(member, request, case, ask, alone=True)
                            if answer is not None:
                                return answer
                finally:
                    crew.tell()
        return None

    async def _next(self, reading: Reading) -> GenerateChunk:
        """A part of an answer that only its engine can go on with."""
        try:
            return await reading.next()
        except (WorkerError, StaleAnswer) as error:
            self._take_out(reading.member, error)
        except Withdrawn:
            pass
        verdict = reading.member.quarantine
        assert verdict is not None, "it was quarantined"
        raise RequestError(
            f"engine {reading.member.number} {verdict.cause.value} when {reading.told} tokens of its answer were told "
            f"already, which no other can go on with; ask again from the beginning. {verdict.detail}"
        )

    def _take_out(self, member: Member, error: WorkerError | StaleAnswer) -> None:
        if self._crew.is_over:
            raise error
        if isinstance(error, StaleAnswer):
            self._crew.quarantine(member, Cause.STALE, str(error))
        else:
            self._crew.quarantine(member, Cause.DIED, told(error))

    async def _settle(self, aborts: int) -> None:
        """Wait a moment before a request is tried again: engines that die together did not die of that request."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TOGETHER_S):
                while aborts == self._aborts:
                    await self._crew.news()

    async def _everywhere(self, call: Callable[[Member], Coroutine[object, object, None]]) -> None:
        """Call all engines that serve. If all fail, the caller is told; if only some do, those are taken out."""
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
