"""Filters of groups and samples: what they drop, what they take out, and how a broken one is named."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from slime_core.errors import ContractError, PluginError
from slime_core.events import GroupsDone
from slime_core.roles import Drop, FilterContext, GroupFilter, Keep, Removal
from slime_core.sample import Group
from tests.rollout.bench import make_bench
from tests.tables import table

NOW = FilterContext(rollout_id=0)


# Sample filters: what they take out is not trained on, keeps its reward, and is counted; watchers' groups stay.


def first_of_each(groups: Sequence[Group], ctx: FilterContext) -> Sequence[Removal]:
    return [Removal(group.id, 0, "first") for group in groups]


def those_left(groups: Sequence[Group], ctx: FilterContext) -> Sequence[Removal]:
    """What the filters before it left, but for the last of each group."""
    return [
        Removal(group.id, place, "left")
        for group in groups
        for place, sample in enumerate(group.samples[:-1])
        if not sample.remove_sample
    ]


def test_removed_samples_keep_their_reward_and_are_counted() -> None:
    bench = make_bench(sample_filters=[first_of_each, those_left], n=4)
    result = asyncio.run(bench.scheduler.collect(0, 2))
    assert [[sample.remove_sample for sample in group.samples] for group in result.kept] == [
        [True, True, True, False]
    ] * 2
    assert [group.rewards for group in result.kept] == [[1.0, 0.0, 1.0, 0.0]] * 2
    assert result.metrics["rollout/sample_filter/first"] == 2.0
    assert result.metrics["rollout/sample_filter/left"] == 4.0


def test_groups_of_earlier_events_stay_unchanged() -> None:
    bench = make_bench(sample_filters=[first_of_each])
    result = asyncio.run(bench.scheduler.collect(0, 2))
    emitted = [group for event in bench.events if isinstance(event, GroupsDone) for group in event.kept]
    assert [group.id for group in emitted] == [group.id for group in result.kept]
    assert not any(sample.remove_sample for group in emitted for sample in group.samples)
    for before, after in zip(emitted, result.kept, strict=True):
        assert before.samples[1] is after.samples[1]
        assert before.samples[0].tokens is after.samples[0].tokens


def test_all_kept_groups_of_all_waves_are_shown_at_once() -> None:
    seen: list[list[int]] = []

    def look(groups: Sequence[Group], ctx: FilterContext) -> Sequence[Removal]:
        assert ctx.rollout_id == 3
        seen.append([group.id.draw for group in groups])
        return ()

    keep_even: GroupFilter = lambda group, ctx: Drop("odd") if group.id.draw % 2 else Keep()  # noqa: E731
    asyncio.run(make_bench(sample_filters=[look], group_filter=keep_even).scheduler.collect(3, 3))
    assert seen == [[0, 2, 4]]


@table(
    "removals, error, says",
    [
        (lambda group: [Removal(group.id, 9, "far")], ContractError, "holds position 9; positions run from 0 to 1"),
        (lambda group: [Removal(group.id, 0, "a")] * 2, ContractError, "removes sample 0 of group .* twice"),
        (lambda group: None, ContractError, "expected a list of Removal, got NoneType"),
        (lambda group: group.missing, PluginError, "raised AttributeError"),
    ],
)
def test_a_broken_filter_is_named_and_its_groups_go_back(
    removals: Callable[[Group], Sequence[Removal]], error: type[Exception], says: str
) -> None:
    bench = make_bench(sample_filters=[lambda groups, ctx: removals(groups[0])])
    with pytest.raises(error, match=rf"^sample filter of plugin tests.*{says}"):
        asyncio.run(bench.scheduler.collect(0, 2))
    assert [group.id.draw for group in bench.source.back] == [0, 1]
