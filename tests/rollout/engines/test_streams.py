"""Answers in parts through a pool; the clock stands still while anything is to be done."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from slime_core.errors import ContractError, RequestError, WorkerError
from slime_core.roles import FinishReason, GenerateChunk, GenerateOutput, GenerateRequest
from slime_core.rollout import EnginePool
from tests.rollout.engines.fleet import Fleet, Streaming, make_request, tokens_of
from tests.tables import table

FOR_EVER_S = 1e9
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


async def crawls(engine: Streaming, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
    async for chunk in engine.parts(request, pace=20.0):
        yield chunk


async def turns_stale(engine: Streaming, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
    yield GenerateChunk([7], [-0.5], engine.version)
    yield GenerateChunk([8], [-0.5], engine.version - 1)


async def is_stale(engine: Streaming, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
    yield GenerateChunk([8], [-0.5], engine.version - 1)


async def talks_nonsense(engine: Streaming, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
    yield GenerateChunk([7], [float("nan")], engine.version)


async def turns_to_nonsense(engine: Streaming, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
    yield GenerateChunk([7], [-0.5], engine.version)
    yield GenerateChunk([8, 9], [-0.5], engine.version)


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
def test_what_fails_before_its_first_part_is_asked_elsewhere(behaviour: object, cause: str) -> None:
    made = Fleet(2, streams=True, bad_streams={0: behaviour})

    async def use(pool: EnginePool) -> tuple[list[GenerateChunk], dict[str, float]]:
        return await all_of(pool, make_request(LONG)), pool.take()

    chunks, metrics = made.play(use)
    assert list(GenerateOutput.joined(chunks).tokens) == tokens_of(make_request(LONG))
    assert metrics[f"perf/engine/quarantined/{cause}"] == metrics["perf/engine/asked_again"] == 1


@table("behaviour, cause, told", [(dies_midway, "died", 6), (falls_silent, "hung", 1), (turns_stale, "stale", 1)])
def test_what_fails_after_a_part_was_told_is_asked_of_nobody_else(behaviour: object, cause: str, told: int) -> None:
    made = Fleet(2, streams=True, bad_streams={0: behaviour}, silence_s=30.0)

    async def use(pool: EnginePool) -> tuple[list[GenerateChunk], RequestError, list[GenerateChunk]]:
        chunks: list[GenerateChunk] = []
        with pytest.raises(RequestError) as caught:
            await pool.generate(make_request(LONG), chunks.append)
        assert pool.take()[f"perf/engine/quarantined/{cause}"] == 1
        return chunks, caught.value, await all_of(pool, make_request(LONG))

    chunks, error, again = made.play(use)
    assert f"engine 0 {cause} after {told} tokens of its answer" in str(error)
    assert "ask again from the beginning" in str(error)
    assert sum(len(chunk.tokens) for chunk in chunks) == told
    assert list(GenerateOutput.joined(again).tokens) == tokens_of(make_request(LONG))


def test_nonsense_after_a_part_is_refused_and_not_told() -> None:
    made = Fleet(2, streams=True, bad_streams={0: turns_to_nonsense})

    async def use(pool: EnginePool) -> list[GenerateChunk]:
        chunks: list[GenerateChunk] = []
        with pytest.raises(ContractError, match=r"\(stream\): 1 log_probs for 2 tokens"):
            await pool.generate(make_request(LONG), chunks.append)
        return chunks

    assert [list(chunk.tokens) for chunk in made.play(use)] == [[7]]


def test_each_part_is_a_sign_of_life() -> None:
    made = Fleet(1, streams=True, bad_streams={0: crawls}, silence_s=30.0)

    async def use(pool: EnginePool) -> list[GenerateChunk]:
        return await all_of(pool, make_request(LONG))  # 12 tokens, 20 s each

    assert list(GenerateOutput.joined(made.play(use)).tokens) == tokens_of(make_request(LONG))


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


def test_an_abort_ends_a_stream_with_what_there_is() -> None:
    made = Fleet(1, streams=True)

    async def use(pool: EnginePool) -> list[GenerateChunk]:
        reader = asyncio.create_task(all_of(pool, make_request(LONG)))
        await asyncio.sleep(0.12)
        await pool.abort()
        return await reader

    output = GenerateOutput.joined(made.play(use))
    assert (len(output.tokens), output.finish) == (2, FinishReason.ABORT)


def test_an_abort_ends_a_stream_that_waits_for_an_engine() -> None:
    made = Fleet(1, streams=True, bad_streams={0: dies_at_once}, never_again=frozenset({0}))

    async def use(pool: EnginePool) -> list[GenerateChunk]:
        reader = asyncio.create_task(all_of(pool, make_request(LONG)))
        await asyncio.sleep(1.0)
        await pool.abort()
        return await reader

    assert made.play(use) == [GenerateChunk((), (), 0, FinishReason.ABORT)]
