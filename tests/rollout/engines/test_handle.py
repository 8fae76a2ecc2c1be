"""One engine of a pool: which weights may answer, and who cancelled a request."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from slime_core.catalog.catalog import Used
from slime_core.roles import FinishReason, GenerateOutput, GenerateRequest, SamplingParams
from slime_core.rollout import Limits
from slime_core.rollout.engine_handle import EngineHandle, Lost, Withdrawn
from slime_simulate.clock import VirtualLoop
from tests.tables import table

REQUEST = GenerateRequest([1, 2, 3], SamplingParams(16), 0)


class Engine:
    """Answers when it may, with weights of `version`."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.error: Exception | None = None
        self.version = 0

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        await self.may_answer.wait()
        if self.error:
            raise self.error
        return GenerateOutput([7, 8], [-0.5, -0.5], FinishReason.STOP, self.version)


def play(use: Callable[[EngineHandle, Engine], Awaitable[None]]) -> None:
    async def main() -> None:
        engine = Engine()
        handle = EngineHandle(0, Used("e", "tests", engine), Limits(9, 9, 9, 9), version=0, newest=0)  # type: ignore[arg-type]
        await use(handle, engine)
        assert (handle.work, handle.attempts) == (0, {})

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


@table("version, stale", [(2, True), (3, False), (4, False), (5, True)])
def test_an_answer_is_of_weights_between_those_served_and_those_being_loaded(version: int, stale: bool) -> None:
    async def use(handle: EngineHandle, engine: Engine) -> None:
        handle.version, handle.newest, engine.version = 3, 4, version
        engine.may_answer.set()
        if stale:
            with pytest.raises(Lost, match=f"with weights of version {version}, expected 3 to 4"):
                await handle.generate(REQUEST)
        else:
            assert (await handle.generate(REQUEST)).weight_version == version

    play(use)


def test_an_answer_may_be_of_the_weights_that_were_served_when_it_was_asked() -> None:
    async def use(handle: EngineHandle, engine: Engine) -> None:
        task = asyncio.create_task(handle.generate(REQUEST))
        await asyncio.sleep(1.0)
        handle.version = handle.newest = 1
        engine.may_answer.set()
        assert (await task).weight_version == 0
        with pytest.raises(Lost, match=r"of version 0, expected 1$"):
            await handle.generate(REQUEST)

    play(use)


@table("error", [None, OSError("no port")])
def test_what_comes_after_an_engine_was_taken_out_is_no_answer(error: Exception | None) -> None:
    async def use(handle: EngineHandle, engine: Engine) -> None:
        engine.error = error
        task = asyncio.create_task(handle.generate(REQUEST))
        await asyncio.sleep(1.0)
        handle.lost = Lost("hung", "silent")
        engine.may_answer.set()
        with pytest.raises(Withdrawn):
            await task
        assert (handle.answers, handle.sign) == (0, 0.0)

    play(use)


def test_silence_begins_with_the_first_request_and_ends_with_an_answer_or_an_error() -> None:
    async def use(handle: EngineHandle, engine: Engine) -> None:
        await asyncio.sleep(10.0)
        first = asyncio.create_task(handle.generate(REQUEST))
        await asyncio.sleep(5.0)
        second = asyncio.create_task(handle.generate(REQUEST))
        await asyncio.sleep(1.0)
        assert (handle.silent_for(16.0), handle.work, len(handle.attempts)) == (6.0, 38, 2)
        engine.error = OSError("no port")
        engine.may_answer.set()
        for task in (first, second):
            with pytest.raises(OSError, match="no port"):
                await task
        assert (handle.sign, handle.silent_for(500.0)) == (16.0, 0.0)

    play(use)


def test_a_withdrawn_request_goes_elsewhere_and_a_cancelled_one_is_cancelled() -> None:
    async def use(handle: EngineHandle, engine: Engine) -> None:
        task = asyncio.create_task(handle.generate(REQUEST))
        await asyncio.sleep(1.0)
        handle.withdraw()
        with pytest.raises(Withdrawn):
            await task
        task = asyncio.create_task(handle.generate(REQUEST))
        await asyncio.sleep(1.0)
        task.cancel()
        handle.withdraw()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(use)
