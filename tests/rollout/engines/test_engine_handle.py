"""One engine of a pool: its checks, its weights, its limits, and its answers in parts."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import cast

import pytest

from slime_core.catalog.catalog import BuiltChoice
from slime_core.errors import ContractError, PluginError, RequestError, WorkerError
from slime_core.roles import (
    EngineSpec,
    FinishReason,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
    WeightChannel,
)
from slime_core.rollout import EnginePool, Limits
from slime_core.rollout.engine_handle import EngineFailure, EngineHandle, EngineReplaced
from slime_simulate.clock import VirtualLoop
from tests.rollout.bench import Checked, Idle, checked
from tests.rollout.engines.fleet import Fleet, Scripted, Streaming, make_request, tokens_of
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
        handle = EngineHandle(0, BuiltChoice("e", "tests", engine), Limits(9, 9, 9, 9), version=0, requested_version=0)  # type: ignore[arg-type]
        await use(handle, engine)
        assert (handle.work, handle.attempts) == (0, {})

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


@table("version, stale", [(2, True), (3, False), (4, False), (5, True)])
def test_an_answer_is_of_weights_between_those_served_and_those_being_loaded(version: int, stale: bool) -> None:
    async def use(handle: EngineHandle, engine: Engine) -> None:
        handle.version, handle.requested_version, engine.version = 3, 4, version
        engine.may_answer.set()
        if stale:
            with pytest.raises(EngineFailure, match=f"with weights of version {version}, expected 3 to 4"):
                await handle.generate(REQUEST)
        else:
            assert (await handle.generate(REQUEST)).weight_version == version

    play(use)


def test_an_answer_may_be_of_the_weights_that_were_served_when_it_was_asked() -> None:
    async def use(handle: EngineHandle, engine: Engine) -> None:
        task = asyncio.create_task(handle.generate(REQUEST))
        await asyncio.sleep(1.0)
        handle.version = handle.requested_version = 1
        engine.may_answer.set()
        assert (await task).weight_version == 0
        with pytest.raises(EngineFailure, match=r"of version 0, expected 1$"):
            await handle.generate(REQUEST)

    play(use)


@table("error", [None, OSError("no port")])
def test_an_answer_or_error_of_a_failed_engine_is_ignored(error: Exception | None) -> None:
    async def use(handle: EngineHandle, engine: Engine) -> None:
        engine.error = error
        task = asyncio.create_task(handle.generate(REQUEST))
        await asyncio.sleep(1.0)
        handle.failure = EngineFailure("hung", "silent")
        engine.may_answer.set()
        with pytest.raises(EngineReplaced):
            await task
        assert (handle.answers, handle.last_progress) == (0, 0.0)

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
        assert (handle.last_progress, handle.silent_for(500.0)) == (16.0, 0.0)

    play(use)


def test_requests_of_a_failed_engine_are_retried_and_cancelled_ones_are_not() -> None:
    async def use(handle: EngineHandle, engine: Engine) -> None:
        task = asyncio.create_task(handle.generate(REQUEST))
        await asyncio.sleep(1.0)
        handle.cancel_requests()
        with pytest.raises(EngineReplaced):
            await task
        task = asyncio.create_task(handle.generate(REQUEST))
        await asyncio.sleep(1.0)
        task.cancel()
        handle.cancel_requests()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(use)


# What an engine answers is checked before anybody sees it, in parts, too.

SHORT = GenerateRequest([1, 2], SamplingParams(4), 0)
GOOD = GenerateChunk([5, 6], [-0.5, -0.5], 3)
LAST = GenerateChunk([7], [-0.5], 3, FinishReason.STOP)


class Whole(Idle):
    """Answers at once."""

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        return GenerateOutput.joined([GOOD, LAST])


class Parts(Whole):
    """Streams the given parts."""

    def __init__(self, chunks: Sequence[object]) -> None:
        self.chunks = chunks
        self.left = False

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        try:
            for chunk in self.chunks:
                yield chunk  # type: ignore[misc]  # also what is none
        finally:
            self.left = True


def streamed(engine: Whole, taken: list[GenerateChunk]) -> None:
    output = asyncio.run(cast(Checked, checked(engine)).generate(SHORT, taken.append))
    assert output == GenerateOutput.joined(taken)


@table(
    "bad, text",
    [
        ("</html>", "expected a GenerateChunk, got str"),
        (replace(GOOD, log_probs=[-0.5]), "1 log_probs for 2 tokens"),
        (replace(GOOD, log_probs=[-0.5, float("inf")]), "log_probs holds NaN, infinity"),
        (GenerateChunk([5, 6, 7], [-0.5] * 3, 3), "5 tokens; max_new_tokens is 4"),
        (GenerateChunk([], [], 3), "a part before the last has no tokens"),
        (replace(GOOD, weight_version="3"), "weight_version: expected an int, got str"),
        (replace(GOOD, finish="stop"), "finish: expected a FinishReason, or None before the end, got str"),
    ],
)
def test_a_bad_part_is_refused_by_the_plugin_s_name_and_not_passed_on(bad: object, text: str) -> None:
    taken: list[GenerateChunk] = []
    with pytest.raises(ContractError) as caught:
        streamed(engine := Parts([GOOD, bad, LAST]), taken)
    assert str(caught.value).startswith("engine of plugin tests (stream)")
    assert text in str(caught.value)
    assert taken == [GOOD]
    assert engine.left


def test_parts_without_an_end_are_no_answer() -> None:
    taken: list[GenerateChunk] = []
    with pytest.raises(ContractError, match="ended after 2 tokens without a finish"):
        streamed(Parts([GOOD]), taken)


class Broken(Whole):
    async def abort(self) -> None:
        raise OSError("no port")


def test_an_error_of_the_engine_is_raised_with_its_method_and_plugin() -> None:
    with pytest.raises(PluginError, match=r"^engine \(abort\) of plugin tests raised OSError"):
        asyncio.run(checked(Broken()).abort())


def test_an_engine_that_was_to_give_up_memory_and_cannot_is_named() -> None:
    with pytest.raises(ContractError, match=r"engine 'mine' of plugin tests has no release\(\), which its spec"):
        asyncio.run(cast(Checked, checked(Whole())).call("release", frozenset()))


# How long engines may take is theirs to say; the clock stands still while anything is to be done.

NOWHERE = WeightChannel("nowhere", ())
FOR_EVER_S = 1e9


async def dies(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
    raise WorkerError("killed by SIGKILL")


async def starts_again_slowly(engine: Scripted) -> None:
    await asyncio.sleep(90.0 if engine.life else 0.0)


def test_a_server_that_takes_long_to_start_again_is_waited_for_as_long_as_it_says() -> None:
    patient = Fleet(1, bad={0: dies}, starts=starts_again_slowly, restart_s=200.0)
    output = patient.play(lambda pool: pool.generate(make_request(3)))
    assert list(output.tokens) == tokens_of(make_request(3))
    hasty = Fleet(1, bad={0: dies}, starts=starts_again_slowly, restart_s=40.0)
    with pytest.raises(WorkerError, match="no engine has served for 40 s"):
        hasty.play(lambda pool: pool.generate(make_request(3)))


@table("probe_s, lives", [(120.0, 2), (30.0, 4)])
def test_the_first_answer_after_a_restart_may_take_as_long_as_it_says(probe_s: float, lives: int) -> None:
    """It compiles for a minute; where that is too long, it does so again and again."""

    async def compiles(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
        await asyncio.sleep(60.0 if len(engine.asked) == 1 and engine.life else 0.0)
        return await engine.answer(request)

    made = Fleet(2, bad={0: dies}, everywhere=compiles, probe_s=probe_s)

    async def use(pool: EnginePool) -> None:
        await asyncio.gather(*(pool.generate(make_request(seed)) for seed in range(8)))
        await asyncio.sleep(100.0)

    made.play(use)
    assert made.built[0] == lives


async def long_ones(pool: EnginePool, requests: list[GenerateRequest]) -> list[asyncio.Task[GenerateOutput]]:
    asked = [asyncio.create_task(pool.generate(request)) for request in requests]
    await asyncio.sleep(1.0)
    return asked


async def crawls(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
    return await engine.answer(request, pace=20.0)


async def idles_and_loads(engine: Scripted, seconds: float) -> None:
    while engine.running:  # noqa: ASYNC110  # nothing tells when
        await asyncio.sleep(0.5)
    await asyncio.sleep(seconds)


def test_the_wait_for_what_runs_does_not_count_as_loading() -> None:
    made = Fleet(2, everywhere=crawls, loads=lambda engine: idles_and_loads(engine, 90.0), load_s=100.0)

    async def use(pool: EnginePool) -> tuple[list[GenerateOutput], float, dict[str, float]]:
        running = await long_ones(pool, [make_request(seed) for seed in range(6)])
        await pool.load_weights(NOWHERE, 1)
        return await asyncio.gather(*running), asyncio.get_running_loop().time(), pool.take()

    outputs, seconds, metrics = made.play(use)
    assert {output.weight_version for output in outputs} == {0}
    assert seconds > 100.0 + 90.0, "what ran took longer than loading may"
    assert "perf/engine/quarantined/hung" not in metrics


def test_a_load_that_hangs_is_given_up_at_its_limit_after_what_ran() -> None:
    async def hangs(engine: Scripted) -> None:
        await idles_and_loads(engine, FOR_EVER_S if engine.number == 0 and not engine.life else 1.0)

    made = Fleet(2, everywhere=crawls, loads=hangs, load_s=100.0)

    async def use(pool: EnginePool) -> tuple[float, float, dict[str, float]]:
        running = await long_ones(pool, [make_request(seed) for seed in range(6)])
        loading = asyncio.create_task(pool.load_weights(NOWHERE, 1))
        await asyncio.gather(*running)
        idle = asyncio.get_running_loop().time()
        await loading
        return idle, asyncio.get_running_loop().time(), pool.take()

    idle, loaded, metrics = made.play(use)
    assert idle + 50.0 < loaded <= idle + 101.0
    assert metrics["perf/engine/quarantined/hung"] == 1


def test_what_an_engine_holds_back_while_it_loads_does_not_make_it_silent() -> None:
    async def held_back(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
        if request.seed:
            await loaded.wait()
        return await engine.answer(request)

    async def loads(engine: Scripted) -> None:
        await asyncio.sleep(90.0)
        loaded.set()

    loaded = asyncio.Event()
    made = Fleet(1, everywhere=held_back, loads=loads, load_s=100.0, silence_s=30.0)

    async def use(pool: EnginePool) -> tuple[list[GenerateOutput], dict[str, float]]:
        switching = asyncio.create_task(pool.load_weights(NOWHERE, 1))
        await asyncio.sleep(1.0)
        outputs = await asyncio.gather(*(pool.generate(make_request(seed)) for seed in range(1, 5)))
        await switching
        return outputs, pool.take()

    outputs, metrics = made.play(use)
    assert {output.weight_version for output in outputs} == {1}
    assert metrics == {}


def test_the_limits_of_a_pool_are_those_of_its_engine_s_spec() -> None:
    spec = EngineSpec("served", lambda settings, setup: None, restart_s=900.0, probe_s=200.0, load_s=50.0)  # type: ignore[arg-type, return-value]
    limits = Limits.of(spec, silence_s=10.0)
    assert (limits, limits.start_s) == (Limits(10.0, 900.0, 200.0, 50.0), 900.0)
    assert Limits(10.0, 40.0, 30.0, 50.0).start_s == 600.0


# Answers in parts through a pool; the clock stands still while anything is to be done.


LONG = 8
"""A seed whose answer has 12 tokens."""


async def all_of(pool: EnginePool, request: GenerateRequest) -> list[GenerateChunk]:
    chunks: list[GenerateChunk] = []
    output = await pool.generate(request, chunks.append)
    assert GenerateOutput.joined(chunks).versions == output.versions
    return chunks


async def dies_at_once(engine: Streaming, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
    await asyncio.sleep(0.1)
    raise WorkerError(f"engine {engine.number} died")
    yield


async def dies_midway(engine: Streaming, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
    for _ in range(3):
        await asyncio.sleep(0.1)
        yield GenerateChunk([7, 8], [-0.5, -0.5], engine.version)
    raise WorkerError(f"engine {engine.number} died")


async def falls_silent(engine: Streaming, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
    yield GenerateChunk([7], [-0.5], engine.version)
    await asyncio.sleep(FOR_EVER_S)


async def crawls_in_parts(engine: Streaming, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
    async for chunk in engine.parts(request, pace=20.0):
        yield chunk


async def turns_stale(engine: Streaming, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
    yield GenerateChunk([7], [-0.5], engine.version)
    yield GenerateChunk([8], [-0.5], engine.version - 1)


async def is_stale(engine: Streaming, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
    yield GenerateChunk([8], [-0.5], engine.version - 1)


async def talks_nonsense(engine: Streaming, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
    yield GenerateChunk([7], [float("nan")], engine.version)


@table("streams", [True, False])
def test_the_parts_are_the_answer(*, streams: bool) -> None:
    made = Fleet(3, streams=streams)
    requests = [make_request(seed) for seed in range(24)]

    async def use(pool: EnginePool) -> None:
        streamed = await asyncio.gather(*(all_of(pool, request) for request in requests))
        outputs = await asyncio.gather(*(pool.generate(request) for request in requests))
        for chunks, output in zip(streamed, outputs, strict=True):
            joined = GenerateOutput.joined(chunks)
            assert (list(joined.tokens), joined.finish) == (list(output.tokens), output.finish)
            assert len(chunks) == (len(output.tokens) if streams else 1)

    made.play(use)


@table("behaviour, cause", [(dies_at_once, "died"), (is_stale, "stale"), (talks_nonsense, "garbage")])
def test_a_request_that_fails_before_its_first_part_is_retried(behaviour: object, cause: str) -> None:
    made = Fleet(2, streams=True, bad_streams={0: behaviour})

    async def use(pool: EnginePool) -> tuple[list[GenerateChunk], dict[str, float]]:
        return await all_of(pool, make_request(LONG)), pool.take()

    chunks, metrics = made.play(use)
    assert list(GenerateOutput.joined(chunks).tokens) == tokens_of(make_request(LONG))
    assert metrics[f"perf/engine/quarantined/{cause}"] == metrics["perf/engine/retries"] == 1


@table("behaviour, cause, sent", [(dies_midway, "died", 6), (falls_silent, "hung", 1), (turns_stale, "stale", 1)])
def test_a_request_that_fails_after_a_part_is_not_retried(behaviour: object, cause: str, sent: int) -> None:
    made = Fleet(2, streams=True, bad_streams={0: behaviour}, silence_s=30.0)

    async def use(pool: EnginePool) -> tuple[list[GenerateChunk], RequestError, list[GenerateChunk]]:
        chunks: list[GenerateChunk] = []
        with pytest.raises(RequestError) as caught:
            await pool.generate(make_request(LONG), chunks.append)
        assert pool.take()[f"perf/engine/quarantined/{cause}"] == 1
        return chunks, caught.value, await all_of(pool, make_request(LONG))

    chunks, error, again = made.play(use)
    assert f"engine 0 {cause} after {sent} tokens of its answer" in str(error)
    assert "retry the whole request" in str(error)
    assert sum(len(chunk.tokens) for chunk in chunks) == sent
    assert list(GenerateOutput.joined(again).tokens) == tokens_of(make_request(LONG))


def test_each_part_is_a_sign_of_life() -> None:
    made = Fleet(1, streams=True, bad_streams={0: crawls_in_parts}, silence_s=30.0)

    async def use(pool: EnginePool) -> list[GenerateChunk]:
        return await all_of(pool, make_request(LONG))  # 12 tokens, 20 s each

    assert list(GenerateOutput.joined(made.play(use)).tokens) == tokens_of(make_request(LONG))


@table("bad, count", [({}, 2), ({0: dies_at_once}, 0)])
def test_an_abort_ends_a_stream_that_runs_or_waits_for_an_engine(bad: dict[int, object], count: int) -> None:
    made = Fleet(1, streams=True, bad_streams=bad, never_again=frozenset(bad))  # type: ignore[arg-type]

    async def use(pool: EnginePool) -> list[GenerateChunk]:
        reader = asyncio.create_task(all_of(pool, make_request(LONG)))
        await asyncio.sleep(1.0 if bad else 0.12)
        await pool.abort()
        return await reader

    found = made.play(use)
    assert (sum(len(each.tokens) for each in found), found[-1].finish) == (count, FinishReason.ABORT)


def test_a_reader_that_leaves_ends_the_request() -> None:
    made = Fleet(1, streams=True)

    def leave(chunk: GenerateChunk) -> None:
        assert made.engines[0].running == 1
        raise KeyError("the client is gone")

    async def use(pool: EnginePool) -> None:
        with pytest.raises(KeyError):
            await pool.generate(make_request(LONG), leave)
        assert made.engines[0].running == 0
        assert pool.take() == {}
        reader = asyncio.create_task(all_of(pool, make_request(LONG)))
        await asyncio.sleep(0.01)
        assert made.engines[0].running == 1
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert made.engines[0].running == 0

    made.play(use)
