"""A scripted engine and a tokenizer of characters, for tests of generators: no model, no server.

engine = ScriptedEngine()
ctx = engine.context(max_new_tokens=16)        # what a generator is given
await generator(make_pending(prompt="2 + 2 ="), ctx)
engine.calls                                    # what it asked for and got
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slime_core.roles import FinishReason, GenerateContext, GenerateOutput, SamplingParams
from slime_core.sample import Json, Message

EOS = 0
"""The id that ends a response."""
MAX_NEW_TOKENS = 16
"""The budget of a scripted response."""


class CharTokenizer:
    """One token for each character, its code point; implements `slime_core.roles.Tokenizer`."""

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Ids that end a response."""
        return frozenset({EOS})

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        return [ord(character) for character in text]

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of ids, the end left out or not."""
        return "".join(chr(token) for token in tokens if token != EOS or not skip_special_tokens)

    def apply_chat_template(
        self, messages: Sequence[Message], tools: Json = None, kwargs: Mapping[str, Json] | None = None
    ) -> str:
        """Each message on a line, then the assistant's turn."""
        return "".join(f"{message['role']}: {message['content']}\n" for message in messages) + "assistant: "


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a generator."""

    prompt: tuple[int, ...]
    """Token ids."""
    sampling: SamplingParams
    """How to sample."""
    output: tuple[int, ...]
    """Token ids that came back."""


@dataclass(slots=True)
class ScriptedEngine:
    """Answers every request with one letter that the prompt decides, as often as the script says."""

    finish: FinishReason = FinishReason.STOP
    """Why its responses end; LENGTH fills the budget."""
    length: int = 3
    """Tokens of a response, the stop token not counted, as far as the budget allows."""
    error: Exception | None = None
    """Raised by requests, if given."""
    errors: int | None = None
    """How many requests, from the first one on, raise it; None: all."""
    delay_s: float = 0.001
    """Seconds that a response takes."""
    weight_version: int = 7
    """Version it reports."""
    requests: int = 0
    """How often it was asked."""
    calls: list[Call] = field(default_factory=list)
    """What was answered, in order."""

    async def generate(self, prompt: Sequence[int], sampling: SamplingParams) -> GenerateOutput:
        """Answer one request, after other tasks had a turn."""
        await asyncio.sleep(self.delay_s)
        self.requests += 1
        if self.error is not None and (self.errors is None or self.requests <= self.errors):
            raise self.error
        count = sampling.max_new_tokens if self.finish is FinishReason.LENGTH else self.length
        tokens = [ord("a") + sum(prompt) % 26] * min(count, sampling.max_new_tokens)
        if self.finish is FinishReason.STOP and len(tokens) < sampling.max_new_tokens:
            tokens.append(EOS)
        self.calls.append(Call(tuple(prompt), sampling, tuple(tokens)))
        return GenerateOutput(tokens, [-0.25] * len(tokens), self.finish, self.weight_version)

    def context(self, max_new_tokens: int = MAX_NEW_TOKENS) -> GenerateContext:
        """What a generator is given to talk to this engine."""
        sampling = SamplingParams(max_new_tokens=max_new_tokens)
        return GenerateContext(self.generate, CharTokenizer(), sampling, rollout_id=0, evaluation=False)
