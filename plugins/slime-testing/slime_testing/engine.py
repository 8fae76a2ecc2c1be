"""A scripted engine and a character tokenizer, for tests of generators without a model or server.

engine = ScriptedEngine()
ctx = engine.context(max_new_tokens=16)        # a generator's second argument
await generator(make_pending(prompt="2 + 2 ="), ctx)
engine.calls                                    # requests and answers
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from slime_core.errors import LimitError
from slime_core.roles import (
    EngineExtras,
    FinishReason,
    GenerateChunk,
    GenerateContext,
    GenerateOutput,
    SamplingParams,
)
from slime_core.sample import Json, Message

EOS = 0
"""Token id that ends a response."""
MAX_NEW_TOKENS = 16
"""Default token budget of a response."""
QUICK_S = 0.001
"""Default duration of a response, in seconds."""


class CharTokenizer:
    """Tokenizer with one token per character, its code point; implements `slime_core.roles.Tokenizer`."""

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Token ids that end a response."""
        return frozenset({EOS})

    def encode(self, text: str) -> list[int]:
        """Token ids of a text."""
        return [ord(character) for character in text]

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of token ids, with or without the end token."""
        return "".join(chr(token) for token in tokens if token != EOS or not skip_special_tokens)

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Json = None,
        kwargs: Mapping[str, Json] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """Each message on a line, followed by "assistant: "."""
        lines = [f"{message['role']}: {message['content']}\n" for message in messages]
        return "".join([*lines, "assistant: "] if add_generation_prompt else lines)


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a generator, with its answer."""

    prompt: tuple[int, ...]
    """Token ids."""
    sampling: SamplingParams
    """Sampling settings."""
    output: tuple[int, ...]
    """Token ids of the answer."""
    log_probs: tuple[float, ...]
    """Log-probs of the answer."""
    versions: frozenset[int]
    """Weight versions of the answer."""
    request: int
    """Number of this request in its sample, from 0; failed requests do not count."""
    answered: int
    """Number of answers that the sample had received before this request."""


@dataclass(slots=True)
class Conversation:
    """The requests of one sample."""

    sent: int = 0
    """Number of requests, without failed ones."""
    answered: int = 0
    """Number of answers."""

    def reset(self) -> None:
        """Count from the first request again."""
        self.sent = self.answered = 0


