"""Streaming with the local engine gives the same bits as one answer, also after aborts and cancellations."""

import json
import os
import shutil
import signal
from contextlib import aclosing
from pathlib import Path

import pytest
from local_engines import with_engine

from slime_core.errors import ModelError, WorkerError
from slime_core.processes.limits import descendants
from slime_core.roles import GenerateChunk, GenerateRequest, SamplingParams, WeightChannel
from slime_local.engine import LocalEngine

pytestmark = pytest.mark.timeout(120)
ENDLESS = SamplingParams(8000, ignore_eos=True)
"""Takes seconds."""


@pytest.fixture(scope="module")
def long_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's model with room for a text that takes seconds."""
    directory = tmp_path_factory.mktemp("long") / "hf"
    shutil.copytree(tiny_model, directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 9000}))
    return directory


async def streamed(engine: LocalEngine, asked: GenerateRequest) -> list[GenerateChunk]:
    async with aclosing(engine.stream(asked)) as chunks:
        return [chunk async for chunk in chunks]


def test_stream_errors_equal_generate_errors(long_model: Path, tmp_path: Path) -> None:
    before = set(descendants(os.getpid()))

    async def use(engine: LocalEngine, channel: WeightChannel) -> None:
        with pytest.raises(ModelError, match="no tokens"):
            await streamed(engine, GenerateRequest([], SamplingParams(4), 0))
        async with aclosing(engine.stream(GenerateRequest([5, 6], ENDLESS, 1))) as chunks:
            await anext(chunks)
            for worker in set(descendants(os.getpid())) - before:
                os.kill(worker, signal.SIGKILL)
            with pytest.raises(WorkerError, match="died"):
                _ = [chunk async for chunk in chunks]

    with_engine(long_model, tmp_path, use, workers=1)
