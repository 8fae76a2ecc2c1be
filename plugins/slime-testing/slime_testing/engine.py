"""A scripted engine and a tokenizer of characters, for tests of generators: no model, no server.

engine = ScriptedEngine()
ctx = engine.context(max_new_tokens=16)        # what a generator is given
await generator(make_pending(prompt="2 + 2 ="), ctx)
engine.calls                                    # what it asked for and got
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
"""The id that ends a response."""
MAX_NEW_TOKENS = 16
"""The budget of a scripted response."""
QUICK_S = 0.001
"""Seconds that a response takes where nothing is said."""


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
        self,
        messages: Sequence[Message],
        tools: Json = None,
        kwargs: Mapping[str, Json] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """Each message on a line, then the assistant's turn."""
        lines = [f"{message['role']}: {message['content']}\n" for message in messages]
        return "".join([*lines, "assistant: "] if add_generation_prompt else lines)


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a generator."""

    prompt: tuple[int, ...]
    """Token ids."""
    sampling: SamplingParams
    """How to sample."""
    output: tuple[int, ...]
    """Token ids that came back."""
    log_probs: tuple[float, ...]
    """Their log-probs."""
    versions: frozenset[int]
    """Versions of the weights that made them."""
    request: int
    """Which request of its sample it was, from 0, those that failed not counted."""
    answered: int
    """Answers that its sample had when it was made."""


@dataclass(slots=True)
class Conversation:
    """The requests of one sample."""

    asked: int = 0
    """How many were made, those that failed not counted."""
    answered: int = 0
    """How many were answered."""

    def forget(self) -> None:
        """Start counting from the first request again."""
        self.asked = self.answered = 0


@dataclass(slots=True)
class ScriptedEngine:
    """Answers with the texts of a script; after those, with one letter, chosen by the prompt, `length` times."""

    finish: FinishReason = FinishReason.STOP
    """Why its responses end; LENGTH fills the budget."""
    length: int = 3
    """Tokens of a response beyond the script, the stop token not counted, as far as the budget allows."""
    error: Exception | None = None
    """Raised by requests, if given."""
    errors: int | None = None
    """How many requests, from the first one on, raise it; None: all."""
    delay_s: float = QUICK_S
    """Seconds that a response takes."""
    sampling: SamplingParams = field(default_factory=lambda: SamplingParams(MAX_NEW_TOKENS))
    """How the run samples."""
    weight_version: int = 7
    """Version it reports."""
    older_version: int | None = None
    """Version that made the first token of each response, where the weights changed meanwhile."""
    max_turns: int | None = None
    """Requests of one sample that it answers."""
    answers: Sequence[str] = ()
    """Texts of a sample's first answers, in order; each ends early at a stop token or with the budget."""
    from_turn: int = 0
    """Request of a sample, from 0, from which `finish`, `error` and `delay_s` hold; those before are well."""
    distinct: bool = False
    """Whether every token has a log-prob of its own, and each request of a sample the next version of the weights."""
    requests: int = 0
    """How often it was asked."""
    running: int = 0
    """Requests under way."""
    calls: list[Call] = field(default_factory=list)
    """What was answered, in order."""
    turns: list[str | None] = field(default_factory=list)
    """Names of the calls, in the order in which they were made."""
    unnamed_at_once: int = 0
    """Most calls under way when one without a name was made."""
    measured: list[tuple[str, float]] = field(default_factory=list)
    """What the generator measured."""
    _failed: int = 0
    _alone: Conversation = field(default_factory=Conversation)

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams | None = None,
        *,
        turn: str | None = None,
        session: str | None = None,
        tell: Callable[[GenerateChunk], None] | None = None,
        media: Mapping[str, Json] | None = None,
        conversation: Conversation | None = None,
    ) -> GenerateOutput:
        """Answer one request, after other tasks had a turn; in two parts if they are listened to.

        Raises:
            LimitError: it was asked more often than `max_turns`.
        """
        talk = conversation or self._alone
        request, answered = talk.asked, talk.answered
        talk.asked += 1
        sampling = self.sampling if sampling is None else sampling
        self.turns.append(turn)
        self.unnamed_at_once = max(self.unnamed_at_once, self.running) if turn is None else self.unnamed_at_once
        self.running += 1
        try:
            await asyncio.sleep(self.delay_s if request >= self.from_turn else QUICK_S)
        finally:
            self.running -= 1
        self.requests += 1
        self._fail(request, talk)
        if self.max_turns is not None and talk.answered >= self.max_turns:
            raise LimitError(f"the sample has made its {self.max_turns} calls of the engine (ctx.max_turns)")
        output = self._answer(prompt, sampling, request)
        talk.answered += 1
        made_by = frozenset(version for _, version in output.versions)
        said = tuple(output.tokens), tuple(output.log_probs)
        self.calls.append(Call(tuple(prompt), sampling, *said, made_by, request, answered))
        if tell is not None:
            tell(GenerateChunk(said[0][:1], said[1][:1], output.weight_version))
            tell(replace(output.as_chunk, tokens=said[0][1:], log_probs=said[1][1:]))
        return output

    def _fail(self, request: int, talk: Conversation) -> None:
        due = self.error is not None and request >= self.from_turn
        if self.error is not None and due and (self.errors is None or self._failed < self.errors):
            self._failed += 1
            talk.asked -= 1
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
        """What a generator is given to talk to this engine about one sample; with None the budget is `sampling`'s."""
        if max_new_tokens is not None:
            self.sampling = replace(self.sampling, max_new_tokens=max_new_tokens)
        talk = Conversation()
        return GenerateContext(
            partial(self.generate, conversation=talk),
            CharTokenizer(),
            self.sampling,
            rollout_id=0,
            evaluation=False,
            max_turns=self.max_turns,
            measure=lambda name, value: self.measured.append((name, value)),
            anew=talk.forget,
        )