@dataclass(slots=True)
class ScriptedEngine:
    """Returns the scripted answers; after them, one letter that depends on the prompt, `length` times."""

    finish: FinishReason = FinishReason.STOP
    """Finish reason of responses; with LENGTH they fill the budget."""
    length: int = 3
    """Number of tokens of an unscripted response, without the stop token; the budget may truncate it."""
    error: Exception | None = None
    """Error that requests raise, if any."""
    errors: int | None = None
    """How many requests, counted from the first, raise `error`; None: all."""
    delay_s: float = QUICK_S
    """Seconds that a response takes."""
    sampling: SamplingParams = field(default_factory=lambda: SamplingParams(MAX_NEW_TOKENS))
    """Sampling settings of the run."""
    weight_version: int = 7
    """Weight version in responses."""
    older_version: int | None = None
    """Version of each response's first token, to simulate a weight update during the response."""
    max_turns: int | None = None
    """Maximum number of requests of one sample."""
    answers: Sequence[str] = ()
    """Texts of a sample's first answers, in order; a stop token or the budget may truncate them."""
    from_turn: int = 0
    """First request of a sample, from 0, to which `finish`, `error` and `delay_s` apply. Earlier ones succeed."""
    distinct: bool = False
    """Whether all log-probs differ, and each request of a sample gets the next weight version."""
    requests: int = 0
    """Number of requests so far."""
    running: int = 0
    """Number of running requests."""
    calls: list[Call] = field(default_factory=list)
    """Answered requests, in order."""
    turns: list[str | None] = field(default_factory=list)
    """Values of `turn` of the requests, in order."""
    unnamed_at_once: int = 0
    """Maximum number of requests that were running when a request without `turn` was sent."""
    measured: list[tuple[str, float]] = field(default_factory=list)
    """Metrics that the generator recorded."""
    _failed: int = 0
    _default_conversation: Conversation = field(default_factory=Conversation)

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams | None = None,
        *,
        turn: str | None = None,
        session: str | None = None,
        on_chunk: Callable[[GenerateChunk], None] | None = None,
        media: Mapping[str, Json] | None = None,
        conversation: Conversation | None = None,
    ) -> GenerateOutput:
        """Answer one request; `on_chunk` receives the answer in two chunks.

        Raises:
            LimitError: the sample made more than `max_turns` requests.
        """
        conversation = conversation or self._default_conversation
        request, answered = conversation.sent, conversation.answered
        conversation.sent += 1
        sampling = self.sampling if sampling is None else sampling
        self.turns.append(turn)
        self.unnamed_at_once = max(self.unnamed_at_once, self.running) if turn is None else self.unnamed_at_once
        self.running += 1
        try:
            await asyncio.sleep(self.delay_s if request >= self.from_turn else QUICK_S)
        finally:
            self.running -= 1
        self.requests += 1
        self._fail(request, conversation)
        if self.max_turns is not None and conversation.answered >= self.max_turns:
            raise LimitError(f"the sample already sent {self.max_turns} requests, the limit of ctx.max_turns")
        output = self._answer(prompt, sampling, request)
        conversation.answered += 1
        versions = frozenset(version for _, version in output.versions)
        tokens, log_probs = tuple(output.tokens), tuple(output.log_probs)
        self.calls.append(Call(tuple(prompt), sampling, tokens, log_probs, versions, request, answered))
        if on_chunk is not None:
            on_chunk(GenerateChunk(tokens[:1], log_probs[:1], output.weight_version))
            on_chunk(replace(output.as_chunk, tokens=tokens[1:], log_probs=log_probs[1:]))
        return output

    def _fail(self, request: int, conversation: Conversation) -> None:
        due = self.error is not None and request >= self.from_turn
        if self.error is not None and due and (self.errors is None or self._failed < self.errors):
            self._failed += 1
            conversation.sent -= 1
            raise self.error

    def _answer(self, prompt: Sequence[int], sampling: SamplingParams, request: int) -> GenerateOutput:
        finish = self.finish if request >= self.from_turn else FinishReason.STOP
        if request < len(self.answers) and finish is not FinishReason.LENGTH:
            tokens = [*map(ord, self.answers[request]), EOS]
        else:
            count = sampling.max_new_tokens if finish is FinishReason.LENGTH else self.length
            tokens = [ord("a") + sum(prompt) % 26] * count + [EOS]
        if finish is FinishReason.STOP:
            stops = (place for place, token in enumerate(tokens, 1) if token in sampling.stop_token_ids)
            tokens = tokens[: next(stops, len(tokens))]
            finish = FinishReason.LENGTH if len(tokens) > sampling.max_new_tokens else finish
        else:
            tokens.pop()
        tokens = tokens[: sampling.max_new_tokens]
        return self._output(tokens, finish, request)

    def _output(self, tokens: list[int], finish: FinishReason, request: int) -> GenerateOutput:
        log_probs = [-0.25 - (request + place / 1024 if self.distinct else 0) for place in range(len(tokens))]
        version = self.weight_version + (request if self.distinct else 0)
        if self.older_version is None or len(tokens) < 2:
            return GenerateOutput(tokens, log_probs, finish, version)
        spans = ((1, self.older_version), (len(tokens) - 1, version))
        return GenerateOutput(tokens, log_probs, finish, self.older_version, extras=EngineExtras(versions=spans))

    def context(self, max_new_tokens: int | None = MAX_NEW_TOKENS) -> GenerateContext:
        """Context of a generator for one sample on this engine; None: the budget of `sampling`."""
        if max_new_tokens is not None:
            self.sampling = replace(self.sampling, max_new_tokens=max_new_tokens)
        conversation = Conversation()
        return GenerateContext(
            partial(self.generate, conversation=conversation),
            CharTokenizer(),
            self.sampling,
            rollout_id=0,
            evaluation=False,
            max_turns=self.max_turns,
            measure=lambda name, value: self.measured.append((name, value)),
            restart=conversation.reset,
        )
