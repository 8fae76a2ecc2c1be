"""What plugins may return to a run, and what is said of anything else."""

import copy
import math
from array import array
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.batching.prepare import check_columns, check_shaped, check_step_result
from slime_core.catalog import check_decision, check_generated, check_selection, check_verdict
from slime_core.catalog.checks import check_drawn, check_output, check_removals, check_verdicts, plugin_errors
from slime_core.errors import ContractError, DataError, PluginError
from slime_core.roles import (
    LOSS_MASK,
    Drop,
    EngineExtras,
    Extra,
    FinishReason,
    GenerateOutput,
    GenerateRequest,
    Grain,
    Keep,
    KeepIfShort,
    Removal,
    SamplingParams,
    Selection,
    StepResult,
)
from slime_core.sample import Group, GroupId, PrefixCacheInfo, Sample, SpecInfo, Status
from slime_core.score import NotApplicable, Score, Unscored
from slime_testing import make_group, make_sample
from tests.tables import table

ASKED = make_sample(group_index=17, index=3)


def generated(**changed: object) -> Sample:
    return replace(copy.deepcopy(ASKED), **changed)  # type: ignore[arg-type]


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


GROUPS = [make_group(0), make_group(1, rewards=(0.0, 1.0, 0.5))]
SAMPLES = GROUPS[1].samples


@table(
    "returned, complaint",
    [
        (None, "expected a list of numbers, Score, Unscored or NotApplicable, got NoneType"),
        ("abc", "expected a list of numbers, Score, Unscored or NotApplicable, got str"),
        (Score(1.0), "expected a list of numbers, Score, Unscored or NotApplicable, got Score"),
        ([Score(1.0)] * 2, "2 verdicts for 3 samples; return one a sample"),
        ([Score(1.0), "0.5", Score(0.0)], "sample 1 of group 1: expected .*Score, .*got str '0.5'"),
        ([Score(1.0), Score(True), None], r"sample 2 of group 1: .*got NoneType"),
        ([Score(1.0), Unscored(""), Score(0.0)], "Unscored.reason: expected a short text"),
    ],
)
def test_other_answers_of_a_group_reward_are_refused(returned: object, complaint: str) -> None:
    with pytest.raises(ContractError, match=rf"^group reward of plugin ranks, group 1.*{complaint}"):
        check_verdicts(returned, plugin="ranks", samples=SAMPLES)


FIRST = GROUPS[0].id
UNKNOWN = GroupId("kit", 0, 9, 9)


