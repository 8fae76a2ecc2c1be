"""Preparation: shaped rewards, columns and masks, ragged as the groups are, down to the ranks' batches."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.batching.prepare import ColumnMaker, Preparation, shaping_metrics
from slime_core.batching.split import split_step
from slime_core.catalog.catalog import Used
from slime_core.errors import ContractError, PluginError
from slime_core.roles import LOSS_MASK, BatchTransformSpec, Draw, Grain, ShapeContext
from slime_core.sample import Group, GroupId, Sample
from tests.tables import table

Rows = Sequence[Sequence[float | None]]


@st.composite
def groups_of(draw: st.DrawFn) -> list[Group]:
    """Ragged groups with masks, removed and unscored samples."""
    groups = []
    for number in range(draw(st.integers(1, 6))):
        samples = []
        for index in range(draw(st.integers(1, 4))):
            sample = Sample(group_index=number, index=index, tokens=[7, number])
            for token in range(draw(st.integers(0, 4))):
                trainable = draw(st.booleans())
                sample.append_response_tokens(
                    tokens=[100 + token],
                    log_probs=[-0.5] if trainable else None,
                    trainable=trainable,
                    weight_version="0" if trainable else None,
                )
            sample.reward = draw(st.none() | st.floats(-4, 4, width=16))
            sample.remove_sample = draw(st.booleans())
            samples.append(sample)
        groups.append(Group(GroupId("made", 0, number, number), samples))
    return groups


def plus(amount: float) -> Used[object]:
    def shape(groups: Sequence[Group], ctx: ShapeContext) -> Rows:
        return [[None if each is None else each + amount for each in row] for row in ctx.rewards]

    return Used(f"plus {amount}", "tests", shape)


def twice(groups: Sequence[Group], ctx: ShapeContext) -> Rows:
    return [[None if each is None else 2 * each for each in row] for row in ctx.rewards]


def identity(sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float | Sequence[float]]:
    """Columns from which each number's sample and token can be told."""
    own = 100 * (sample.group_index or 0) + 10 * (sample.index or 0)
    return {"own": own, "own_T": [own + token for token in range(sample.response_length)]}


def every_other(sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float | Sequence[float]]:
    mask = sample.loss_mask if sample.loss_mask is not None else [1] * sample.response_length
    return {LOSS_MASK: [bit * (place % 2) for place, bit in enumerate(mask)]}


COLUMNS = ColumnMaker(Used("identity", "tests", identity), {"own": Grain.SAMPLE, "own_T": Grain.TOKEN})
MASK = ColumnMaker(Used("every_other", "tests", every_other), {LOSS_MASK: Grain.TOKEN})


def draw_of(groups: Sequence[Group]) -> Draw:
    return Draw(groups, [1.0] * len(groups))


@given(groups=groups_of())
def test_shapers_follow_one_another_and_raw_rewards_stay(groups: list[Group]) -> None:
    raw = [[sample.reward for sample in group.samples] for group in groups]
    preparation = Preparation([plus(1.0), Used("twice", "tests", twice)])  # type: ignore[list-item]
    prepared = preparation.of(draw_of(groups), rollout_id=3)
    assert [[each.reward for each in group.samples] for group in prepared] == [
        [None if each is None else 2 * (each + 1.0) for each in row]  # type: ignore[operator]
        for row in raw
    ]
    assert [[sample.reward for sample in group.samples] for group in groups] == raw
    scored = [each.reward for group in prepared for each in group.samples if each.reward is not None]
    expected = {"rollout/shaped_reward": pytest.approx(sum(scored) / len(scored))} if scored else {}
    assert shaping_metrics(prepared) == expected


@given(groups=groups_of(), ranks=st.integers(1, 3))
def test_columns_travel_with_their_sample_and_token(groups: list[Group], ranks: int) -> None:
    prepared = Preparation(makers=[COLUMNS, MASK]).of(draw_of(groups), rollout_id=3)
    for batch in split_step(prepared, ranks, rollout_id=3):
        assert batch.columns_S.keys() == {"own"}
        assert batch.columns_T.keys() == {"own_T"}
        assert len(batch.columns_S["own"]) == len(batch.rewards_S)
        starts = [0, *accumulate(batch.response_lengths_S)]
        for place, (start, stop) in enumerate(pairwise(starts)):
            own = batch.columns_S["own"][place]
            assert own // 100 == batch.group_index_S[place]
            assert list(batch.columns_T["own_T"][start:stop]) == [own + token for token in range(stop - start)]


@given(groups=groups_of(), ranks=st.integers(1, 3))
def test_a_replaced_mask_decides_what_is_trained_and_counted(groups: list[Group], ranks: int) -> None:
    batches = split_step(Preparation(makers=[MASK]).of(draw_of(groups), rollout_id=3), ranks, rollout_id=3)
    kept = [
        [0 if sample.remove_sample else bit * (place % 2) for place, bit in enumerate(sample.loss_mask or ())]
        for group in groups
        for sample in group.samples
        if sample.reward is not None
    ]
    for batch in batches:
        assert batch.step_tokens == sum(map(sum, kept))
        assert batch.step_samples == sum(map(any, kept))
    assert sum(sum(batch.loss_mask_T) for batch in batches) == sum(map(sum, kept))


