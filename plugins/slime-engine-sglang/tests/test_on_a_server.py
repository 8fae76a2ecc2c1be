"""Checks on a real server that the kit does not have: Hugging Face's log-probs, experts, death of a process."""

import asyncio
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from real_server_engines import MOE, PROMPT, max_distance, with_real_server
from servers import needs_routers, needs_servers
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen3MoeForCausalLM

from slime_core.errors import WorkerError
from slime_core.roles import Extra, FinishReason, GenerateRequest, SamplingParams
from slime_engine_sglang.engine import SglangEngine
from slime_testing import publish_model, write_tiny_model

pytestmark = [pytest.mark.server, pytest.mark.timeout(1200)]
TEMPERATURE = 0.7


@pytest.fixture(autouse=True)
def _servers() -> None:
    needs_servers()


async def check_stops(engine: SglangEngine) -> None:
    """A stop text ends a response with the token that completes it; the response keeps the token."""
    greedy = SamplingParams(32, temperature=0.0, ignore_eos=True)
    free = list((await engine.generate(GenerateRequest(PROMPT, greedy, 0))).tokens)
    stop = next(token for token in free if token >= 10)  # a text of two digits is no prefix of another token's text
    output = await engine.generate(GenerateRequest(PROMPT, replace(greedy, stop=(f"t{stop}",)), 0))
    assert (list(output.tokens), output.finish) == (free[: free.index(stop) + 1], FinishReason.STOP)
    assert output.matched == f"t{stop}"


async def check_changed_draws(engine: SglangEngine, hf: PreTrainedModel) -> None:
    """The log-probs are the model's own, although the settings change the sampling distribution."""
    plain = SamplingParams(24, ignore_eos=True)
    for changes in (
        {"logit_bias": {20: 3.0, 30: -100.0}},
        {"frequency_penalty": 1.5, "presence_penalty": 1.0, "repetition_penalty": 1.5},
        {"min_new_tokens": 20, "stop_token_ids": frozenset(range(10, 40)), "ignore_eos": False},
    ):
        output = await engine.generate(GenerateRequest(PROMPT, replace(plain, **changes), 0))  # type: ignore[arg-type]
        assert len(output.tokens) >= 20
        assert max_distance(hf, PROMPT, output, 1.0) < 1e-5


def test_log_probs_match_hugging_face_and_scheduler_death_is_noticed(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model")
    hf = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    sampling = SamplingParams(32, TEMPERATURE, top_p=0.9, ignore_eos=True)

    async def use(engine: SglangEngine) -> None:
        await engine.load_weights(await asyncio.to_thread(publish_model, model, tmp_path, 0), 0)
        running = [engine.generate(GenerateRequest(PROMPT[:length], sampling, length)) for length in (1, 3, 5)]
        for length, output in zip((1, 3, 5), await asyncio.gather(*running), strict=True):
            assert max_distance(hf, PROMPT[:length], output, TEMPERATURE) < 1e-5
        await check_stops(engine)
        await check_changed_draws(engine, hf)
        scheduler = next(pid for pid in pids() if name_of(pid).startswith("sglang::schedul"))
        running = asyncio.create_task(engine.generate(GenerateRequest(PROMPT, SamplingParams(240, ignore_eos=True), 0)))
        await asyncio.sleep(0.2)
        os.kill(scheduler, signal.SIGKILL)
        killed = time.monotonic()
        with pytest.raises(WorkerError, match="has lost its process"):
            await engine.watch()
        with pytest.raises(WorkerError, match="has lost its process"):
            await running
        assert time.monotonic() - killed < 20  # SGLang itself takes a minute

    with_real_server(model, tmp_path, use)


@pytest.mark.parametrize("router", [None, "smg"])
def test_routed_experts_match_hugging_face(tmp_path: Path, router: str | None) -> None:
    model = write_tiny_model(tmp_path / "model")
    torch.manual_seed(0)
    hf = Qwen3MoeForCausalLM(MOE).eval()
    hf.save_pretrained(model)
    request = GenerateRequest(PROMPT, SamplingParams(12, ignore_eos=True), 0, want=frozenset({Extra.ROUTED_EXPERTS}))

    async def check(engine: SglangEngine) -> None:
        output = await engine.generate(request)
        assert max_distance(hf, PROMPT, output, 1.0) < 1e-5
        assert output.extras is not None
        assert output.extras.routed_experts is not None
        layers, top_k = MOE.num_hidden_layers, MOE.num_experts_per_tok
        experts = torch.tensor(output.extras.routed_experts).view(-1, layers, top_k)
        tokens = torch.tensor([[*PROMPT, *output.tokens]])
        with torch.no_grad():
            logits = hf(tokens, output_router_logits=True).router_logits
        expected = torch.stack([each[:-1].topk(top_k).indices for each in logits], dim=1)
        assert experts.sort(-1).values.tolist() == expected.sort(-1).values.tolist()

    async def use(engine: SglangEngine) -> None:
        await engine.load_checkpoint()
        await check(engine)
        while router is not None and engine.fleet.router_for(engine.server, request) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await check(engine)

    through = router and {"use": router, "python": needs_routers()}
    with_real_server(model, tmp_path, use, want=frozenset({Extra.ROUTED_EXPERTS}), router=through)


def pids() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
