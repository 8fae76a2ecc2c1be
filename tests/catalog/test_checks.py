import copy
import dataclasses
import math
from array import array
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core import Group, NotApplicable, Sample, Score, Status, Unscored
from slime_core.catalog import check_decision, check_generated, check_selection, check_verdict
from slime_core.catalog.checks import check_verdicts
from slime_core.errors import ContractError
from slime_core.roles import Drop, Keep, KeepIfShort, Selection
from slime_testing import make_group, make_sample
from tests.tables import table

ASKED = make_sample(group_index=17, index=3)


def generated(**changed: object) -> Sample:
    return dataclasses.replace(copy.deepcopy(ASKED), **changed)  # type: ignore[arg-type]


def test_sound_samples_are_returned_as_they_are() -> None:
    one, two = generated(rollout_id=5), generated(rollout_id=5)
    returned = [one, two]
    assert check_generated(returned, plugin="agent", sample=ASKED) is returned


def test_a_frozen_sample_is_sound() -> None:
    sample = generated()
    sample.freeze()
    assert isinstance(sample.tokens, array)
    assert check_generated([sample], plugin="agent", sample=ASKED) == [sample]


@table(
    "returned, complaint",
    [
        (ASKED, r"expected list\[Sample\], got Sample .*; return \[sample\]"),
        (None, r"expected list\[Sample\], got NoneType None"),
        ([], "empty list"),
        (["text"], "item 0: expected a Sample, got str 'text'"),
        ([generated(status=Status.PENDING)], "status is still PENDING"),
        ([generated(group_index=1)], "group_index changed from 17 to 1"),
        ([generated(loss_mask=[1, 1])], "loss_mask has 2 entries for 1 response tokens"),
        ([generated(loss_mask=[2])], "loss_mask holds values other than 0 and 1"),
        ([generated(rollout_log_probs=[math.nan])], "rollout_log_probs holds nan; expected finite numbers"),
        ([generated(rollout_log_probs=None)], "trainable tokens have no rollout_log_probs"),
        ([generated(weight_versions=[])], "trainable tokens have no weight version"),
        ([generated(weight_versions=["newest"])], "weight version 'newest' is not a number"),
        ([generated(reward=math.inf)], "reward inf is not finite"),
        ([generated(tokens=[1, 2, 3, 4, 5, 2**31])], "tokens holds 2147483648; expected ints of 32 bits"),
        ([generated(tokens=[1, 2, 3, 4, 5, 6.0])], r"tokens holds 6\.0; expected ints"),
        ([generated(tokens=[1, 2, 3, 4, 5, "6"])], "tokens holds '6'; expected ints"),
        ([generated(tokens=[1, 2, 3, 4, 5, None])], "tokens holds None; expected ints"),
        ([generated(tokens=[1, 2, -3, 4, 5, 6])], "tokens holds -3; token ids are 0 or more"),
        ([generated(tokens=[1, 2, 3, 4, 5, 64])], r"tokens holds 64; the model has 64 tokens \(vocab_size\)"),
        ([generated(loss_mask=[1.0])], r"loss_mask holds 1\.0; expected ints, 0 or 1"),
        ([generated(rollout_log_probs=[-1e300])], r"rollout_log_probs holds -1e\+300; expected finite numbers that a"),
        ([generated(rollout_top_p_token_ids=[2**40])], "rollout_top_p_token_ids holds 1099511627776; expected ints"),
        ([generated(tokens=[7])], "no prompt before the response"),
        ([generated(response_length=9)], "response_length is 9 with 6 tokens in all"),
        ([generated(rollout_id=1), generated(rollout_id=2)], "2 samples must share one rollout_id, found 1, 2"),
        ([generated(), generated()], "must share one rollout_id, found None"),
        ([ASKED, ASKED], "same Sample object twice"),
    ],
)
def test_a_broken_generation_is_refused(returned: object, complaint: str) -> None:
    with pytest.raises(ContractError, match=rf"^generator of plugin agent, sample 3 of group 17.*{complaint}"):
        check_generated(returned, plugin="agent", sample=ASKED, vocab_size=64)


@table("verdict", [Score(1), Score(0.5, {"format": 1.0}), Unscored("no label"), NotApplicable()])
def test_a_verdict_is_returned_as_it_is(verdict: object) -> None:
    assert check_verdict(verdict, plugin="math", sample=ASKED) is verdict


class Finite:
    """Passes for a number in `math.isfinite`, as a tensor does."""

    def __float__(self) -> float:
        return 1.0


