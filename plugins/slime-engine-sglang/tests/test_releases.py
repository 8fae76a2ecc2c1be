"""The engine with older releases of SGLang, which lack some features."""

from pathlib import Path

import pytest
from fake_server_engines import engine_of
from servers import stub_python

from slime_core.errors import ConfigError, ModelError
from slime_core.roles import Extra, GenerateRequest, SamplingParams
from slime_core.sample import SpecInfo
from slime_testing import publish_model

REQUEST = GenerateRequest([5, 6, 7], SamplingParams(4), 0)


@pytest.mark.parametrize("release", ["0.5.9", "0.5.16", "0.5.19", "0.5.23"])
async def test_every_release_reports_weight_versions(tmp_path: Path, release: str) -> None:
    async with engine_of(tmp_path, python=str(stub_python(tmp_path / "python")), server={"release": release}) as engine:
        await engine.start()
        for version in (0, 1):
            await engine.load_weights(publish_model(tmp_path / "model", tmp_path, version), version)
            output = await engine.generate(REQUEST)
            assert (list(output.tokens), output.weight_version) == ([7] * 4, version)
            assert output.extras is not None
            assert output.extras.spec_info == SpecInfo(3, 4, 2, 4)
        calls = (await engine.server.ask("/server_info"))["calls"]
        # Before 0.5.19 SGLang does not list the weight version of each token, so running requests must end first.
        assert ("/pause_generation" in calls) == (release in ("0.5.19", "0.5.23"))


async def test_missing_feature_of_a_release_is_refused(tmp_path: Path) -> None:
    async with engine_of(tmp_path, python=str(stub_python(tmp_path / "python")), server={"release": "0.5.9"}) as engine:
        await engine.start()
        await engine.load_weights(publish_model(tmp_path / "model", tmp_path, 0), 0)
        request = GenerateRequest([5], SamplingParams(4, top_k=4), 0, want=frozenset({Extra.TOP_P_TOKENS}))
        with pytest.raises(ModelError, match=r"cannot return top_p_tokens: its server's SGLang 0.5.9"):
            await engine.generate(request)


async def test_old_server_is_refused_by_its_release(tmp_path: Path) -> None:
    async with engine_of(tmp_path, python=str(stub_python(tmp_path / "python")), server={"release": "0.5.8"}) as engine:
        with pytest.raises(ConfigError, match=r"SGLang 0.5.8 at http://.* is too old"):
            await engine.start()
