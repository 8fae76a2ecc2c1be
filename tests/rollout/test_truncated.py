"""Truncated: what a budget cut off is left out, an execution as one, and nothing twice."""

from slime_core.roles import FilterContext, Removal
from slime_core.rollout import Truncated
from slime_core.sample import Group, GroupId, Status
from slime_testing.samples import make_sample

NOW = FilterContext(rollout_id=0)


def group_of(*samples: tuple[int | None, Status], draw: int = 0) -> Group:
    """A group of samples by their execution and how they ended."""
    made = []
    for index, (execution, status) in enumerate(samples):
        sample = make_sample(reward=float(index), group_index=draw, index=index)
        sample.rollout_id, sample.status = execution, status
        made.append(sample)
    return Group(GroupId("kit", 0, draw, draw), made)


def test_what_was_cut_off_is_removed_and_nothing_else() -> None:
    done, cut = Status.COMPLETED, Status.TRUNCATED
    groups = [group_of((None, done), (None, cut)), group_of((0, done), (1, done), draw=1), group_of((2, cut), draw=2)]
    assert Truncated()(groups, NOW) == [
        Removal(groups[0].id, 1, "truncated"),
        Removal(groups[2].id, 0, "truncated"),
    ]


def test_of_an_execution_that_was_cut_off_nothing_is_left() -> None:
    done, cut = Status.COMPLETED, Status.TRUNCATED
    group = group_of((7, done), (8, done), (7, cut), (7, done), (8, done))
    assert [each.position for each in Truncated()([group], NOW)] == [0, 2, 3]


def test_what_is_removed_already_is_not_counted_again() -> None:
    group = group_of((0, Status.TRUNCATED), (1, Status.TRUNCATED))
    group.samples[0].remove_sample = True
    assert [each.position for each in Truncated()([group], NOW)] == [1]
