"""Weight updates, and failures at any step of them, with the kit's fake server."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from fake_server_engines import engine_on_fake_server, load

from slime_core.errors import ModelError, WorkerError
from slime_core.roles import GenerateRequest, MemoryTag, SamplingParams
from slime_engine_sglang.engine import SglangEngine
from slime_engine_sglang.server import Table
from slime_testing import publish_model
from slime_testing.fake_engine import Slow
from tests.tables import table

T = TypeVar("T")
PLAIN = GenerateRequest((5, 6, 7), SamplingParams(8), 3)
LONG = replace(PLAIN, sampling=SamplingParams(40, ignore_eos=True))
PAUSE, LOAD, CONTINUE = "/pause_generation", "/update_weights_from_disk", "/continue_generation"
BOTH = frozenset({MemoryTag.WEIGHTS, MemoryTag.KV_CACHE})


class CallRecorder:
    """A server that changes the responses of some calls and records all calls."""

    def __init__(self, engine: SglangEngine, answers: dict[str, Table | Exception]) -> None:
        self._ask, self.answers = engine.server.ask, answers
        self.calls: list[tuple[str, object]] = []
        engine.server.ask = lambda *args, **kwargs: self.ask(*args, **kwargs)  # type: ignore[method-assign]

    async def ask(self, path: str, body: Table | None = None, **kwargs: object) -> Table:
        if path != "/generate":
            self.calls.append((path, (body or {}).get("weight_version")))
        answer = self.answers.get(path)
        if isinstance(answer, Exception):
            raise answer
        return await self._ask(path, body, **kwargs) if answer is None else answer  # type: ignore[arg-type]


@table("new_weights", ["retract", "in_place"])
async def test_running_requests_continue_with_new_weights(tmp_path: Path, new_weights: str) -> None:
    async with engine_on_fake_server(tmp_path, Slow(1.0), new_weights=new_weights) as (engine, server):
        running = asyncio.create_task(engine.generate(LONG))
        await asyncio.sleep(0.3)
        await load(engine, tmp_path, 1)
        output = await running
        assert output.weight_version == 0
        assert output.extras is not None
        assert output.extras.retractions == (new_weights == "retract")
        await engine.generate(PLAIN)
        spans = list(output.versions)
    assert [version for _, version in spans] == [0, 1]
    assert sum(count for count, _ in spans) == 40
    assert not server.paused
    if new_weights == "in_place":
        posted = [(each.path, each.body) for each in server.received if each.method == "POST"]
        assert [body["mode"] for path, body in posted if path == PAUSE] == ["in_place"] * 2
        assert [body["flush_cache"] for path, body in posted if path == LOAD] == [False] * 2
        assert [body["extra_key"] for path, body in posted if path == "/generate"] == ["0", "1"]


@table("new_weights", ["retract", "in_place"])
async def test_failed_update_restores_the_served_weights(tmp_path: Path, new_weights: str) -> None:
    async with engine_on_fake_server(tmp_path, new_weights=new_weights) as (engine, server):
        recorder = CallRecorder(engine, {})
        answers = recorder.answers

        async def failing(path: str, body: Table | None = None, **kwargs: object) -> Table:
            answers.pop(LOAD, None)
            if path == LOAD and body is not None and body["weight_version"] == "1":
                answers[LOAD] = ModelError("no room")
            return await CallRecorder.ask(recorder, path, body, **kwargs)

        recorder.ask = failing  # type: ignore[method-assign]
        with pytest.raises(ModelError, match="no room"):
            await load(engine, tmp_path, 1)
    assert recorder.calls == [(PAUSE, None), (LOAD, "1"), (LOAD, "0"), (CONTINUE, None)]
    assert (server.weight_version, server.paused) == ("0", False)


async def test_overwritten_weights_are_not_restored(tmp_path: Path) -> None:
    async with engine_on_fake_server(tmp_path) as (engine, _):
        CallRecorder(engine, {LOAD: ModelError("no room")})
        await asyncio.to_thread(publish_model, tmp_path / "model", tmp_path, 1)  # unknown to this engine
        with pytest.raises(
            WorkerError, match=r"no room.*the previous weights cannot be reloaded either.*expected version 0"
        ):
            await load(engine, tmp_path, 2)  # overwrites the file of version 0


# --- memory


async def test_memory_release_waits_and_reloads_weights(tmp_path: Path) -> None:
    async with engine_on_fake_server(tmp_path, Slow(0.5)) as (engine, server):
        recorder = CallRecorder(engine, {})
        running = asyncio.create_task(engine.generate(PLAIN))
        await asyncio.sleep(0.1)
        for _ in range(2):
            await engine.release(BOTH)
        assert running.done()
        for _ in range(2):
            await engine.resume(frozenset({MemoryTag.WEIGHTS}))
        await engine.resume(BOTH)
        await asyncio.gather(*(engine.generate(PLAIN) for _ in range(3)))
        calls = recorder.calls
    release, resume = "/release_memory_occupation", "/resume_memory_occupation"
    assert calls == [(PAUSE, None), (release, None), (CONTINUE, None), (resume, None), (resume, None), (LOAD, "0")]
    tags = [each.body["tags"] for each in server.received if each.path in (release, resume)]
    assert tags == [["kv_cache", "weights"], ["weights"], ["kv_cache"]]
    assert server.released == frozenset()
