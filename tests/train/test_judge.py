"""The reward `served_judge`: what it asks, and what it makes of the answer."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from slime_core.data import HfTokenizer
from slime_core.errors import ConfigError
from slime_core.roles import (
    FinishReason,
    GenerateOutput,
    GenerateRequest,
    RewardContext,
    Setup,
)
from slime_core.sample import Sample
from slime_core.score import Score, Unscored, Verdict
from slime_testing import write_tiny_model
from slime_train.judge import Judge
from slime_train.settings import JudgeSettings
from tests.tables import table

CTX = RewardContext(rollout_id=0, evaluation=False, seed=7)


class Says:
    """A model that says what it is told to, in words of its tokenizer."""

    def __init__(self, tokenizer: HfTokenizer, text: str) -> None:
        self.tokenizer, self.text = tokenizer, text
        self.requests: list[GenerateRequest] = []

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        self.requests.append(request)
        ids = self.tokenizer.encode(self.text)
        return GenerateOutput(ids, [0.0] * len(ids), FinishReason.STOP, 0)


def _make(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)


@pytest.fixture
def tokenizer(tmp_path: Path) -> HfTokenizer:
    return HfTokenizer.load(write_tiny_model(tmp_path))  # its words are t3 to t63


def judged(model: Says, sample: Sample | None = None, **settings: object) -> Verdict:
    given = {"apply_chat_template": False, "verdict": r"(t\d+)", **settings}
    judge = Judge(JudgeSettings.model_validate(given), Setup(_make, 0, models={"judge": model}))
    return asyncio.run(judge(sample or Sample(prompt="t5", response="t6", label="t7"), CTX))


@table(
    "says, scores, expected",
    [
        ("t9", {"t9": 1.0}, Score(1.0)),
        ("t9 t8", {"t9": 1.0, "T8": -0.5}, Score(-0.5)),
        ("t9", {"t8": 1.0}, "the judge came to no verdict"),
        ("", {"t8": 1.0}, "the judge came to no verdict"),
    ],
)
def test_the_last_verdict_is_worth_what_the_settings_say(
    tokenizer: HfTokenizer, says: str, scores: Mapping[str, float], expected: Score | str
) -> None:
    assert judged(Says(tokenizer, "t42"), verdict=r"t(\d+)", scores={}) == Score(42.0), "a number is worth itself"
    found = judged(Says(tokenizer, says), scores=dict(scores))
    if isinstance(expected, str):
        assert isinstance(found, Unscored)
        assert (found.reason, found.detail) == (expected, tokenizer.decode(tokenizer.encode(says)))
    else:
        assert found == expected


@table(
    "sample, expected",
    [
        (Sample(prompt="t5", response="t6", label="t7"), "t5 t6 t7"),
        (Sample(prompt=[{"role": "t8", "content": "t5"}], response="t6", label="t7"), "t8: t5 t6 t7"),
        (Sample(prompt="t5", response="{label}", label="t7"), "t5 {label} t7"),
    ],
)
def test_it_is_asked_about_the_sample(tokenizer: HfTokenizer, sample: Sample, expected: str) -> None:
    model = Says(tokenizer, "t9")
    judged(model, sample, prompt="{prompt} {response} {label}", scores={"t9": 1.0}, temperature=0.5, max_new_tokens=3)
    (request,) = model.requests
    assert list(request.prompt) == tokenizer.encode(expected)
    assert (request.seed, request.sampling.temperature, request.sampling.max_new_tokens) == (7, 0.5, 3)


def test_a_model_that_is_not_served_is_named_when_it_is_asked() -> None:
    judge = Judge(JudgeSettings(), Setup(_make, 0))
    with pytest.raises(ConfigError, match=r"asks the model 'judge', which is not served here"):
        asyncio.run(judge(Sample(), CTX))


@table("pattern, said", [("(", "it is not a pattern"), ("yes", "it has 0 groups; expected one")])
def test_a_pattern_without_a_verdict_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        JudgeSettings(verdict=pattern)


def test_a_label_is_shown_as_it_is_and_missed_only_where_the_prompt_shows_one(tokenizer: HfTokenizer) -> None:
    model = Says(tokenizer, "t9")
    judged(model, Sample(prompt="t5", response="t6", label=0), prompt="t3{label}")
    assert tokenizer.decode(model.requests[0].prompt) == "t30"

    def missed(label: object, prompt: str) -> bool:
        judge = Judge(JudgeSettings.model_validate({"prompt": prompt}), Setup(_make, 0))
        return judge.check_label(Sample(label=label)) is not None  # type: ignore[arg-type]

    assert [missed(None, "{response} {label}"), missed(0, "{response} {label}"), missed(None, "{response}")] == [
        True,
        False,
        False,
    ]
