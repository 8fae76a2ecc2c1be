"""Member: what one engine is at, counted, and what is not an answer of it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from slime_core.roles import FinishReason, GenerateOutput, GenerateRequest, SamplingParams
from slime_core.rollout.engine_member import Cause, Member, Quarantine, StaleAnswer, Withdrawn
from slime_simulate.clock import VirtualLoop

REQUEST = GenerateRequest([1, 2, 3], SamplingParams(16), 0)
FALLEN = Quarantine(Cause.SLOW, "slower than its peers")


class Engine:
    """Answers when it is told to, with weights as it is told."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.error: Exception | None = None
        self.version = 0

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        await self.may_answer.wait()
        if self.error:
            raise self.error
        return GenerateOutput([7, 8], [-0.5, -0.5], FinishReason.STOP, self.version)


def play(use: Callable[[Member, Engine], Awaitable[None]]) -> None:
    async def main() -> None:
        engine = Engine()
        await use(Member(0, engine, oldest=0, newest=0), engine)  # type: ignore[arg-type]  # it is asked nothing else

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def test_what_it_is_at_is_counted_until_it_ends() -> None:
    async def use(member: Member, engine: Engine) -> None:
        asked = [asyncio.create_task(member.generate(REQUEST, suspect=each)) for each in (False, True)]
        await asyncio.sleep(2.0)
        assert (len(member.attempts), member.work, member.suspects, member.speed.running) == (2, 38, 1, 2)
        assert member.silent_for(5.0) == 5.0
        engine.may_answer.set()
        await asyncio.gather(*asked)
        assert (len(member.attempts), member.work, member.suspects, member.speed.running) == (0, 0, 0, 0)
        assert (member.answers, member.tokens, member.sign) == (2, 4, 2.0)
        assert (member.speed.answers, member.speed.tokens, member.speed.seconds) == (2.0, 6.0, 4.0)
        assert member.silent_for(500.0) == 0.0

    play(use)


def test_silence_begins_with_the_first_of_its_requests() -> None:
    async def use(member: Member, engine: Engine) -> None:
        await asyncio.sleep(10.0)
        first = asyncio.create_task(member.generate(REQUEST))
        await asyncio.sleep(5.0)
        second = asyncio.create_task(member.generate(REQUEST))
        await asyncio.sleep(1.0)
        assert member.silent_for(16.0) == 6.0
        engine.may_answer.set()
        await asyncio.gather(first, second)

    play(use)


@pytest.mark.parametrize("error", [None, OSError("no port")], ids=["an answer", "an error"])
def test_what_comes_after_it_was_taken_out_is_no_answer(error: Exception | None) -> None:
    async def use(member: Member, engine: Engine) -> None:
        engine.error = error
        task = asyncio.create_task(member.generate(REQUEST))
        await asyncio.sleep(1.0)
        member.quarantine = FALLEN
        engine.may_answer.set()
        with pytest.raises(Withdrawn):
            await task
        assert (member.answers, member.sign) == (0, 0.0)

    play(use)


def test_an_error_is_a_sign_of_life_and_no_answer() -> None:
    async def use(member: Member, engine: Engine) -> None:
        engine.error = OSError("no port")
        member.strikes = 2
        task = asyncio.create_task(member.generate(REQUEST))
        await asyncio.sleep(3.0)
        engine.may_answer.set()
        with pytest.raises(OSError, match="no port"):
            await task
        assert (member.sign, member.answers, member.strikes, member.speed.answers) == (3.0, 0, 2, 0.0)

    play(use)


@pytest.mark.parametrize(("version", "stale"), [(2, True), (3, False), (4, False), (5, True)])
def test_an_answer_is_of_weights_between_those_it_had_and_those_it_was_told_of(version: int, stale: bool) -> None:
    async def use(member: Member, engine: Engine) -> None:
        member.oldest, member.newest, engine.version = 3, 4, version
        engine.may_answer.set()
        if stale:
            with pytest.raises(StaleAnswer, match=f"with weights of version {version}, expected 3 to 4"):
                await member.generate(REQUEST)
        else:
            assert (await member.generate(REQUEST)).weight_version == version

    play(use)


def test_an_answer_may_be_of_the_weights_that_were_served_when_it_was_asked() -> None:
    async def use(member: Member, engine: Engine) -> None:
        task = asyncio.create_task(member.generate(REQUEST))
        await asyncio.sleep(1.0)
        member.oldest = member.newest = 1
        engine.may_answer.set()
        assert (await task).weight_version == 0
        with pytest.raises(StaleAnswer, match=r"of version 0, expected 1$"):
            await member.generate(REQUEST)

    play(use)


def test_who_waits_until_it_is_at_nothing_is_told_with_the_last_answer() -> None:
    async def use(member: Member, engine: Engine) -> None:
        await member.emptied()
        first = asyncio.create_task(member.generate(REQUEST))
        second = asyncio.create_task(member.generate(REQUEST))
        await asyncio.sleep(1.0)
        waiting = [asyncio.create_task(member.emptied()) for _ in range(2)]
        first.cancel()
        await asyncio.sleep(1.0)
        assert first.cancelled()
        assert not any(each.done() for each in waiting)
        engine.may_answer.set()
        await asyncio.gather(second, *waiting)

    play(use)


def test_a_switch_begins_when_what_it_was_at_has_ended_and_is_no_silence() -> None:
    async def use(member: Member, engine: Engine) -> None:
        told: list[str] = []
        before = asyncio.create_task(member.generate(REQUEST))
        await asyncio.sleep(1.0)
        member.begin_switch(lambda: told.append("free"))
        after = asyncio.create_task(member.generate(REQUEST))
        await asyncio.sleep(1.0)
        assert (told, member.is_switching) == ([], False)
        before.cancel()
        await asyncio.sleep(1.0)
        assert (told, member.is_switching) == (["free"], True)
        assert member.silent_for(100.0) == 0.0
        await asyncio.sleep(7.0)
        member.end_switch()
        assert (member.is_switching, member.sign) == (False, 10.0)
        assert member.silent_for(12.0) == 2.0
        engine.may_answer.set()
        await after
        assert told == ["free"]

    play(use)


def test_an_engine_that_is_at_nothing_switches_at_once() -> None:
    async def use(member: Member, engine: Engine) -> None:
        told: list[str] = []
        member.begin_switch(lambda: told.append("free"))
        assert (told, member.is_switching) == (["free"], True)
        member.end_switch()
        member.end_switch()
        assert not member.is_switching

    play(use)


def test_what_is_withdrawn_is_to_be_asked_elsewhere_and_who_cancels_is_obeyed() -> None:
    async def use(member: Member, engine: Engine) -> None:
        task = asyncio.create_task(member.generate(REQUEST))
        await asyncio.sleep(1.0)
        member.withdraw()
        with pytest.raises(Withdrawn):
            await task
        task = asyncio.create_task(member.generate(REQUEST))
        await asyncio.sleep(1.0)
        task.cancel()
        member.withdraw()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert member.work == 0

    play(use)