@table(
    "returned, complaint",
    [
        (None, "expected a list of Removal, got NoneType"),
        ([(FIRST, 0)], r"item 0: expected a Removal, got tuple .*return \[Removal\(group.id, position, reason\)\]"),
        ([Removal("kit", 0, "x")], "Removal.group: expected a GroupId, got str 'kit'; use group.id"),  # type: ignore[arg-type]
        ([Removal(UNKNOWN, 0, "x")], "Removal.group kit:e0:r9:d9 is not among the 2 groups it was given"),
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


@table(
    "returned, complaint",
    [
        ((drawn(0), drawn(1)), r"expected list\[Group\], got tuple"),
        ([drawn(0)], "drew 1 groups; 2 were requested, and sources never end"),
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


@table(
    "returned, complaint",
    [
        (None, "expected one row of rewards per group, got NoneType"),
        ([[0.0, 1.0]], "1 rows for 2 groups; return one row per group"),
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


@table(
    "returned, complaint",
    [
        ([1], "expected a dict of turn, place, loss_mask, got list"),
        ({"turn": 1}, "made columns turn; its spec declares turn, place, loss_mask"),
        (GOOD | {"other": 1}, "made columns turn, place, loss_mask, other"),
        (GOOD | {"turn": None}, "column 'turn': expected a float, got NoneType"),
        (GOOD | {"turn": float("nan")}, "column 'turn': nan is not finite"),
        (GOOD | {"place": 1.0}, "column 'place': expected one number per response token, got float"),
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
        plugin_errors("buffer", "stack"),
    ):
        raise IndexError("pop from empty")
    with pytest.raises(DataError, match=r"^own\.jsonl"), plugin_errors("data source", "own"):
        raise DataError("own.jsonl: gone")


REQUEST = GenerateRequest([1, 2], SamplingParams(max_new_tokens=3), seed=0)
OUTPUT = GenerateOutput([5, 6], [-0.5, -1.0], FinishReason.STOP, weight_version=4)


@table(
    "returned, complaint",
    [
        (([5], [-0.5]), "expected a GenerateOutput, got tuple"),
        (replace(OUTPUT, log_probs=[-0.5]), "1 log_probs for 2 tokens"),
        (replace(OUTPUT, tokens=[5] * 4, log_probs=[-0.5] * 4), "4 tokens; max_new_tokens is 3"),
        (replace(OUTPUT, log_probs=[-0.5, float("-inf")]), "log_probs holds NaN, infinity or something"),
        (replace(OUTPUT, log_probs=[-0.5, None]), "log_probs holds NaN, infinity or something"),  # type: ignore[list-item]
        (replace(OUTPUT, tokens=None), "tokens: expected token ids, got NoneType"),  # type: ignore[arg-type]
        (replace(OUTPUT, finish="stop"), "finish: expected a FinishReason, got str"),  # type: ignore[arg-type]
        (replace(OUTPUT, weight_version="4"), "weight_version: expected an int, got str"),  # type: ignore[arg-type]
    ],
)
def test_an_engines_answer_is_whole_or_refused(returned: object, complaint: str) -> None:
    assert check_output(OUTPUT, plugin="sglang", request=REQUEST) is OUTPUT
    with pytest.raises(ContractError, match=rf"^engine of plugin sglang.*{complaint}"):
        check_output(returned, plugin="sglang", request=REQUEST)


WANTING = replace(REQUEST, want=frozenset(Extra))
EXTRAS = EngineExtras(
    versions=((1, 4), (1, 5)),
    prefix_cache_info=PrefixCacheInfo(1, 2),
    spec_info=SpecInfo(1, 2, 3, 4),
    routed_experts=array("i", range(12)),
    top_p_token_ids=array("i", [5, 7, 6]),
    top_p_token_offsets=array("i", [0, 2, 3]),
    prompt_log_probs=[-0.5],
)
TOLD = replace(OUTPUT, extras=EXTRAS)


def test_extras_of_the_answer_s_shape_are_taken() -> None:
    assert check_output(TOLD, plugin="sglang", request=WANTING) is TOLD
    nothing = GenerateOutput([], [], FinishReason.ABORT, 4)
    assert check_output(nothing, plugin="sglang", request=WANTING) is nothing


@table(
    "extras, complaint",
    [
        (None, "wants prompt_log_probs, routed_experts, top_p_tokens, and the extras have none"),
        ({"server": "here"}, "extras: expected an EngineExtras, or None, got dict"),
        (replace(EXTRAS, routed_experts=[1] * 12), "extras.routed_experts: expected a value of array, got list"),  # type: ignore[arg-type]
        (replace(EXTRAS, routed_experts=None), "wants routed_experts, and the extras have none"),
        (replace(EXTRAS, routed_experts=array("i", range(8))), r"routed_experts has 8 entries for 3 tokens"),
        (replace(EXTRAS, versions=((1, 4),)), r"versions are of \[1\] tokens, and there are 2"),
        (replace(EXTRAS, versions=((2, 4), (0, 5))), r"versions are of \[2, 0\] tokens"),
        (replace(EXTRAS, versions=((1, 5), (1, 4))), r"versions are \[5, 4\]; expected the oldest first"),
        (replace(EXTRAS, versions=((2, 5),)), r"versions are \[5\], and weight_version is 4"),
        (replace(EXTRAS, top_p_token_ids=None), "one of top_p_token_ids and top_p_token_offsets"),
        (replace(EXTRAS, top_p_token_offsets=array("i", [0, 3])), "3 ascending numbers from 0 to 3"),
        (replace(EXTRAS, top_p_token_offsets=array("i", [0, 4, 3])), "3 ascending numbers from 0 to 3"),
        (replace(EXTRAS, top_p_token_offsets=array("i", [0, 2, 2])), "3 ascending numbers from 0 to 3"),
        (replace(EXTRAS, prompt_log_probs=[-0.5, -0.5]), "prompt_log_probs has 2 entries for a prompt of 2 tokens"),
        (replace(EXTRAS, prompt_log_probs=[float("nan")]), "prompt_log_probs holds NaN"),
    ],
)
def test_extras_that_do_not_fit_the_answer_are_refused(extras: object, complaint: str) -> None:
    with pytest.raises(ContractError, match=rf"^engine of plugin sglang.*{complaint}"):
        check_output(replace(OUTPUT, extras=extras), plugin="sglang", request=WANTING)  # type: ignore[arg-type]


RESULT = StepResult({"loss": 2.0}, 9, {"grad_norm": 0.5}, {0: 0.5, 2: 0.0})


@table(
    "returned, complaint",
    [
        (None, "expected a StepResult, got NoneType"),
        (replace(RESULT, metrics={"loss": None}), "metrics 'loss': expected a float, got NoneType"),  # type: ignore[dict-item]
        (replace(RESULT, scalars={"lr": "1"}), "scalars 'lr': expected a float, got str"),  # type: ignore[dict-item]
        (replace(RESULT, over_all_tokens=frozenset({"gone"})), "over_all_tokens: names gone, which is not among its"),
        (replace(RESULT, tokens=-1), "tokens: expected a count, got int -1"),
        (replace(RESULT, scores={0: 0.5}), r"scores of groups \[0\]; it was given \[0, 2\]"),
        (replace(RESULT, scores={0: 0.5, 2: float("nan")}), "score of group 2: nan is not finite"),
    ],
)
def test_a_rank_reports_of_its_own_groups(returned: object, complaint: str) -> None:
    assert check_step_result(RESULT, plugin="mega", rank=1, groups=[0, 2, 2]) is RESULT
    with pytest.raises(ContractError, match=rf"^trainer of plugin mega, rank 1.*{complaint}"):
        check_step_result(returned, plugin="mega", rank=1, groups=[0, 2, 2])


def test_what_keeps_the_contract_is_returned() -> None:
    two = [generated(rollout_id=5), generated(rollout_id=5)]
    assert check_generated(two, plugin="agent", sample=ASKED) is two
    verdicts = [Score(0.5, {"format": 1.0}), Unscored("no label"), NotApplicable()]
    assert all(check_verdict(each, plugin="math", sample=ASKED) is each for each in verdicts)
    for answers in (verdicts, tuple(verdicts)):
        assert check_verdicts(answers, plugin="ranks", samples=SAMPLES) == verdicts
    for selection in (Selection(take=[4, 0], drop=(1, 2, 3)), Selection(take=[]), Selection(take=[2])):
        assert check_selection(selection, plugin="newest", held=5, want=2) is selection
    for decision in (Keep(), Drop("zero_std"), KeepIfShort("zero_std")):
        assert check_decision(decision, plugin="std", group=GROUP) is decision
    removals = [Removal(GROUPS[0].id, 1, "long"), Removal(GROUPS[1].id, 0, "long")]
    assert check_removals(removals, plugin="short", groups=GROUPS) == removals
    assert check_removals((), plugin="short", groups=GROUPS) == []
    groups = [drawn(0), drawn(1)]
    assert check_drawn(groups, plugin="own", count=2) is groups
