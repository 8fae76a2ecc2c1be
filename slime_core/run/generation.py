"""Generate with a model that nothing trains: an engine of its own for a list of prompts, responses in their order.

async for response in responses(Serving(catalog, setup, "local", {}), tokenizer, asked):
    print(response.text)
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from slime_core.catalog import Catalog
from slime_core.errors import ConfigError
from slime_core.roles import (
    Engine,
    EngineSetup,
    GenerateOutput,
    GenerateRequest,
    Launcher,
    LauncherSetup,
    SamplingParams,
    ServesCheckpoint,
    Setup,
    Tokenizer,
)
from slime_core.rollout import response_text
from slime_core.rollout.work import cancel_all
from slime_core.sample import GroupId, Json
from slime_core.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be generated."""

    prompts: Sequence[str]
    """Texts, as the model is to see them."""
    sampling: SamplingParams
    """How."""
    n_samples_per_prompt: int = 1
    """Responses to each prompt."""
    seed: int = 0
    """Every draw derives from it, and from the numbers of prompt and sample."""


@dataclass(frozen=True, slots=True)
class Response:
    """One response."""

    prompt: int
    """Number of its prompt, from 0."""
    sample: int
    """Number among the prompt's, from 0."""
    text: str
    """With or without special tokens and the stop text, as was asked."""
    output: GenerateOutput
    """What the engine answered."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Which engine, and what it serves."""

    catalog: Catalog
    """Where its spec is found."""
    setup: Setup
    """What its factory is given, and more."""
    hf_checkpoint: Path
    """The model directory."""
    engine: str = "local"
    """Its name."""
    settings: Mapping[str, Json] | None = None
    """Of the engine."""


async def responses(serving: Serving, tokenizer: Tokenizer, asked: Asked) -> AsyncIterator[Response]:
    """Start the engine, ask for everything at once, and yield the responses in order, each when it is there.

    Raises:
        ConfigError: the engine cannot serve a model directory.
        SlimeError: the engine's.
    """
    ids = [tokenizer.encode(prompt) for prompt in asked.prompts]
    places = [(prompt, sample) for prompt in range(len(ids)) for sample in range(asked.n_samples_per_prompt)]
    with tempfile.TemporaryDirectory(prefix="slime-generate-") as name:
        launcher = cast(Launcher, _build(serving, "launcher", "local", {}, _launcher_setup(serving, Path(name))))
        try:
            engine = cast(
                Engine,
                _build(
                    serving,
                    "engine",
                    serving.engine,
                    serving.settings or {},
                    _engine_setup(serving, tokenizer, launcher, Path(name)),
                ),
            )
            if not isinstance(engine, ServesCheckpoint):
                raise ConfigError(
                    f"engine {serving.engine!r} gets its weights from a trainer alone (it has no load_checkpoint): "
                    "choose another one with --engine"
                )
            try:
                await engine.start()
                await engine.load_checkpoint()
                tasks = [
                    asyncio.create_task(engine.generate(_request(ids[prompt], prompt, sample, asked)))
                    for prompt, sample in places
                ]
                try:
                    for (prompt, sample), task in zip(places, tasks, strict=True):
                        output = await task
                        yield Response(prompt, sample, response_text(tokenizer, output, asked.sampling), output)
                finally:
                    await cancel_all(tasks)
            finally:
                await engine.close()
        finally:
            await launcher.close()


def _request(ids: Sequence[int], prompt: int, sample: int, asked: Asked) -> GenerateRequest:
    seed = derive_seed(asked.seed, "generate", prompt, sample)
    return GenerateRequest(ids, asked.sampling, seed, GroupId("generate", 0, prompt, prompt))


def _build(serving: Serving, role: str, name: str, settings: Mapping[str, Json], setup: Setup) -> object:
    spec = serving.catalog.find(role, name).spec
    return spec.factory(spec.settings.model_validate(dict(settings)), setup)


def _launcher_setup(serving: Serving, scratch: Path) -> LauncherSetup:
    return LauncherSetup(serving.setup.make, serving.setup.seed, scratch=scratch)


def _engine_setup(serving: Serving, tokenizer: Tokenizer, launcher: Launcher, scratch: Path) -> EngineSetup:
    return EngineSetup(
        serving.setup.make,
        serving.setup.seed,
        hf_checkpoint=serving.hf_checkpoint,
        eos_token_ids=tokenizer.eos_token_ids,
        launcher=launcher,
        scratch=scratch,
    )
