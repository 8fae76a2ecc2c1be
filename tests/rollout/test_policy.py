"""Settings of a rollout, and the lives of generators, teachers and judges."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest
from pydantic import ValidationError

from slime_core.config import TEACHES, RolloutArgs
from slime_core.data import HfTokenizer
from slime_core.errors import ConfigError, ModelError, PluginError, WorkerError
from slime_core.roles import (
    EngineExtras,
    FinishReason,
    GenerateContext,
    GenerateOutput,
    GenerateRequest,
    RewardContext,
    SamplingParams,
    Setup,
    Tokenizer,
)
from slime_core.rollout import Lifecycle, RewardOnError, RolloutPolicy, ServedTeacher, SingleTurn
from slime_core.sample import Sample, Status
from slime_core.score import Score, Unscored, Verdict
from slime_testing import write_tiny_model
from slime_train.judge import Judge
from slime_train.settings import JudgeSettings
from tests.rollout.bench import make_bench
from tests.tables import table


def test_what_is_not_chosen_is_as_the_keys_of_the_run_file_say() -> None:
    policy, keys = RolloutPolicy(seed=0, sampling=SamplingParams(1)), RolloutArgs.model_fields
    same = ("over_sampling_batch_size", "max_filter_waves", "max_error_rate", "partial_rollout")
    for name in (*same, "mask_offpolicy_in_partial_rollout"):
        assert getattr(policy, name) == keys[name].default, name
    assert policy.max_staleness == 1  # as the key's description says
    assert policy.reward_on_error is RewardOnError(keys["reward_on_error"].default)


# Lifecycle: a generator is started once, and closed whatever happened.


class Part:
    """What is started and closed; fails as the test says."""

    def __init__(self, start: Exception | None = None, close: Exception | None = None, seconds: float = 0.0) -> None:
        self.calls: list[str] = []
        self._start, self._close, self._seconds = start, close, seconds

    async def start(self) -> None:
        self.calls.append("start")
        await asyncio.sleep(self._seconds)
        if self._start:
            raise self._start

    async def close(self) -> None:
        self.calls.append("close")
        if self._close:
            raise self._close


def test_it_is_started_once_however_many_ask_at_once(caplog: pytest.LogCaptureFixture) -> None:
    part = Part()
    lifecycle = Lifecycle("agent", "slime-agent", part, limit_s=60.0)

    async def go() -> None:
        await lifecycle.close()
        assert part.calls == []
        await asyncio.gather(*(lifecycle.start() for _ in range(5)))
        await lifecycle.start()
        assert part.calls == ["start"]
        await lifecycle.close()
        await lifecycle.close()
        assert part.calls == ["start", "close"]
        await lifecycle.start()

    asyncio.run(go())
    assert part.calls == ["start", "close", "start"]
    assert not caplog.records


def test_a_start_that_fails_is_named_tried_again_and_closed() -> None:
    part = Part(start=OSError("no port"))
    lifecycle = Lifecycle("agent", "slime-agent", part, limit_s=60.0)

    async def go() -> None:
        for _ in range(2):
            with pytest.raises(PluginError, match=r"^start of generator 'agent' of plugin slime-agent raised OSError"):
                await lifecycle.start()
        await lifecycle.close()

    asyncio.run(go())
    assert part.calls == ["start", "start", "close"]


def test_a_start_that_hangs_says_which_limit_to_raise() -> None:
    part = Part(seconds=3600.0)
    lifecycle = Lifecycle("agent", "slime-agent", part, limit_s=0.01)
    with pytest.raises(
        PluginError, match=r"^start of generator 'agent' of plugin slime-agent: .*raise sample_timeout_s"
    ):
        asyncio.run(lifecycle.start())


def test_a_close_that_fails_is_told_and_keeps_nothing_else_open(caplog: pytest.LogCaptureFixture) -> None:
    part = Part(close=OSError("no port"))
    lifecycle = Lifecycle("agent", "slime-agent", part, limit_s=60.0)

    async def go() -> None:
        await lifecycle.start()
        await lifecycle.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(go())
    assert "generator agent of plugin slime-agent could not be closed: no port" in caplog.text


# A served teacher: whom it is asked about, what comes of its answers, and what a failure costs.

ASKED = SamplingParams(0, temperature=0.5)


class Teaches:
    """A model that finds token t worth -t, and has room for so many."""

    tokenizer = cast(Tokenizer, None)

    def __init__(self, room: int = 1000, error: Exception | None = None) -> None:
        self.requests: list[GenerateRequest] = []
        self._room, self._error = room, error

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        self.requests.append(request)
        if self._error is not None:
            raise self._error
        told = [-float(token) for token in request.prompt[1:]] if len(request.prompt) <= self._room else None
        return GenerateOutput((), (), FinishReason.LENGTH, 0, extras=EngineExtras(prompt_log_probs=told))


def made(*tokens: int, response: int = 2, **fields: object) -> Sample:
    return Sample(tokens=list(tokens), response_length=response, status=Status.COMPLETED, **fields)  # type: ignore[arg-type]


def taught(model: Teaches, *samples: Sample) -> Sequence[Sample]:
    asyncio.run(ServedTeacher("teacher", model, ASKED).teach(samples))
    return samples


def test_it_tells_the_log_probs_of_each_response() -> None:
    model = Teaches()
    first, second = taught(model, made(3, 4, 5, 6), made(7, 8, 9, response=1))
    assert (first.teacher_log_probs, second.teacher_log_probs) == ([-5.0, -6.0], [-9.0])
    assert [list(each.prompt) for each in model.requests] == [[3, 4, 5, 6], [7, 8, 9]]
    assert {(each.sampling, each.want) for each in model.requests} == {(ASKED, TEACHES)}


@table(
    "sample",
    [
        Sample(tokens=[3, 4], response_length=1, status=Status.ABORTED),
        Sample(tokens=[3, 4], response_length=1, status=Status.FAILED),
        made(3, 4, response=1, remove_sample=True),
        made(3, 4, response=0),
        made(3, 4, response=1, teacher_log_probs=[-0.25]),
    ],
)
def test_it_is_asked_about_nothing_else(sample: Sample) -> None:
    model, before = Teaches(), sample.teacher_log_probs
    taught(model, sample)
    assert model.requests == []
    assert sample.teacher_log_probs == before


def test_a_sample_that_it_has_no_room_for_is_named_by_its_length() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        taught(Teaches(room=3), made(3, 4, 5, 6))
    [error] = caught.value.exceptions
    assert isinstance(error, ModelError)
    assert "the context of teacher 'teacher' has no room for a sample of 4 tokens" in str(error)


def test_a_rollout_hands_over_samples_that_are_taught() -> None:
    model = Teaches()
    result = asyncio.run(make_bench(teacher=ServedTeacher("teacher", model, ASKED)).scheduler.collect(0, 2))
    samples = [sample for group in result.kept for sample in group.samples]
    assert len(samples) == len(model.requests)
    for sample in samples:
        assert list(sample.teacher_log_probs) == [-float(token) for token in sample.tokens[-sample.response_length :]]


def test_a_sample_that_is_not_taught_has_failed() -> None:
    async def longer_each_time(sample: Sample, ctx: GenerateContext) -> list[Sample]:
        [sample] = await SingleTurn()(sample, ctx)
        if sample.index == 0:
            sample.tokens = [*[1] * 2000, *sample.tokens]
        return [sample]

    generator: Callable[[Sample, GenerateContext], Awaitable[list[Sample]]] = longer_each_time
    teacher = ServedTeacher("teacher", Teaches(room=1000), ASKED)
    ran = make_bench(teacher=teacher, generator=generator, n=3)
    result = asyncio.run(ran.scheduler.collect(0, 1))
    assert result.metrics["rollout/errors/teacher_ModelError"] == 1.0
    assert [len(group.samples) for group in result.kept] == [2]


def test_without_its_engines_the_rollout_ends() -> None:
    teacher = ServedTeacher("teacher", Teaches(error=WorkerError("model-teacher is gone")), ASKED)
    ran = make_bench(teacher=teacher)
    with pytest.raises(WorkerError, match="model-teacher is gone"):
        asyncio.run(ran.scheduler.collect(0, 1))


# The reward `served_judge`: what it asks, and what it makes of the answer.

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
