"""Talker: an engine that says what a rule makes of the conversation, in real tokens, and notes what it saw and made.

talker = Talker(tokenizer, lambda text, turn: "It is 42.")
context = talker.context(max_new_tokens=200)
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slime_core.data import HfTokenizer
from slime_core.errors import SlimeError
from slime_core.roles import FinishReason, GenerateChunk, GenerateContext, GenerateOutput, SamplingParams
from slime_core.sample import Json


@dataclass(frozen=True, slots=True)
class Asked:
    """One call."""

    prompt: tuple[int, ...]
    sampling: SamplingParams
    output: tuple[int, ...]
    turn: str | None


@dataclass(slots=True)
class Talker:
    """One for a test."""

    tokenizer: HfTokenizer
    says: Callable[[str, int], str]  # Given the prompt's text and how many calls were answered
    log: list[Asked] = field(default_factory=list)  # What was answered
    part: int = 3  # Tokens of a part
    finish: FinishReason | None = None  # How all answers end, if not of themselves
    hold: asyncio.Event | None = None  # What each call waits for, after its first part
    dies: SlimeError | None = None  # What each call raises after its first part
    cancelled: int = 0  # Calls that were given up
    waiting: asyncio.Event = field(default_factory=asyncio.Event)  # Set once a call waits for `hold`
    gave_up: asyncio.Event = field(default_factory=asyncio.Event)  # Set once one was given up

    def context(self, *, max_new_tokens: int = 400, evaluation: bool = False, **named: object) -> GenerateContext:
        """For one sample."""
        sampling = SamplingParams(max_new_tokens)
        return GenerateContext(self.generate, self.tokenizer, sampling, 0, evaluation, **named)  # type: ignore[arg-type]

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams | None = None,
        *,
        turn: str | None = None,
        session: str | None = None,
        on_chunk: Callable[[GenerateChunk], None] | None = None,
        media: Mapping[str, Json] | None = None,
    ) -> GenerateOutput:
        assert sampling is not None
        text = self.says(self.tokenizer.decode(prompt, skip_special_tokens=False), len(self.log))
        tokens, finish = self._made(text, sampling)
        output = GenerateOutput(tokens, [-0.25 - place / 64 for place in range(len(tokens))], finish, 3)
        try:
            for place in range(0, len(tokens), self.part):
                if on_chunk is not None:
                    on_chunk(self._part(output, place))
                await asyncio.sleep(0)
                if self.dies is not None:
                    raise self.dies
                if place == 0 and self.hold is not None:
                    self.waiting.set()
                    await self.hold.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            self.gave_up.set()
            raise
        self.log.append(Asked(tuple(prompt), sampling, tuple(tokens), turn))
        return output

    def _made(self, text: str, sampling: SamplingParams) -> tuple[list[int], FinishReason]:
        tokens = [*self.tokenizer.encode(text), next(iter(self.tokenizer.eos_token_ids))]
        finish = self.finish or FinishReason.STOP
        for count in range(1, len(tokens)):
            if any(stop in self.tokenizer.decode(tokens[:count]) for stop in sampling.stop):
                return tokens[:count], finish
        if len(tokens) > sampling.max_new_tokens:
            return tokens[: sampling.max_new_tokens], FinishReason.LENGTH
        return tokens, finish

    def _part(self, output: GenerateOutput, place: int) -> GenerateChunk:
        end = place + self.part
        last = end >= len(output.tokens)
        return GenerateChunk(output.tokens[place:end], output.log_probs[place:end], 3, output.finish if last else None)
