"""One real server from start to end: the only test of `.ci/run` with SGLang itself; `make sglang` runs the others."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from real_server_engines import FILE, PROMPT, channel_of, max_distance, with_real_server
from safetensors.torch import load_file, save_file
from servers import needs_servers
from transformers import AutoModelForCausalLM

from slime_core.roles import FinishReason, GenerateRequest, SamplingParams
from slime_engine_sglang.engine import SglangEngine
from slime_testing import write_tiny_model

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]
REQUEST = GenerateRequest(PROMPT, SamplingParams(24, temperature=0.7, ignore_eos=True), 3)


def test_real_server_smoke_test(tmp_path: Path) -> None:
    needs_servers()
    models = [write_tiny_model(tmp_path / str(version)) for version in range(2)]
    weights = load_file(models[0] / FILE)
    save_file({name: each * 1.5 for name, each in weights.items()}, models[1] / FILE)
    pids = []

    async def use(engine: SglangEngine) -> None:
        pids.append(int(engine.server.title.partition("pid ")[2].partition(")")[0]))
        for version, model in enumerate(models):
            await engine.load_weights(channel_of(models, tmp_path), version)
            hf = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
            requests = [replace(REQUEST, seed=seed) for seed in range(8)]
            outputs = await asyncio.gather(*(engine.generate(request) for request in requests))
            assert len({tuple(output.tokens) for output in outputs}) > 1
            for output in outputs:
                assert (len(output.tokens), output.finish) == (24, FinishReason.LENGTH)
                assert output.weight_version == version
                assert max_distance(hf, PROMPT, output, 0.7) < 1e-5
            again = await asyncio.gather(*(engine.generate(request) for request in requests))
            assert [list(each.log_probs) for each in again] == [list(each.log_probs) for each in outputs]

    with_real_server(models[0], tmp_path, use, deterministic=True)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
