"""Engines of the bars: the context that a sample is given, whose calls one function answers.

Example:

    async def answer(prompt, sampling, on_chunk): return GenerateOutput(...)
    session = Session(context_of(answer, tokenizer), SessionLimits(), bridge, family)
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from slime_core.data import HfTokenizer
from slime_core.roles import GenerateChunk, GenerateContext, GenerateOutput, SamplingParams
from slime_core.sample import Json

Tell: TypeAlias = Callable[[GenerateChunk], None] | None
"""Who hears parts of an answer."""
Answer: TypeAlias = Callable[[Sequence[int], SamplingParams | None, Tell], Awaitable[GenerateOutput]]
"""Answers a prompt."""


def context_of(answer: Answer, tokenizer: HfTokenizer) -> GenerateContext:
    """A context with room for any number of tokens."""

    async def generate(
        prompt: Sequence[int],
        sampling: SamplingParams | None = None,
        *,
        turn: str | None = None,
        session: str | None = None,
        on_chunk: Tell = None,
        media: Mapping[str, Json] | None = None,
    ) -> GenerateOutput:
        return await answer(prompt, sampling, on_chunk)

    return GenerateContext(generate, tokenizer, SamplingParams(1 << 24), 0, evaluation=False)