class Scalar:
    """A scalar as numpy and torch have them, which the core imports neither of."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __float__(self) -> float:
        return float(self.value)  # type: ignore[arg-type]

    def item(self) -> object:
        if isinstance(self.value, list):
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self.value


def test_numbers_of_every_kind_are_scores() -> None:
    table: list[tuple[Any, float]] = [
        (0.5, 0.5),
        (2, 2.0),
        (True, 1.0),
        (False, 0.0),
        (Scalar(0.25), 0.25),
        (Scalar(True), 1.0),
    ]
    with suppress(ImportError):
        import numpy as np

        table += [(np.float32(0.5), 0.5), (np.int64(2), 2.0), (np.True_, 1.0), (np.array([0.25]), 0.25)]
    found = [check_verdict(each, plugin="math", sample=ASKED) for each, _ in table]
    assert found == [Score(value) for _, value in table]
    parts = check_verdict(Score(Scalar(0.5), {"form": Scalar(1)}), plugin="math", sample=ASKED)  # type: ignore[arg-type, dict-item]
    assert parts == Score(0.5, {"form": 1.0})


def test_a_group_reward_may_return_an_array_of_numbers() -> None:
    class Array:
        def tolist(self) -> list[float]:
            return [0.0, 1.0]

    for returned in ([0.0, True], Array(), [Scalar(0.0), Score(1.0)]):
        assert check_verdicts(returned, plugin="math", samples=[ASKED, ASKED]) == [Score(0.0), Score(1.0)]


@table(
    "returned, complaint",
    [
        (float("nan"), r"expected a finite number, Score, .*, got float nan; return Unscored\(reason\)"),
        (Scalar([1.0, 2.0]), "expected a finite number, Score, .*, got Scalar"),
        (Scalar("1"), "expected a finite number, Score, .*, got Scalar"),
        (None, r"got NoneType None; return Unscored\(reason\)"),
        ("x" * 500, r"got str 'x{76}\.\.\."),
        (Score(Finite()), r"Score 'value': expected a float, got Finite .*; pass float\(value\)"),  # type: ignore[arg-type]
        (Score(1.0, {"format": Finite()}), "Score 'format': expected a float"),  # type: ignore[dict-item]
        (Unscored(""), "Unscored.reason: expected a short text, got str ''"),
        (Unscored("x" * (5 << 20)), "its answer holds 5242880 characters of text"),
        (Score(1.0, {1: 1.0}), "Score.components: expected names that are texts, got int 1"),  # type: ignore[dict-item]
    ],
)
def test_anything_else_is_no_verdict(returned: object, complaint: str) -> None:
    with pytest.raises(ContractError, match=rf"^reward of plugin math, sample 3 of group 17.*{complaint}"):
        check_verdict(returned, plugin="math", sample=ASKED)


def test_a_forgotten_await_is_named() -> None:
    async def reward() -> Score:
        return Score(1.0)

    with pytest.raises(ContractError, match=r"got coroutine .*; an `await` is missing"):
        check_verdict(reward(), plugin="math", sample=ASKED)


@given(st.integers(0, 20), st.integers(0, 20), st.randoms(use_true_random=False))
def test_a_selection_within_its_bounds_is_returned_as_it_is(held: int, want: int, random: object) -> None:
    positions = list(range(held))
    random.shuffle(positions)  # type: ignore[attr-defined]
    selection = Selection(take=positions[:want], drop=tuple(positions[want:]))
    assert check_selection(selection, plugin="newest", held=held, want=want) is selection


@table(
    "returned, complaint",
    [
        ([0, 1], r"expected a Selection, got list \[0, 1\]; return Selection\(take=\[\.\.\.\], drop=\[\.\.\.\]\)"),
        (Selection([0, 1, 2]), "Selection.take holds 3 positions; take at most 2"),
        (Selection([0, 0]), "Selection.take holds position 0 twice"),
        (Selection([0, 5]), "Selection.take holds position 5; positions run from 0 to 4"),
        (Selection([-1]), "Selection.take holds position -1"),
        (Selection([], drop=[7]), "Selection.drop holds position 7"),
        (Selection([1], drop=[1]), "position 1 is both in Selection.take and in Selection.drop"),
        (Selection([True]), r"expected positions of type int, got bool True; use int\(position\)"),
        (Selection([1.0]), "expected positions of type int, got float"),  # type: ignore[list-item]
    ],
)
def test_a_selection_out_of_bounds_is_refused(returned: object, complaint: str) -> None:
    with pytest.raises(
        ContractError, match=rf"^buffer filter of plugin newest, 5 groups held, 2 wanted: .*{complaint}"
    ):
        check_selection(returned, plugin="newest", held=5, want=2)


GROUP: Group = make_group(4)


@table("decision", [Keep(), Drop("zero_std"), KeepIfShort("zero_std")])
def test_a_decision_is_returned_as_it_is(decision: object) -> None:
    assert check_decision(decision, plugin="std", group=GROUP) is decision


@table(
    "returned, complaint",
    [
        (True, r"expected Keep, Drop or KeepIfShort, got bool True; return Keep\(\) or Drop\(reason\)"),
        (Keep, "expected Keep, Drop or KeepIfShort, got type"),
        (Drop(""), "Drop.reason: expected a short text, got str ''"),
        (KeepIfShort(None), "KeepIfShort.reason: expected a short text, got NoneType None"),  # type: ignore[arg-type]
    ],
)
def test_anything_else_is_no_decision(returned: object, complaint: str) -> None:
    with pytest.raises(ContractError, match=rf"^group filter of plugin std, group kit:e0:r4:d4.*{complaint}"):
        check_decision(returned, plugin="std", group=GROUP)
