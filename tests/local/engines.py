"""A local engine in a loop of its own, serving a model that was written before."""

import asyncio
from collections.abc import Awaitable, Callable, Set
from pathlib import Path
from typing import TypeVar

import torch

from slime_core.local.engine import LocalEngine
from slime_core.local.engine_worker import EngineWorker
from slime_core.local.launcher import LocalLauncher
from slime_core.local.model import load_model
from slime_core.local.settings import LocalEngineSettings
from slime_core.roles import (
    EngineSetup,
    GenerateRequest,
    LauncherSetup,
    SamplingParams,
    Transport,
    WeightChannel,
    WeightSlot,
)
from slime_core.train.shared_buffer import write_version

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
    slots = [WeightSlot(slot.name, slot.shape, slot.offset) for slot in model.layout]
    channel = WeightChannel(Transport.SHARED_BUFFER, scratch / "weights.bin", slots)
    channel.path.write_bytes(bytes(8 * channel.numel))
    write_version(channel, 0, ((slot.name, slot.view(model.flat)) for slot in model.layout))
    write_version(channel, 1, ((slot.name, torch.zeros(slot.shape)) for slot in model.layout))

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
        flags=scratch / "flags",
        float32_matmul_precision="highest",
        bf16=bf16,
        device=device,
    )


def request(prompt: list[int], seed: int, tokens: int = 12) -> GenerateRequest:
    return GenerateRequest(prompt, SamplingParams(max_new_tokens=tokens), seed)
