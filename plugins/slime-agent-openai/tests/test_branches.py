import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_agent_openai.samples import LastBranch, Split
from slime_core import Sample
from slime_core.roles import FilterContext, ShapeContext
from slime_core.sample import Group, GroupId


def group(*executions: int | None) -> Group:
    return Group(GroupId("rows", 0, 0, 0), [Sample(index=n, rollout_id=each) for n, each in enumerate(executions)])


def split(made: Group, rewards: list[float | None]) -> list[float | None]:
    (row,) = Split()([made], ShapeContext(0, (tuple(rewards),)))
    return list(row)


def test_reward_is_split_among_samples() -> None:
    assert split(group(7, 7, 8, None), [1.0, 1.0, 0.5, 1.0]) == [0.5, 0.5, 0.5, 1.0]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-10, 10)), max_size=12))
def test_split_parts_sum_to_the_reward(samples: list[tuple[int, float]]) -> None:
    whole = dict(samples)
    parts = split(group(*(each for each, _ in samples)), [whole[each] for each, _ in samples])
    for execution, reward in whole.items():
        shares = [part for part, (each, _) in zip(parts, samples, strict=True) if each == execution]
        assert sum(part or 0.0 for part in shares) == pytest.approx(reward)


def test_last_branch_keeps_the_main_conversation() -> None:
    made = group(7, 7, 8)
    made.samples[0].metadata["main"], made.samples[1].metadata["main"] = False, True
    (removal,) = LastBranch()([made], FilterContext(0))
    assert (removal.group, removal.position, removal.reason) == (made.id, 0, "other_branch")
