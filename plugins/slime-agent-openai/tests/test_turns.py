"""Rewards by turn as columns: where turns begin and end, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_agent_openai.turns import TURN_INDEX, TURN_REWARDS, TurnColumns
from slime_core import Settings, Setup
from slime_core.roles import ShapeContext
from slime_core.sample import Group, GroupId, Json, Sample
from tests.tables import table


def columns_of(rewards: Json, length: int) -> tuple[list[float], list[float]]:
    sample = Sample(index=4, group_index=3, tokens=[1, *[2] * length], response_length=length)
    if rewards is not None:
        sample.metadata[TURN_REWARDS] = rewards
    made = TurnColumns(Settings(), Setup(None, 0))(
        sample, Group(GroupId("made", 0, 0, 0), [sample]), ShapeContext(0, ())
    )  # type: ignore[arg-type]
    assert made.keys() == {TURN_REWARDS, TURN_INDEX}
    return list(made[TURN_REWARDS]), list(made[TURN_INDEX])  # type: ignore[arg-type]


def test_tokens_after_the_last_end_belong_to_the_last_turn() -> None:
    assert columns_of([[1, 1.0], [2, 0.0]], 4) == ([1.0, 0.0, 0.0, 0.0], [1.0, 2.0, 2.0, 2.0])


@table("rewards", [None, []])
def test_sample_without_turn_rewards_is_one_turn(rewards: Json) -> None:
    assert columns_of(rewards, 3) == ([0.0] * 3, [1.0] * 3)
    assert columns_of(rewards, 0) == ([], [])


@table(
    "rewards",
    [
        0.5,
        [0.5],
        [[1, 0.5, 2]],
        [["1", 0.5]],
        [[1, "a"]],
        [[0, 1.0]],
        [[6, 1.0]],
        [[3, 1.0], [3, 1.0]],
        [[1, float("nan")]],
    ],
)
def test_malformed_turn_rewards_are_refused(rewards: Json) -> None:
    with pytest.raises(
        ValueError, match=r"sample 4 of group 3 has metadata 'turn_rewards': .*expected \[\[end, value\]"
    ):
        columns_of(rewards, 5)


@given(st.data())
def test_turn_columns_round_trip(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 30))
    ends = sorted(data.draw(st.sets(st.integers(1, length), min_size=1)))
    values = [float(data.draw(st.integers(-9, 9))) for _ in ends]
    column, index = columns_of([[end, value] for end, value in zip(ends, values, strict=True)], length)
    assert [column[end - 1] for end in ends] == values
    assert sum(column) == sum(values)
    assert index == sorted(index)
    assert [index[end - 1] for end in ends] == [float(turn) for turn in range(1, len(ends) + 1)]
