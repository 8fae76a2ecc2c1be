"""An engine with random output, in tokens cut anywhere, that records its requests and responses.

Its output depends on prompt and turn only, as that of a real engine with a seed, so the order of requests does not
matter. All log-probs differ, so each trained token can be identified.
"""

import asyncio
import hashlib
import random
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from slime_core.data import HfTokenizer
from slime_core.roles import EngineExtras, FinishReason, GenerateChunk, GenerateContext, GenerateOutput, SamplingParams
from slime_core.sample import Json

PART = 16  # Tokens of a part of an answer
THOUGHTS = ("", "", "17 + 25 = 42", "Hm.\n\nTwo lines, größer", "  spaces around  ")
TEXTS = ("", "", "Let me see.", "It is 42.\n", "Größe \U0001f30a", "\n\nLate", "a < b", "no <tool_call> at all: 813 km")
ARGUMENTS = (
    '{"a": 17, "b": 25}',
    '{"b":25,"a":17}',
    '{"a":  17,   "b":[1, {"c": null}]}',
    "{ }",
    '{"a": "Zürich", "b": "\\u00fc\\n"}',
    '{"a": 1e3, "b": -0.0}',
)


@dataclass(eq=False, slots=True)
class Made:
    """One call of the engine."""

    prompt: tuple[int, ...]
    output: GenerateOutput
    turn: str
    fate: str = ""  # Why nobody is trained on it; empty: somebody is

    @property
    def whole(self) -> tuple[int, ...]:
        """Prompt and answer."""
        return (*self.prompt, *self.output.tokens)


@dataclass(slots=True)
class RandomEngine:
    """One for a session."""

    tokenizer: HfTokenizer
    log: list[Made] = field(default_factory=list)  # All calls, in the order in which they ended
    dawdles: random.Random | None = None  # How long it takes, if anything decides that
    is_unlike: bool = False  # Whether no two answers say the same
    fates: list[str] = field(default_factory=list)
    """What becomes of the next calls: "" is well, "hang", "broken" or "interrupted"."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)  # Set once there is a call
    hanging: asyncio.Event = field(default_factory=asyncio.Event)  # Set once a call hangs
    gave_up: asyncio.Event = field(default_factory=asyncio.Event)  # Set once one was given up

    def context(self, *, max_new_tokens: int, **named: object) -> GenerateContext:
        """For one sample."""
        sampling = SamplingParams(max_new_tokens)
        return GenerateContext(self.generate, self.tokenizer, sampling, 0, False, restart=self._lose, **named)  # type: ignore[arg-type]

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
        self.asked.set()
        fate = self.fates.pop(0) if self.fates else ""
        output = self._output(prompt, str(turn), sampling)
        made = Made(tuple(prompt), _interrupted(output) if fate == "interrupted" else output, str(turn), fate)
        try:
            for _ in range(self.dawdles.randrange(20) if self.dawdles is not None else 0):
                await asyncio.sleep(0)
            for place in range(0, len(made.output.tokens), PART):
                if on_chunk is not None:
                    on_chunk(_part(made.output, place))
                await asyncio.sleep(0)
                if fate == "hang":
                    self.hanging.set()
                    await asyncio.Event().wait()
                if fate == "broken":
                    raise RuntimeError("500 from the engine")
        except asyncio.CancelledError:
            made.fate = "given up"
            self.gave_up.set()
            raise
        finally:
            self.log.append(made)
        return made.output

    def _lose(self) -> None:
        """What the sample's first session asked was lost with its process, and is asked again."""
        for made in self.log:
            made.fate = made.fate or "lost"

    def _output(self, prompt: Sequence[int], turn: str, sampling: SamplingParams) -> GenerateOutput:
        draw = random.Random(hashlib.blake2b(array("q", prompt).tobytes() + turn.encode(), digest_size=8).digest())
        end = next(iter(self.tokenizer.eos_token_ids))
        unlike = self.tokenizer.encode(f"{draw.randrange(10**9)} ") if self.is_unlike else []
        tokens = [*unlike, *_said(self.tokenizer, draw), end]
        finish = FinishReason.STOP
        if len(tokens) > sampling.max_new_tokens:
            tokens, finish = tokens[: sampling.max_new_tokens], FinishReason.LENGTH
        log_probs = [-20 * draw.random() for _ in tokens]
        version, switch = draw.randint(1, 9), draw.randint(1, max(1, len(tokens)))
        if switch >= len(tokens) or draw.random() < 0.8:
            return GenerateOutput(tokens, log_probs, finish, version)
        spans = ((switch, version), (len(tokens) - switch, version + 1))  # the weights changed meanwhile
        return GenerateOutput(tokens, log_probs, finish, version, extras=EngineExtras(versions=spans))


def _interrupted(output: GenerateOutput) -> GenerateOutput:
    """The first half of an answer."""
    half = len(output.tokens) // 2
    return replace(
        output, tokens=output.tokens[:half], log_probs=output.log_probs[:half], finish=FinishReason.ABORT, extras=None
    )


def _said(tokenizer: HfTokenizer, draw: random.Random) -> list[int]:
    """An answer's tokens: reasoning, words and calls, in pieces that a tokenizer would cut otherwise."""
    pieces = []
    if thought := draw.choice(THOUGHTS):
        pieces += ["<think>", f"\n{thought}\n", "</think>", "\n\n"]
    pieces += [f"{word} " for word in draw.choice(TEXTS).split(" ")]
    for number in range(draw.choice((0, 0, 1, 1, 2, 3))):
        arguments = draw.choice(ARGUMENTS)
        if draw.random() < 0.05:
            arguments = arguments[:-1]  # no JSON
        call = f'{{"name": "{draw.choice(("add", "find"))}",{" " * number}"arguments": {arguments}}}'
        cut = draw.randrange(len(call))
        pieces += ["\n", "<tool_call>", f"\n{call[:cut]}", f"{call[cut:]}\n", "</tool_call>"]
    return [token for piece in pieces for token in _encoded(tokenizer, piece)]


@cache
def _encoded(tokenizer: HfTokenizer, piece: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(piece))


def _part(output: GenerateOutput, place: int) -> GenerateChunk:
    end = place + PART
    finish = output.finish if end >= len(output.tokens) else None
    return GenerateChunk(output.tokens[place:end], output.log_probs[place:end], output.weight_version, finish)
