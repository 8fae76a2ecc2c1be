"""A generator whose model has a calculator: as soon as it writes `8+6=`, the tool goes on with `14`.

The model's tokens are trained on, the tool's are not: nobody should learn to imitate a calculator.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pydantic import Field

from slime_core import Sample, Status, hookimpl
from slime_core.roles import FinishReason, GenerateContext, GeneratorSpec, Settings, Setup, Tokenizer

SLIME_API = "1"
SUM = re.compile(r"(\d{1,9})([+-])(\d{1,9})=$")
"""The end of a text that asks for the tool."""


class CalculatorSettings(Settings):
    """`[generator.calculator]`."""

    max_turns: int = Field(8, ge=1, description="Uses of the tool in one response.")


class Calculator:
    """Alternates between the engine and the tool until the model ends its response."""

    def __init__(self, settings: CalculatorSettings, setup: Setup) -> None:
        """Take the settings."""
        self._max_turns = settings.max_turns

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        """One response, in as many turns as it takes; the token budget is for the model's and the tool's tokens."""
        stop = frozenset(ctx.tokenizer.encode("="))
        prompt = prompt_ids(sample, ctx.tokenizer)
        sample.tokens = prompt
        turns = min(self._max_turns + 1, ctx.max_turns or self._max_turns + 1)
        for turn in range(1, turns + 1):
            left = ctx.sampling.max_new_tokens - sample.response_length
            stops = ctx.sampling.stop_token_ids | (stop if turn < turns else frozenset())
            out = await ctx.generate(sample.tokens, replace(ctx.sampling, max_new_tokens=left, stop_token_ids=stops))
            sample.append_response_tokens(output=out, text=ctx.tokenizer.decode(out.tokens))
            answer = calculate(sample.response) if out.finish is FinishReason.STOP else None
            tokens = ctx.tokenizer.encode(answer) if answer is not None and out.tokens[-1] in stop else []
            if not tokens:
                sample.status = {
                    FinishReason.STOP: Status.COMPLETED,
                    FinishReason.LENGTH: Status.TRUNCATED,
                    FinishReason.ABORT: Status.ABORTED,
                }[out.finish]
                return [sample]
            if sample.response_length + len(tokens) >= ctx.sampling.max_new_tokens:
                break
            sample.append_response_tokens(tokens=tokens, text=answer or "", trainable=False)
        sample.status = Status.TRUNCATED
        return [sample]


def calculate(text: str) -> str | None:
    """The value of the sum that a text ends with, as `8+6=`; None when it ends otherwise."""
    asked = SUM.search(text)
    if asked is None:
        return None
    left, sign, right = asked.groups()
    return str(int(left) + int(right) if sign == "+" else int(left) - int(right))


def prompt_ids(sample: Sample, tokenizer: Tokenizer) -> Sequence[int]:
    """The prompt's ids: a text as it is, messages through the model's chat template."""
    prompt = sample.prompt
    text = prompt if isinstance(prompt, str) else tokenizer.apply_chat_template(prompt)
    return tokenizer.encode(text)


@hookimpl
def slime_generators() -> Iterable[GeneratorSpec]:
    """The generator `calculator`."""
    yield GeneratorSpec("calculator", Calculator, CalculatorSettings, "Responses that may use a calculator")
