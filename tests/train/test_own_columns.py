"""The column of a teacher's log-probs that samples bring along; what lacks them, and who may."""

from collections.abc import Callable

import pytest

from slime_core.batching.prepare import Preparation, reward_columns, teacher_column
from slime_core.config import TEACHER_COLUMN
from slime_core.errors import ContractError
from slime_core.roles import Draw, Grain
from slime_core.sample import Group, GroupId, Sample
from tests.tables import table


def taught(log_probs: list[float] | None, *, reward: float | None = 1.0, length: int = 2) -> Sample:
    sample = Sample(index=4, group_index=3, tokens=[1, *[2] * length], response_length=length, reward=reward)
    sample.teacher_log_probs = log_probs
    return sample


def column_of(sample: Sample) -> list[float]:
    draw = Draw([Group(GroupId("made", 0, 0, 0), [sample])], [1.0])
    [group] = Preparation(makers=[teacher_column()]).of(draw, rollout_id=0)
    return list(group.samples[0].columns_T[TEACHER_COLUMN])


def removed() -> Sample:
    sample = taught(None)
    sample.remove_sample = True
    return sample


def test_a_teachers_log_probs_are_a_column_of_tokens() -> None:
    assert column_of(taught([-0.5, -0.25])) == [-0.5, -0.25]
    assert teacher_column().columns == {TEACHER_COLUMN: Grain.TOKEN}
    assert reward_columns(["a"]).columns == {"reward/a": Grain.SAMPLE}


@table("sample", [lambda: taught(None, reward=None), removed, lambda: taught(None, length=0)])
def test_what_is_not_trained_on_needs_no_teacher(sample: Callable[[], Sample]) -> None:
    made = sample()
    assert column_of(made) == [0.0] * made.response_length


def test_a_trained_sample_without_a_teacher_is_named() -> None:
    with pytest.raises(ContractError, match=r"^sample 4 of group 3 has no teacher_log_probs, which use_opd needs"):
        column_of(taught(None))


def test_the_core_answers_for_its_own_columns() -> None:
    with pytest.raises(ContractError, match=r"^batch transform of plugin slime-core, sample 4 .*: 1 values for 2 "):
        column_of(taught([-0.5]))
    told = [(maker.use.name, maker.use.plugin) for maker in (teacher_column(), reward_columns([]))]
    assert told == [(TEACHER_COLUMN, "slime-core"), ("reward_parts", "slime-core")]
