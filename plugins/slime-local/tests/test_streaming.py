"""The local engine in parts: the same bits as whole, whatever happens to the request meanwhile."""

import json
import os
import shutil
import signal
from contextlib import aclosing
from pathlib import Path

import pytest
from local_engines import request, with_engine, worker_of

from slime_core.errors import ModelError, WorkerError
from slime_core.processes.limits import descendants
from slime_core.roles import GenerateChunk, GenerateOutput, GenerateRequest, SamplingParams, WeightChannel
from slime_local import engine_worker
from slime_local.engine import LocalEngine
from slime_local.request_queue import Ended, Flags, Turn

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


def test_a_worker_says_after_a_while_what_the_watched_ones_have(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Flags.create(tmp_path / "flags", workers=1)
    worker = worker_of(tiny_model, tmp_path)
    worker.load_checkpoint()
    asked = {number: request([5, 6], number, tokens=30 + number) for number in range(3)}
    unwatched = worker.decode(Turn(asked))
    assert not unwatched.so_far
    ended, seen = unwatched.ended, list[GenerateChunk]()
    while len(ended) < 3:
        ended |= worker.decode(Turn({})).ended
    monkeypatch.setattr(engine_worker, "TURN_S", 0.0)
    turn = Turn(asked, watched=frozenset({1}))
    again: Ended = {}
    while len(again) < 3:
        answers = worker.decode(turn)
        again |= answers.ended
        assert answers.so_far.keys() == {1} - again.keys()
        seen += answers.so_far.values()
        turn = Turn({}, watched=frozenset({1}) - again.keys())
    assert again == ended
    whole = ended[1]
    assert isinstance(whole, GenerateOutput)
    assert [len(each.tokens) for each in seen] == list(range(1, 31))  # a token a turn, as no time is given
    assert all(each.tokens == list(whole.tokens)[: len(each.tokens)] for each in seen)
    assert all(each.log_probs == list(whole.log_probs)[: len(each.tokens)] for each in seen)
    assert {(each.weight_version, each.finish) for each in seen} == {(0, None)}


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