def test_a_sample_without_a_reward_has_columns_and_is_left_out() -> None:
    sample = Sample(group_index=0, index=0, tokens=[7])
    sample.append_response_tokens(tokens=[8], log_probs=[-0.5], weight_version="0")
    [group] = Preparation(makers=[COLUMNS]).of(draw_of([Group(GroupId("made", 0, 0, 0), [sample])]), rollout_id=0)
    assert group.samples[0].columns_S == {"own": 0.0}
    [batch] = split_step([group], 1, rollout_id=0)
    assert len(batch.rewards_S) == 0
    assert shaping_metrics([group]) == {}


def two_groups() -> list[Group]:
    """Rewards 1, 2 and 3 in two groups."""
    return [
        Group(
            GroupId("made", 0, number, number),
            [Sample(group_index=number, index=place, reward=reward) for place, reward in enumerate(row)],
        )
        for number, row in enumerate([[1.0, 2.0], [3.0]])
    ]


def test_shapers_and_transforms_are_told_the_rollout_and_the_rewards_so_far() -> None:
    seen: list[tuple[int, list[list[float | None]]]] = []

    def shape(groups: Sequence[Group], ctx: ShapeContext) -> Rows:
        seen.append((ctx.rollout_id, [list(row) for row in ctx.rewards]))
        assert [len(group.samples) for group in groups] == [2, 1]
        return [[None if each is None else -each for each in row] for row in ctx.rewards]

    def transform(sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float]:
        seen.append((ctx.rollout_id, [list(row) for row in ctx.rewards]))
        assert any(each is sample for each in group.samples)
        return {"size": len(group.samples)}

    shaper, maker = Used("shape", "tests", shape), ColumnMaker(Used("made", "tests", transform), {"size": Grain.SAMPLE})
    found = Preparation([shaper, shaper], [maker]).of(draw_of(two_groups()), rollout_id=5)
    raw: list[list[float | None]] = [[1.0, 2.0], [3.0]]
    assert seen == [(5, raw), (5, [[-1.0, -2.0], [-3.0]]), *[(5, raw)] * 3]
    assert [[each.columns_S["size"] for each in group.samples] for group in found] == [[2.0, 2.0], [1.0]]


def test_a_sample_without_a_mask_is_trained_on_all_of_its_response() -> None:
    plain = Sample(group_index=0, index=0, tokens=[7, 8, 9], response_length=2, reward=1.0)
    removed = Sample(group_index=0, index=1, tokens=[7, 8, 9], response_length=2, reward=1.0, remove_sample=True)
    assert plain.loss_mask is None
    [group] = Preparation().of(draw_of([Group(GroupId("made", 0, 0, 0), [plain, removed])]), rollout_id=0)
    assert [list(each.loss_mask) for each in group.samples] == [[1, 1], [0, 0]]


@table("weights", [[1.0], [1.0, 1.0, 1.0]])
def test_a_draw_with_a_weight_too_few_or_too_many_is_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="zip"):
        Preparation().of(Draw(two_groups(), weights), rollout_id=0)


def test_the_culprit_is_named() -> None:
    def raises(*_: object) -> Rows:
        raise KeyError("turn")

    groups = [Group(GroupId("made", 0, 0, 0), [Sample(group_index=0, index=0, reward=1.0)])]
    with pytest.raises(PluginError, match=r"^reward shaper of plugin odd raised KeyError: 'turn'"):
        Preparation([Used("odd", "odd", raises)]).of(draw_of(groups), rollout_id=0)  # type: ignore[arg-type]
    with pytest.raises(PluginError, match=r"^batch transform of plugin odd raised KeyError: 'turn'"):
        Preparation(makers=[ColumnMaker(Used("odd", "odd", raises), {"a": Grain.SAMPLE})]).of(  # type: ignore[arg-type]
            draw_of(groups), rollout_id=0
        )
    short = Used("short", "odd", lambda sample, group, ctx: {})
    with pytest.raises(ContractError, match=r"^batch transform of plugin odd, sample 0 of group 0: made columns none"):
        Preparation(makers=[ColumnMaker(short, {"a": Grain.SAMPLE})]).of(draw_of(groups), rollout_id=0)  # type: ignore[arg-type]
    with pytest.raises(ContractError, match=r"^reward shaper of plugin odd: expected a row of rewards a group"):
        Preparation([Used("odd", "odd", lambda groups, ctx: None)]).of(draw_of(groups), rollout_id=0)  # type: ignore[arg-type]


@table(
    "columns, says",
    [
        ({}, "declare its columns"),
        ({"a b": Grain.TOKEN}, "'a b' is not an identifier"),
        ({LOSS_MASK: Grain.SAMPLE}, r"'loss_mask' is a column of Grain\.TOKEN"),
    ],
)
def test_a_spec_declares_what_it_makes(columns: Mapping[str, Grain], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        BatchTransformSpec("odd", lambda settings, setup: identity, columns=columns)
