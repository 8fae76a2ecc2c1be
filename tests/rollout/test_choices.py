"""Choices of rows and of data sets: the row's own, else the set's, else the run's."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from slime_core.errors import ContractError
from slime_core.roles import GenerateContext, RewardContext, SamplingParams
from slime_core.rollout import EvalSet, Scoring, SingleTurn, UsedGenerator, UsedReward, evaluate
from slime_core.sample import Group, GroupId, Sample
from slime_core.score import Score, Verdict
from tests.rollout.bench import Bench, make_bench, reward_use
from tests.tables import table


async def seven(sample: Sample, ctx: RewardContext) -> Verdict:
    return Score(7.0)


async def nine(sample: Sample, ctx: RewardContext) -> Verdict:
    return Score(9.0)


async def hundred(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
    return [Score(100.0)] * len(samples)


async def shouting(sample: Sample, ctx: GenerateContext) -> list[Sample]:
    [made] = await SingleTurn()(sample, ctx)
    made.response = "LOUD"
    return [made]


GROUP_REWARD = UsedReward("hundred", "tests", hundred)
LOUD = UsedGenerator("loud", "tests", shouting)
NAMED = {"seven": reward_use(seven, "seven"), "nine": reward_use(nine, "nine"), "loud": LOUD}


def rows(*changes: dict[str, object]) -> list[Group]:
    """A group of two for each row."""
    return [
        Group(
            GroupId("rows", 0, row, row),
            [
                replace(Sample(group_index=row, index=index, prompt=str(row), source="rows"), **change)  # type: ignore[arg-type]
                for index in range(2)
            ],
        )
        for row, change in enumerate(changes)
    ]


def evaluated(bench: Bench, *sets: EvalSet) -> list[list[Sample]]:
    result = asyncio.run(evaluate(bench.scheduler, sets, rollout_id=0))
    return [list(samples) for samples in result.samples.values()]


def test_a_row_is_scored_by_its_own_reward_alone() -> None:
    groups = rows({}, {"metadata": {"rm_type": "seven"}}, {"metadata": {"rm_type": "seven"}, "custom_rm_path": "nine"})
    bench = make_bench(group_rewards=[GROUP_REWARD], named=NAMED)
    [samples] = evaluated(bench, EvalSet("x", groups, SamplingParams(4)))
    assert [sample.reward for sample in samples] == [101.0, 100.0, 7.0, 7.0, 9.0, 9.0]


def test_a_row_is_run_by_its_own_generator() -> None:
    [samples] = evaluated(
        make_bench(named=NAMED), EvalSet("x", rows({}, {"generate_function_path": "loud"}), SamplingParams(4))
    )
    assert [sample.response == "LOUD" for sample in samples] == [False, False, True, True]


def test_a_set_has_its_own_choices_and_a_row_goes_before_them() -> None:
    groups = rows({}, {"metadata": {"rm_type": "seven"}})
    own = EvalSet("own", groups, SamplingParams(4), LOUD, Scoring([reward_use(nine)]))
    runs = EvalSet("runs", groups, SamplingParams(4))
    bench = make_bench(group_rewards=[GROUP_REWARD], named=NAMED)
    of_own, of_run = evaluated(bench, own, runs)
    assert [sample.reward for sample in of_own] == [9.0, 9.0, 7.0, 7.0]
    assert {sample.response for sample in of_own} == {"LOUD"}
    assert [sample.reward for sample in of_run] == [101.0, 100.0, 7.0, 7.0]


@table(
    "change, says",
    [
        ({"metadata": {"rm_type": "sven"}}, "no choice 'sven'"),
        ({"generate_function_path": "seven"}, "no choice 'seven'"),
        ({"metadata": {"rm_type": 3}}, "names a choice by 3; expected a text"),
    ],
)
def test_a_name_that_no_one_knows_ends_the_rollout(change: dict[str, object], says: str) -> None:
    with pytest.raises(ContractError, match=rf"^sample 0 of group 0, drawn from rows: {says}"):
        evaluated(make_bench(named=NAMED), EvalSet("x", rows(change), SamplingParams(4)))
