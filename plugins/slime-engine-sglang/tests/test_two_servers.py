"""A version on two servers, one of which fails at any step: the other serves it, and the first comes back with it."""

import asyncio
from pathlib import Path

import pytest
from on_the_fake import setup_at
from test_weights import CONTINUE, LOAD, PAUSE, Between

from slime_core.catalog.catalog import Used
from slime_core.errors import ModelError, WorkerError
from slime_core.roles import Engine, GenerateRequest, SamplingParams
from slime_core.rollout import EnginePool, Limits
from slime_engine_sglang.engine import SglangEngine
from slime_engine_sglang.publication import sums_of
from slime_engine_sglang.server import Table
from slime_engine_sglang.settings import SglangSettings
from slime_testing import publish_model, write_tiny_model
from slime_testing.fake_engine import FakeEngine

REQUEST = GenerateRequest((5, 6, 7), SamplingParams(8), 3)
LIMITS = Limits(silence_s=60.0, restart_s=40.0, probe_s=30.0, load_s=300.0)
CHECK = "/weights_checker"


def told(sums: dict[str, str]) -> Table:
    return {"success": True, "ranks": [{"checksums": sums}]}


class Told(SglangEngine):
    """The kit's server has no weights, so what it says of them is said for it."""

    sums: dict[str, str]
    says: Between

    async def start(self) -> None:
        await super().start()
        self.says = Between(self, {"/server_info": {"device": "cpu", "tp_size": 1}, CHECK: told(self.sums)})


@pytest.mark.parametrize(
    "error", [WorkerError("it broke off"), pytest.param(ModelError("it refuses"), marks=pytest.mark.long)]
)
async def test_one_that_fails_at_any_step_is_taken_out_and_comes_back_with_the_version_of_the_other(
    tmp_path: Path, error: Exception
) -> None:
    model = write_tiny_model(tmp_path / "model")
    # Each waits a second for its engine to be restarted: all at once.
    steps = (PAUSE, LOAD, CHECK, CONTINUE)
    await asyncio.gather(*(fail_at(step, error, model, tmp_path / step[1:]) for step in steps))


async def fail_at(step: str, error: Exception, model: Path, folder: Path) -> None:
    """Two servers of a model, of which the second does not take version 1."""
    with FakeEngine() as good, FakeEngine() as bad:
        settings = SglangSettings.model_validate({"urls": [good.url, bad.url], "verify_weights": "checksum"})
        sums = sums_of(model / "model.safetensors")
        await asyncio.to_thread(folder.mkdir)
        engines: dict[int, list[Told]] = {0: [], 1: []}

        def make(number: int) -> Used[Engine]:
            scratch = folder / f"engine-{number}-{len(engines[number])}"
            engine = Told(settings, setup_at(scratch, model, number=number, count=2))
            engine.sums = sums
            engines[number].append(engine)
            return Used("sglang", "tests", engine)

        pool = EnginePool(make, 2, LIMITS, probe=REQUEST)
        try:
            await pool.start()
            await pool.load_weights(await asyncio.to_thread(publish_model, model, folder, 0), 0)
            channel = await asyncio.to_thread(publish_model, model, folder, 1)
            sums = sums_of(channel.path_of(1))
            for number in (0, 1):
                engines[number][0].says.answers[CHECK] = told(sums)
            engines[1][0].says.answers[step] = error
            await pool.load_weights(channel, 1)
            assert pool.serving == (0,), step
            assert {(await pool.generate(REQUEST)).weight_version for _ in range(4)} == {1}, step
            while pool.serving != (0, 1):  # noqa: ASYNC110  # nothing tells when
                await asyncio.sleep(0.05)
            answers = await asyncio.gather(*(pool.generate(REQUEST) for _ in range(8)))
            assert {answer.weight_version for answer in answers} == {1}, step
            assert pool.take()["perf/engine/1/requests"] > 0, step
        finally:
            await pool.close()
        assert [server.weight_version for server in (good, bad)] == ["1", "1"], step
        assert [server.paused for server in (good, bad)] == [False, False], step
