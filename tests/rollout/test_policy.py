"""Settings of a rollout, and the lives of generators, teachers and judges."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest

from slime_core.config import TEACHER_EXTRAS, RolloutArgs
from slime_core.errors import ModelError, PluginError, WorkerError
from slime_core.roles import (
    EngineExtras,
    FinishReason,
    GenerateContext,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
    Tokenizer,
)
from slime_core.rollout import Lifecycle, RewardOnError, RolloutPolicy, ServedTeacher, SingleTurn
from slime_core.sample import Sample, Status
from tests.rollout.bench import make_bench
from tests.tables import table


def test_what_is_not_chosen_is_as_the_keys_of_the_run_file_say() -> None:
    policy, keys = RolloutPolicy(seed=0, sampling=SamplingParams(1)), RolloutArgs.model_fields
    same = ("over_sampling_batch_size", "max_filter_waves", "max_error_rate", "partial_rollout")
    for name in (*same, "mask_offpolicy_in_partial_rollout"):
        assert getattr(policy, name) == keys[name].default, name
    assert policy.max_staleness == 1  # as the key's description says
    assert policy.reward_on_error is RewardOnError(keys["reward_on_error"].default)


# Lifecycle: a generator is started once, and closed in any case.


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


def test_a_failed_start_is_named_and_retried_and_a_failed_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    part = Part(start=OSError("no port"), close=OSError("busy"))
    lifecycle = Lifecycle("agent", "slime-agent", part, limit_s=60.0)

    async def go() -> None:
        for _ in range(2):
            with pytest.raises(PluginError, match=r"^start of generator 'agent' of plugin slime-agent raised OSError"):
                await lifecycle.start()
        await lifecycle.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(go())
    assert part.calls == ["start", "start", "close"]
    assert "generator agent of plugin slime-agent could not be closed: busy" in caplog.text


def test_a_start_that_hangs_says_which_limit_to_raise() -> None:
    part = Part(seconds=3600.0)
    lifecycle = Lifecycle("agent", "slime-agent", part, limit_s=0.01)
    with pytest.raises(
        PluginError, match=r"^start of generator 'agent' of plugin slime-agent: .*raise sample_timeout_s"
    ):
        asyncio.run(lifecycle.start())


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
        log_probs = [-float(token) for token in request.prompt[1:]] if len(request.prompt) <= self._room else None
        return GenerateOutput((), (), FinishReason.LENGTH, 0, extras=EngineExtras(prompt_log_probs=log_probs))


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
    assert {(each.sampling, each.want) for each in model.requests} == {(ASKED, TEACHER_EXTRAS)}


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
