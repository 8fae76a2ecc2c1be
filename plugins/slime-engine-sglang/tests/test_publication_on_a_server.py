"""New weights on a real server: the sent values are served, requests continue with them, and memory is released."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest
import torch
from fake_server_engines import no_choice
from real_server_engines import FILE, PROMPT, channel_of, distances, max_distance, with_real_server
from safetensors.torch import load_file, save_file
from servers import needs_servers
from transformers import AutoModelForCausalLM

from slime_core.roles import GenerateOutput, GenerateRequest, MemoryTag, SamplingParams, TransportSetup, WeightSlot
from slime_engine_sglang.collective.transports import (
    CollectiveChannel,
    Distributed,
    DistributedSettings,
    Tensor,
    TensorSettings,
)
from slime_engine_sglang.engine import SglangEngine
from slime_testing import write_tiny_model

pytestmark = [pytest.mark.server, pytest.mark.timeout(1200)]
REQUEST = GenerateRequest(PROMPT, SamplingParams(240, ignore_eos=True), 0)
GREEDY = GenerateRequest(PROMPT, SamplingParams(16, temperature=0.0, ignore_eos=True), 0)
WEIGHTS, KV_CACHE = frozenset({MemoryTag.WEIGHTS}), frozenset({MemoryTag.KV_CACHE})


@pytest.fixture(autouse=True)
def _servers() -> None:
    needs_servers()


def test_weights_update_in_place_and_survive_memory_release(tmp_path: Path) -> None:
    models = [write_tiny_model(tmp_path / str(version)) for version in range(2)]
    weights = load_file(models[0] / FILE)
    save_file({name: each * 1.5 for name, each in weights.items()}, models[1] / FILE)
    hfs = [AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval() for model in models]
    channel = channel_of(models, tmp_path)

    async def use(engine: SglangEngine) -> None:
        await engine.load_weights(channel, 0)
        async with aclosing(engine.stream(REQUEST)) as chunks:
            parts = [await anext(chunks)]
            await engine.load_weights(channel, 1)
            parts += [chunk async for chunk in chunks]
        output = GenerateOutput.joined(parts)
        assert output.extras is not None
        assert output.extras.retractions == 0
        (before, _), (after, _) = output.versions
        assert [version for _, version in output.versions] == [0, 1]
        assert before + after == len(output.tokens) == 240
        assert float(distances(hfs[0], PROMPT, output, 1.0)[:before].max()) < 1e-5
        # The KV cache of earlier tokens has the old weights, so the log-probs match neither model; they are finite.
        assert 1e-4 < float(distances(hfs[1], PROMPT, output, 1.0)[before:].max()) < 5
        later = await engine.generate(REQUEST)
        assert later.versions == ((240, 1),)
        assert max_distance(hfs[1], PROMPT, later, 1.0) < 1e-5  # the same prompt, without cached parts
        await check_memory(engine, later)

    with_real_server(models[0], tmp_path, use, new_weights="in_place")


async def check_memory(engine: SglangEngine, before: GenerateOutput) -> None:
    """Releases memory while idle and during a response, twice, in parts and at once. The served weights stay equal."""
    greedy = await engine.generate(GREEDY)
    running = asyncio.create_task(engine.generate(REQUEST))
    await asyncio.sleep(0.1)
    await engine.release(KV_CACHE)
    assert running.done()
    await engine.release(KV_CACHE | WEIGHTS)
    await engine.resume(WEIGHTS)
    await engine.resume(KV_CACHE | WEIGHTS)
    after = await engine.generate(GREEDY)
    assert list(after.tokens) == list(greedy.tokens)
    assert list(after.log_probs) == pytest.approx(list(greedy.log_probs), abs=1e-5)
    assert after.weight_version == before.weight_version


async def opened(kind: str, folder: Path, slots: list[WeightSlot]) -> CollectiveChannel:
    setup = TransportSetup(no_choice, 0, scratch=folder)
    if kind == "tensor":
        return await Tensor(TensorSettings(bucket_mb=0.03), setup).open(slots)
    return await Distributed(DistributedSettings.model_validate({"bucket_mb": 0.03}), setup).open(slots)


@pytest.mark.parametrize("kind", ["distributed", "tensor"])
def test_weights_are_sent_during_a_response(tmp_path: Path, kind: str) -> None:
    model = write_tiny_model(tmp_path / "model")
    weights = load_file(model / FILE)
    hf = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    slots = [WeightSlot(name, tuple(each.shape)) for name, each in weights.items()]

    async def use(engine: SglangEngine) -> None:
        channel = await opened(kind, tmp_path, slots)
        sender = channel.sender(0, 1)

        async def publish(version: int, factor: float) -> None:
            buckets = ((name, factor * each) for name, each in weights.items())
            sending = asyncio.to_thread(sender.send, version, buckets, [0])
            await asyncio.gather(sending, engine.load_weights(channel, version))

        await publish(0, 1.0)
        async with aclosing(engine.stream(REQUEST)) as chunks:
            parts = [await anext(chunks)]
            await publish(1, 1.5)
            parts += [chunk async for chunk in chunks]
        output = GenerateOutput.joined(parts)
        (before, _), (_, _) = output.versions
        assert [version for _, version in output.versions] == [0, 1]
        assert float(distances(hf, PROMPT, output, 1.0)[:before].max()) < 1e-5
        hf.load_state_dict({name: 1.5 * each for name, each in weights.items()})
        assert float(distances(hf, PROMPT, output, 1.0)[before:].max()) < 1e-5
        sender.close()

    with_real_server(model, tmp_path, use)
