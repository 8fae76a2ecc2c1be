"""A local engine in a separate event loop, with a model from disk."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence, Set
from pathlib import Path
from typing import TypeVar

import torch

from slime_core.processes.launcher import LocalLauncher
from slime_core.roles import EngineSetup, GenerateRequest, LauncherSetup, SamplingParams, WeightChannel
from slime_local.batch import DecodeResult, StopConditions
from slime_local.decode import Decoder
from slime_local.engine import LocalEngine
from slime_local.engine_worker import EngineWorker
from slime_local.model import LocalModel, load_model
from slime_local.settings import LocalEngineSettings
from tests.channels import opened, sent, slots_of

T = TypeVar("T")


def _make(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)


def with_engine(
    model_dir: Path,
    scratch: Path,
    use: Callable[[LocalEngine, WeightChannel], Awaitable[T]],
    workers: int = 2,
    max_total_tokens: int | None = None,
) -> T:
    """Run `use` with an engine that serves version 0: the model's own weights; version 1 is all zeros."""
    model = load_model(model_dir)
    channel = opened(scratch, slots_of(model))
    sent(channel, 0, ((slot.name, slot.view(model.flat)) for slot in model.layout))
    sent(channel, 1, ((slot.name, torch.zeros(slot.shape)) for slot in model.layout))

    async def main() -> T:
        launcher = LocalLauncher(LauncherSetup(_make, 0, scratch=scratch))
        setup = EngineSetup(
            _make, 0, hf_checkpoint=model_dir, eos_token_ids=frozenset({2}), launcher=launcher, scratch=scratch
        )
        engine = LocalEngine(LocalEngineSettings(workers=workers, max_total_tokens=max_total_tokens), setup)
        try:
            await engine.start()
            await engine.load_weights(channel, 0)
            return await use(engine, channel)
        finally:
            await engine.close()
            await launcher.close()

    return asyncio.run(main())


def worker_of(
    model_dir: Path, scratch: Path, *, eos_token_ids: Set[int] = frozenset(), bf16: bool = False, device: str = "cpu"
) -> EngineWorker:
    """A worker in this process, whose flags are `scratch / "flags"`."""
    return EngineWorker(
        0,
        1,
        hf_checkpoint=model_dir,
        eos_token_ids=frozenset(eos_token_ids),
        number=0,
        flags=scratch / "flags",
        float32_matmul_precision="highest",
        bf16=bf16,
        device=device,
    )


def decode(model: LocalModel, requests: Sequence[GenerateRequest], ends: StopConditions) -> list[DecodeResult]:
    """Sample every request to its end."""
    decoder, results = Decoder(model, ends), dict[int, DecodeResult]()
    decoder.admit(dict(enumerate(requests)))
    while decoder.busy:
        results |= decoder.step()
    return [results[number] for number in range(len(requests))]


def request(prompt: list[int], seed: int, tokens: int = 12) -> GenerateRequest:
    return GenerateRequest(prompt, SamplingParams(max_new_tokens=tokens), seed)
