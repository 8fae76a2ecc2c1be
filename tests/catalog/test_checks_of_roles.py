"""What group rewards, sample filters, sources, shapers and transforms may return, and what is said of anything else."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.catalog.checks import (
    blaming,
    check_columns,
    check_drawn,
    check_removals,
    check_shaped,
    check_verdicts,
)
from slime_core.errors import ContractError, DataError, PluginError
from slime_core.roles import LOSS_MASK, Grain, Removal
from slime_core.sample import Group, GroupId, Sample, Status
from slime_core.score import NotApplicable, Score, Unscored
from slime_core.testing.samples import make_group

GROUPS = [make_group(0), make_group(1, rewards=(0.0, 1.0, 0.5))]
SAMPLES = GROUPS[1].samples


def test_one_verdict_a_sample_is_returned_as_it_is() -> None:
    verdicts = [Score(1.0), Unscored("tie"), NotApplicable()]
    assert check_verdicts(verdicts, plugin="ranks", samples=SAMPLES) == verdicts
    assert check_verdicts(tuple(verdicts), plugin="ranks", samples=SAMPLES) == verdicts


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        (None, "expected a list of Score, Unscored or NotApplicable, got NoneType"),
        ("abc", "expected a list of Score, Unscored or NotApplicable, got str"),
        (Score(1.0), "expected a list of Score, Unscored or NotApplicable, got Score"),
        ([Score(1.0)] * 2, "2 verdicts for 3 samples; return one a sample"),
        ([Score(1.0), 0.5, Score(0.0)], r"sample 1 of group 1: expected Score, .*got float 0.5; return Score\(0.5\)"),
        ([Score(1.0), Score(True), None], r"sample 2 of group 1: .*got NoneType"),
        ([Score(1.0), Unscored(""), Score(0.0)], "Unscored.reason: expected a short text"),
    ],
)
def test_other_answers_of_a_group_reward_are_refused(returned: object, complaint: str) -> None:
    with pytest.raises(ContractError, match=rf"^group reward of plugin ranks, group 1.*{complaint}"):
        check_verdicts(returned, plugin="ranks", samples=SAMPLES)


def test_removals_of_known_samples_are_returned() -> None:
    removals = [Removal(GROUPS[0].id, 1, "long"), Removal(GROUPS[1].id, 0, "long")]
    assert check_removals(removals, plugin="short", groups=GROUPS) == removals
    assert check_removals((), plugin="short", groups=GROUPS) == []


FIRST = GROUPS[0].id
UNKNOWN = GroupId("kit", 0, 9, 9)


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        (None, "expected a list of Removal, got NoneType"),
        ([(FIRST, 0)], r"item 0: expected a Removal, got tuple .*return \[Removal\(group.id, position, reason\)\]"),
        ([Removal("kit", 0, "x")], "Removal.group: expected a GroupId, got str 'kit'; use group.id"),  # type: ignore[arg-type]
        ([Removal(UNKNOWN, 0, "x")], "Removal.group kit:e0:r9:d9 is none of the 2 groups it was given"),
        ([Removal(FIRST, 2, "x")], "holds position 2; positions run from 0 to 1"),
        ([Removal(FIRST, -1, "x")], "holds position -1"),
        ([Removal(FIRST, True, "x")], "expected positions of type int, got bool"),
        ([Removal(FIRST, 0, "")], "Removal.reason: expected a short text"),
        ([Removal(FIRST, 0, "x")] * 2, "item 1: removes sample 0 of group kit:e0:r0:d0 twice"),
    ],
)
def test_other_answers_of_a_sample_filter_are_refused(returned: object, complaint: str) -> None:
    with pytest.raises(ContractError, match=rf"^sample filter of plugin short.*{complaint}"):
        check_removals(returned, plugin="short", groups=GROUPS)


def drawn(number: int, **changes: object) -> Group:
    sample = replace(Sample(group_index=number, index=0, prompt="?"), **changes)  # type: ignore[arg-type]
    return Group(GroupId("own", 0, number, number), [sample])


def test_pending_groups_are_returned_as_they_were_drawn() -> None:
    groups = [drawn(0), drawn(1)]
    assert check_drawn(groups, plugin="own", count=2) is groups


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        ((drawn(0), drawn(1)), r"expected list\[Group\], got tuple"),
        ([drawn(0)], "drew 1 groups; 2 were asked for, and sources never end"),
        ([drawn(0), Sample()], "item 1: expected a Group, got Sample"),
        ([drawn(0), drawn(0)], "drew group own:e0:r0:d0 twice"),
        ([drawn(0), Group(GroupId("own", 0, 1, 1), [])], "group own:e0:r1:d1: it has no samples"),
        ([drawn(0), drawn(1, status=Status.COMPLETED)], "sample 0 is COMPLETED; drawn samples are PENDING"),
        ([drawn(0, index=None), drawn(1)], "sample 0 has no index or no group_index"),
    ],
)
def test_other_draws_are_refused(returned: object, complaint: str) -> None:
    with pytest.raises(ContractError, match=rf"^data source of plugin own.*{complaint}"):
        check_drawn(returned, plugin="own", count=2)


ROWS = st.lists(st.lists(st.none() | st.floats(-9, 9), min_size=1, max_size=4), max_size=4)


@given(rows=ROWS)
def test_shaped_rewards_keep_their_form(rows: list[list[float | None]]) -> None:
    groups = [make_group(number, rewards=[0.0] * len(row)) for number, row in enumerate(rows)]
    shaped = [[None if each is None else -each for each in row] for row in rows]
    assert check_shaped(shaped, plugin="negative", groups=groups, before=rows) == shaped


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        (None, "expected a row of rewards a group, got NoneType"),
        ([[0.0, 1.0]], "1 rows for 2 groups; return a row a group"),
        ([[0.0, 1.0], 0.5], "group kit:e0:r1:d1: expected a row of rewards, got float"),
        ([[0.0], [0.0, None, 1.0]], "group kit:e0:r0:d0: 1 rewards for 2 samples"),
        ([[0.0, 1.0], [0.0, 0.0, 1.0]], "sample 1: shaped to 0.0, but it has no reward: leave it None"),
        ([[None, 1.0], [0.0, None, 1.0]], "sample 0: shaped to None, but it has a reward"),
        ([[float("inf"), 1.0], [0.0, None, 1.0]], "sample 0: inf is not finite"),
        ([[True, 1.0], [0.0, None, 1.0]], "sample 0: expected a float, got bool True"),
    ],
)
def test_other_answers_of_a_shaper_are_refused(returned: object, complaint: str) -> None:
    with pytest.raises(ContractError, match=rf"^reward shaper of plugin odd.*{complaint}"):
        check_shaped(returned, plugin="odd", groups=GROUPS, before=[[0.0, 1.0], [0.5, None, 0.5]])


GRAINS = {"turn": Grain.SAMPLE, "place": Grain.TOKEN, LOSS_MASK: Grain.TOKEN}
ANSWER = Sample(group_index=1, index=2, tokens=[1, 2, 3, 4], response_length=3, loss_mask=[1, 0, 1])
GOOD = {"turn": 2, "place": [0, 1, 2], LOSS_MASK: [1, 0, 0]}


def test_a_value_for_every_column_is_returned_as_numbers() -> None:
    made = check_columns(GOOD, plugin="columns", sample=ANSWER, grains=GRAINS)
    assert made["turn"] == 2.0
    assert list(made["place"]) == [0.0, 1.0, 2.0]  # type: ignore[arg-type]
    assert list(made[LOSS_MASK]) == [1.0, 0.0, 0.0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        ([1], "expected a dict of turn, place, loss_mask, got list"),
        ({"turn": 1}, "made columns turn; its spec declares turn, place, loss_mask"),
        (GOOD | {"other": 1}, "made columns turn, place, loss_mask, other"),
        (GOOD | {"turn": None}, "column 'turn': expected a float, got NoneType"),
        (GOOD | {"turn": float("nan")}, "column 'turn': nan is not finite"),
        (GOOD | {"place": 1.0}, "column 'place': expected a number a response token, got float"),
        (GOOD | {"place": [1.0]}, "column 'place': 1 values for 3 response tokens"),
        (GOOD | {"place": [0, 1, "2"]}, "column 'place': expected a float, got str '2'"),
        (GOOD | {LOSS_MASK: [0.5, 0, 0]}, "token 0 is 0.5; a mask is 0 or 1"),
        (GOOD | {LOSS_MASK: [1, 1, 1]}, "token 1 is 1 where the sample's mask is 0; tokens are only taken out"),
    ],
)
def test_other_columns_are_refused(returned: object, complaint: str) -> None:
    with pytest.raises(ContractError, match=rf"^batch transform of plugin columns, sample 2 of group 1.*{complaint}"):
        check_columns(returned, plugin="columns", sample=ANSWER, grains=GRAINS)


def test_what_a_plugin_raises_is_named_and_our_own_errors_pass() -> None:
    with (
        pytest.raises(PluginError, match=r"^buffer of plugin stack raised IndexError: pop from empty"),
        blaming("buffer", "stack"),
    ):
        raise IndexError("pop from empty")
    with pytest.raises(DataError, match=r"^own\.jsonl"), blaming("data source", "own"):
        raise DataError("own.jsonl: gone")
