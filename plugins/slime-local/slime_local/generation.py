"""Generate with a model that nothing trains: a list of prompts, responses in their order.

async with started(Serving.of(directory), tokenizer) as engine:
    async for response in responses(engine, tokenizer, asked):
        print(response.text)
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from slime_core.aio import cancel_all
from slime_core.roles import (
    Engine,
    FinishReason,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
    StreamsTokens,
    Tokenizer,
)
from slime_core.rollout import StreamedText, response_text
from slime_core.sample import GroupId
from slime_core.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be generated."""

    prompts: Sequence[Sequence[int]]
    """Token ids, as the model is to see them."""
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
class Part:
    """A part of a response."""

    text: str
    """What follows the parts before it."""
    tokens: int
    """Tokens made so far."""
    finish: FinishReason | None
    """Why the response ended; None in all parts but the last."""


async def responses(engine: Engine, tokenizer: Tokenizer, asked: Asked) -> AsyncGenerator[Response, None]:
    """Ask for everything at once, and yield the responses in order, each when it is there.

    Raises:
        SlimeError: the engine's.
    """
    places = [(prompt, sample) for prompt in range(len(asked.prompts)) for sample in range(asked.n_samples_per_prompt)]
    tasks = [asyncio.create_task(engine.generate(_request(prompt, sample, asked))) for prompt, sample in places]
    try:
        for (prompt, sample), task in zip(places, tasks, strict=True):
            output = await task
            yield Response(prompt, sample, response_text(tokenizer, output, asked.sampling), output)
    finally:
        await cancel_all(tasks)


async def text_parts(engine: StreamsTokens, tokenizer: Tokenizer, asked: Asked) -> AsyncGenerator[Part, None]:
    """The first prompt's first response as it is made; its texts, joined, are that of `responses`.

    Raises:
        SlimeError: the engine's.
    """
    text, made = StreamedText(tokenizer, asked.sampling), 0
    async with aclosing(engine.stream(_request(0, 0, asked))) as chunks:
        async for chunk in chunks:
            made += len(chunk.tokens)
            yield Part(text.add(chunk), made, chunk.finish)


def _request(prompt: int, sample: int, asked: Asked) -> GenerateRequest:
    seed = derive_seed(asked.seed, "generate", prompt, sample)
    return GenerateRequest(asked.prompts[prompt], asked.sampling, seed, GroupId("generate", 0, prompt, prompt))
