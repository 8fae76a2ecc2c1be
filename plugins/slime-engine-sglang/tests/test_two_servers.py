"""A version on two servers, one of which fails at any step: the other serves it, and the first comes back with it."""

import asyncio
from pathlib import Path

import pytest
from test_weights import CONTINUE, LOAD, PAUSE, Between

from slime_core.catalog.used import Used
from slime_core.errors import ModelError, WorkerError
from slime_core.roles import EngineSetup, GenerateRequest, SamplingParams
from slime_core.rollout import CheckedEngine, EnginePool, Limits
from slime_core.testing import make_launcher, publish_model, write_tiny_model
from slime_core.testing.fake_engine import FakeEngine
from slime_engine_sglang.checksums import sums_of
from slime_engine_sglang.engine import SglangEngine
from slime_engine_sglang.server import Table
from slime_engine_sglang.settings import SglangSettings

REQUEST = GenerateRequest((5, 6, 7), SamplingParams(8), 3)
LIMITS = Limits(silence_s=60.0, restart_s=40.0, probe_s=30.0, load_s=300.0)
CHECK = "/weights_checker"


def _make(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)


def told(sums: dict[str, str]) -> Table:
    return {"success": True, "ranks": [{"checksums": sums}]}


@pytest.mark.parametrize("error", [WorkerError("it broke off"), ModelError("it refuses")], ids=["broken", "refused"])
@pytest.mark.parametrize("step", [PAUSE, LOAD, CHECK, CONTINUE])
def test_one_that_fails_is_taken_out_and_comes_back_with_the_version_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    model = write_tiny_model(tmp_path / "model")
    sums = sums_of(model / "model.safetensors")
    engines: dict[int, list[SglangEngine]] = {0: [], 1: []}

    async def main(urls: list[str]) -> None:
        settings = SglangSettings.model_validate({"urls": urls, "verify_weights": "checksum"})

        def make(number: int) -> CheckedEngine:
            setup = EngineSetup(
                _make,
                0,
                hf_checkpoint=model,
                eos_token_ids=frozenset({0}),
                launcher=make_launcher(tmp_path),
                scratch=tmp_path / f"engine-{number}-{len(engines[number])}",
                number=number,
                count=2,
            )
            engine = SglangEngine(settings, setup)
            engines[number].append(engine)
            return CheckedEngine(Used("sglang", "tests", engine))

        def says(engine: SglangEngine, sums: dict[str, str]) -> Between:
            """The kit's server has no weights, so what it says of them is said for it."""
            return Between(engine, {"/server_info": {"device": "cpu", "tp_size": 1}, CHECK: told(sums)})

        pool = EnginePool(make, 2, LIMITS, probe=REQUEST)
        await pool.start()
        first = {number: says(engines[number][0], sums) for number in (0, 1)}
        await pool.load_weights(await asyncio.to_thread(publish_model, model, tmp_path, 0), 0)
        channel = await asyncio.to_thread(publish_model, model, tmp_path, 1)
        zeros = sums_of(channel.path_of(1))
        first[0].answers[CHECK] = told(zeros)
        first[1].answers[CHECK] = told(zeros)
        first[1].answers[step] = error
        original = SglangEngine.start

        async def start(self: SglangEngine) -> None:
            await original(self)
            says(self, zeros)

        monkeypatch.setattr(SglangEngine, "start", start)
        try:
            await pool.load_weights(channel, 1)
            assert pool.serving == (0,)
            assert {(await pool.generate(REQUEST)).weight_version for _ in range(4)} == {1}
            while pool.serving != (0, 1):  # noqa: ASYNC110  # nothing tells when
                await asyncio.sleep(0.05)
            answers = await asyncio.gather(*(pool.generate(REQUEST) for _ in range(8)))
            assert {answer.weight_version for answer in answers} == {1}
            assert pool.take()["perf/engine/1/requests"] > 0
        finally:
            await pool.close()

    with FakeEngine() as good, FakeEngine() as bad:
        asyncio.run(main([good.url, bad.url]))
        assert [server.weight_version for server in (good, bad)] == ["1", "1"]
        assert [server.paused for server in (good, bad)] == [False, False]
