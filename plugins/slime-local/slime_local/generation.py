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
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
    StreamsTokens,
    Tokenizer,
)
from slime_core.rollout import response_text
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


CUT = "\ufffd"
"""What a tokenizer makes of bytes that are not a character yet."""


class StreamedText:
    """The text of a response that comes in parts, as far as later parts cannot change it."""

    def __init__(self, tokenizer: Tokenizer, sampling: SamplingParams) -> None:
        self._tokenizer, self._sampling = tokenizer, sampling
        self._stops = () if sampling.no_stop_trim else sampling.stop
        self._chunks: list[GenerateChunk] = []
        self._shown = ""

    def add(self, chunk: GenerateChunk) -> str:
        """The new text after this part; after the last part, all that is left.

        Where more tokens change the text of the earlier ones, the whole text follows on a new line at the end.
        """
        self._chunks.append(chunk)
        if chunk.finish is not None:
            text = response_text(self._tokenizer, GenerateOutput.joined(self._chunks), self._sampling)
            return text[len(self._shown) :] if text.startswith(self._shown) else f"\n{text}"
        tokens = [token for each in self._chunks for token in each.tokens]
        keep = {} if self._sampling.skip_special_tokens else {"skip_special_tokens": False}
        text = before_stops(self._tokenizer.decode(tokens, **keep).rstrip(CUT), self._stops)
        if not text.startswith(self._shown):
            return ""
        new, self._shown = text[len(self._shown) :], text
        return new


def before_stops(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop text, or before an end that a stop text begins with."""
    ends = [len(text)]
    for stop in stops:
        ends += [found] if (found := text.find(stop)) >= 0 else []
        ends += [len(text) - size for size in range(1, len(stop)) if text.endswith(stop[:size])]
    return text[: min(ends)]
