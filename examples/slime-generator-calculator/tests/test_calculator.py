import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from slime_generator_calculator.plugin import Calculator, CalculatorSettings, calculate

from slime_core import Sample, Status
from slime_core.roles import FinishReason, GenerateOutput, SamplingParams, Setup
from slime_testing import CharTokenizer, GeneratorContract, PluginPackageContract, ScriptedEngine, make_pending


class TestPackage(PluginPackageContract):
    dist = "slime-generator-calculator"


class TestGenerator(GeneratorContract):
    choice = "slime-generator-calculator/calculator"
    answers = ("8+6=", "14-4=", "so 10")


@dataclass
class Writer:
    """An engine that writes given texts, one a turn, each up to a stop token."""

    texts: list[str]
    prompts: list[str] = field(default_factory=list)

    async def generate(
        self, prompt: Sequence[int], sampling: SamplingParams | None = None, **named: object
    ) -> GenerateOutput:
        assert sampling is not None
        self.prompts.append(CharTokenizer().decode(prompt))
        text = self.texts.pop(0)[: sampling.max_new_tokens]
        end = [0] if text[-1] != "=" and len(text) < sampling.max_new_tokens else []
        tokens = [*CharTokenizer().encode(text), *end]
        stopped = tokens[-1] == 0 or tokens[-1] in sampling.stop_token_ids
        finish = FinishReason.STOP if stopped else FinishReason.LENGTH
        return GenerateOutput(tokens, [-0.5] * len(tokens), finish, 3)


def respond(*texts: str, max_turns: int = 8, budget: int = 40) -> tuple[Sample, Writer]:
    writer = Writer(list(texts))
    context = replace(ScriptedEngine().context(max_new_tokens=budget), generate=writer.generate)
    generator = Calculator(CalculatorSettings(max_turns=max_turns), Setup(None, seed=0))  # type: ignore[arg-type]
    (sample,) = asyncio.run(generator(make_pending(prompt="Q"), context))
    assert not list(sample.problems())
    return sample, writer


def trained(sample: Sample) -> str:
    """The tokens that the loss sees."""
    mask = sample.loss_mask or ()
    kept = [token for token, bit in zip(sample.tokens[sample.prompt_length :], mask, strict=True) if bit]
    return CharTokenizer().decode(kept)


@pytest.mark.parametrize(
    ("text", "value"), [("8+6=", "14"), ("so 14-15=", "-1"), ("8*6=", None), ("8+6", None), ("+6=", None)]
)
def test_the_tool_answers_sums(text: str, value: str | None) -> None:
    assert calculate(text) == value


def test_the_tools_tokens_are_in_the_response_and_not_in_the_loss() -> None:
    sample, writer = respond("8+6=", "\n14-4=", "\nso 10")
    assert sample.response == "8+6=14\n14-4=10\nso 10"
    assert trained(sample) == "8+6=\n14-4=\nso 10"
    assert writer.prompts == ["Q", "Q8+6=14", "Q8+6=14\n14-4=10"]
    assert sample.status is Status.COMPLETED


def test_the_tool_can_be_used_so_many_times_and_no_more() -> None:
    sample, _ = respond("1+1=", "1+1=3 then", max_turns=1)
    assert sample.response == "1+1=21+1=3 then"
    assert trained(sample) == "1+1=1+1=3 then"


def test_the_budget_ends_the_response_before_the_tool_overruns_it() -> None:
    sample, _ = respond("99999+1=", budget=10)
    assert (sample.response, sample.status) == ("99999+1=", Status.TRUNCATED)
