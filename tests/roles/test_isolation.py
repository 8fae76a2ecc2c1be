"""The isolation of a spec: checked at construction, and known without building the reward."""

import functools

import pytest

from slime_core.roles import (
    LIGHT_FIELDS,
    GroupRewardSpec,
    Isolation,
    Reward,
    RewardContext,
    RewardSpec,
    Settings,
    Setup,
    declared_isolation,
    describe_isolation,
    is_async,
)
from slime_core.sample import Sample
from slime_core.score import Score
from tests.tables import table


async def awaited(sample: Sample, ctx: RewardContext) -> Score:
    return Score(1.0)


def plain(sample: Sample, ctx: RewardContext) -> Score:
    return Score(1.0)


class Judge:
    async def __call__(self, sample: Sample, ctx: RewardContext) -> Score:
        return Score(1.0)


class Exact:
    def __call__(self, sample: Sample, ctx: RewardContext) -> Score:
        return Score(1.0)


class BuiltJudge(Judge):
    def __init__(self, settings: Settings, setup: Setup) -> None:
        self.settings = settings


def makes_a_judge(settings: Settings, setup: Setup) -> Judge:
    return Judge()


def makes_a_plain_one(settings: Settings, setup: Setup) -> Exact:
    return Exact()


def makes_either(settings: Settings, setup: Setup) -> Reward:
    return plain


HEAVY = GroupRewardSpec("g", makes_either, isolation=Isolation.PROCESS, memory_mb=99)  # type: ignore[arg-type]


@table(
    "limits, message",
    [
        ({"timeout_s": 0.0}, "timeout_s = 0.0; expected seconds, more than 0"),
        ({"timeout_s": float("nan")}, "timeout_s = nan"),
        ({"max_concurrency": 0}, "max_concurrency = 0; expected 1 or more, or None"),
        ({"memory_mb": 8}, "memory_mb = 8; a worker needs at least 64"),
        ({"fields": ("response", "reponse")}, "a Sample has no reponse; it has apply_chat_template_kwargs"),
        ({"fields": "response"}, "a Sample has no 'response'"),
        ({"isolation": "process"}, "isolation is 'process'; expected one of Isolation.LOOP"),
    ],
)
def test_limits_that_mean_nothing_are_refused(limits: dict[str, object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        RewardSpec("r", makes_either, **limits)  # type: ignore[arg-type]


@table(
    "spec, expected, described",
    [
        (RewardSpec.from_function("r", awaited), Isolation.LOOP, "loop, unprotected"),
        (RewardSpec.from_function("r", plain), Isolation.PROCESS, "process, 30 s, 1024 MiB"),
        (RewardSpec("r", makes_a_judge), Isolation.LOOP, "loop, unprotected"),
        (RewardSpec("r", BuiltJudge), Isolation.LOOP, "loop, unprotected"),
        (RewardSpec("r", makes_a_plain_one, timeout_s=0.5), Isolation.PROCESS, "process, 0.5 s, 1024 MiB"),
        (RewardSpec("r", makes_either), None, "loop, unprotected if it is async def; else process, 30 s, 1024 MiB"),
        (HEAVY, Isolation.PROCESS, "process, 30 s, 99 MiB"),
    ],
)
def test_where_calls_run_is_known_without_building(
    spec: RewardSpec | GroupRewardSpec, expected: Isolation | None, described: str
) -> None:
    assert declared_isolation(spec) is expected
    assert describe_isolation(spec) == described


@table(
    "function, expected",
    [
        *((function, True) for function in (awaited, Judge, Judge(), functools.partial(awaited))),
        *((function, False) for function in (plain, functools.partial(plain), lambda sample, ctx: None)),
    ],
)
def test_async_functions_and_objects_are_recognised(function: object, expected: bool) -> None:
    assert is_async(function) is expected


def test_by_default_no_tokens_travel() -> None:
    assert not {"tokens", "loss_mask", "rollout_log_probs", "teacher_log_probs"} & set(LIGHT_FIELDS)
