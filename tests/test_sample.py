"""Samples and groups: slime's fields, their invariants, and their way through JSON."""

import json
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core import Group, GroupId, Sample, Score, Status
from slime_core.sample import PrefixCacheInfo, SpecInfo, scalar_reward
from slime_core.seeds import derive_seed
from tests.tables import table

SLIME_FIELDS = [
    "group_index",
    "index",
    "rollout_id",
    "prompt",
    "tokens",
    "multimodal_inputs",
    "multimodal_train_inputs",
    "multimodal_train_input_id",
    "apply_chat_template_kwargs",
    "response",
    "response_length",
    "label",
    "reward",
    "loss_mask",
    "weight_versions",
    "rollout_log_probs",
    "rollout_top_p_token_ids",
    "rollout_top_p_token_offsets",
    "rollout_routed_experts",
    "remove_sample",
    "teacher_log_probs",
    "status",
    "metadata",
    "generate_function_path",
    "custom_rm_path",
    "train_metadata",
    "session_id",
    "non_generation_time",
    "spec_info",
    "prefix_cache_info",
    "source",
]

ids = st.lists(st.integers(0, 2**31 - 1), max_size=8)
chunks = st.tuples(ids, st.booleans())


def grown(prompt: list[int], parts: list[tuple[list[int], bool]]) -> Sample:
    sample = Sample(tokens=prompt, index=0, group_index=1, label={"gold": [1, "x", None]})
    for tokens, trainable in parts:
        log_probs = [-0.5] * len(tokens) if trainable else None
        version = "3" if trainable else None
        sample.append_response_tokens(
            tokens=tokens, log_probs=log_probs, trainable=trainable, text="t", weight_version=version
        )
    return sample


def test_the_fields_are_slimes() -> None:
    ours = ["weight_version_ends", "failure_reason"]
    # Without slime's `trace`: times are in spans.jsonl, as samples of two runs of one seed are the same in every bit.
    assert [field.name for field in fields(Sample)] == SLIME_FIELDS + ours
    assert {status.value for status in Status} == {"pending", "completed", "truncated", "aborted", "failed"}


@dataclass(frozen=True)
class Answered:
    """What an engine answered, as far as a sample reads it."""

    tokens: Sequence[int]
    log_probs: Sequence[float]
    versions: Sequence[tuple[int, int]]


def answered(*versions: tuple[int, int]) -> Answered:
    count = sum(number for number, _ in versions)
    return Answered(range(count), [-0.5] * count, versions)


def test_an_answer_says_which_weights_made_which_tokens() -> None:
    sample = Sample(tokens=[1, 2])
    sample.append_response_tokens(output=answered((2, 3), (1, 4)), text="abc")
    sample.append_response_tokens(tokens=[7, 7], trainable=False)
    sample.append_response_tokens(output=answered((3, 5)), trainable=False)
    assert (sample.weight_versions, sample.weight_version_ends) == (["3", "4", "5"], [2, 3, 8])
    assert list(sample.version_spans) == [(0, 2, 3), (2, 3, 4), (3, 8, 5)]
    assert (sample.response, sample.loss_mask) == ("abc", [1, 1, 1, 0, 0, 0, 0, 0])
    assert list(sample.problems()) == []
    assert sample.oldest_weight_version == 3
    sample.loss_mask = [0, 0, 1, 0, 0, 0, 0, 0]
    assert sample.oldest_weight_version == 4, "of what is trained on"


def test_what_a_bare_version_was_said_of_is_not_known() -> None:
    sample = Sample(tokens=[1])
    sample.append_response_tokens(tokens=[5], log_probs=[-1.0], weight_version="3")
    sample.append_response_tokens(output=answered((1, 4)))
    assert (sample.weight_versions, list(sample.version_spans)) == (["3", "4"], [])
    assert sample.oldest_weight_version == 3


def test_a_fork_does_not_write_into_its_origin() -> None:
    origin = Sample(tokens=[1])
    origin.append_response_tokens(output=answered((2, 3)))
    fork = replace(origin)
    fork.append_response_tokens(output=answered((1, 4)))
    assert (origin.weight_versions, origin.weight_version_ends, origin.response_length) == (["3"], [2], 2)
    assert (fork.weight_versions, fork.weight_version_ends) == (["3", "4"], [2, 3])


def test_an_output_is_passed_alone_or_not_at_all() -> None:
    with pytest.raises(ValueError, match="pass it alone"):
        Sample().append_response_tokens(output=answered((1, 3)), tokens=[1])
    with pytest.raises(ValueError, match="pass output="):
        Sample().append_response_tokens(text="lost")


@given(ids, st.lists(chunks, max_size=5))
def test_appended_tokens_keep_every_column_aligned(prompt: list[int], parts: list[tuple[list[int], bool]]) -> None:
    sample = grown(prompt, parts)
    assert list(sample.problems()) == []
    assert sample.response_length == sum(len(tokens) for tokens, _ in parts)
    assert sample.prompt_length == len(prompt)
    assert sample.effective_response_length == sum(len(tokens) for tokens, trainable in parts if trainable)


@given(ids, st.lists(chunks, max_size=5), st.booleans())
def test_a_sample_survives_json(prompt: list[int], parts: list[tuple[list[int], bool]], frozen: bool) -> None:
    sample = grown(prompt, parts)
    if frozen:
        sample.freeze()
    again = Sample.from_dict(json.loads(json.dumps(sample.to_dict())))
    assert again.to_dict() == sample.to_dict()
    assert again.status is Status.PENDING
    assert (again.spec_info, again.prefix_cache_info) == (SpecInfo(), PrefixCacheInfo())


def test_frozen_columns_are_typed_arrays() -> None:
    sample = grown([1, 2], [([3], True)])
    sample.freeze()
    assert sample.tokens == array("i", [1, 2, 3])
    assert sample.loss_mask == array("b", [1])
    assert sample.rollout_log_probs == array("f", [-0.5])


def test_trainable_tokens_need_log_probs_and_a_version() -> None:
    with pytest.raises(ValueError, match="need log_probs and a weight_version"):
        Sample().append_response_tokens(tokens=[1], weight_version="0")
    with pytest.raises(ValueError, match="need log_probs and a weight_version"):
        Sample().append_response_tokens(tokens=[1], log_probs=[-1.0])
    with pytest.raises(ValueError, match="2 tokens but 1 log_probs"):
        Sample().append_response_tokens(tokens=[1, 2], log_probs=[-1.0], weight_version="0")
    with pytest.raises(ValueError, match="carry no log_probs"):
        Sample().append_response_tokens(tokens=[1], log_probs=[-1.0], trainable=False)


@table(
    "field, value, problem",
    [
        ("response_length", 9, "response_length is 9 with 3 tokens"),
        ("loss_mask", [1], "loss_mask has 1 entries for 2 response tokens"),
        ("loss_mask", [1, 2], "values other than 0 and 1"),
        ("rollout_log_probs", [0.0, math.nan], "expected finite numbers"),
        ("rollout_log_probs", None, "have no rollout_log_probs"),
        ("teacher_log_probs", [0.0], "teacher_log_probs has 1 entries"),
        ("teacher_log_probs", [0.0, -math.inf], "teacher_log_probs holds -inf; expected finite numbers"),
        ("weight_versions", [], "have no weight version"),
        ("reward", math.inf, "not finite"),
        ("reward", {"score": math.nan}, "not finite"),
    ],
)
def test_an_inconsistent_sample_says_what_is_wrong(field: str, value: object, problem: str) -> None:
    sample = grown([1], [([2, 3], True)])
    setattr(sample, field, value)
    assert any(problem in each for each in sample.problems())


def test_an_unknown_field_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"no field colour; its fields are .*loss_mask"):
        Sample.from_dict({"colour": "red"})


@given(st.text(min_size=1), st.integers(0), st.integers(0), st.integers(0))
def test_a_group_id_reads_back(source: str, epoch: int, row: int, draw: int) -> None:
    group_id = GroupId(source, epoch, row, draw)
    assert GroupId.parse(str(group_id)) == group_id


def test_a_group_survives_json_and_reads_its_rewards_by_sample() -> None:
    scored, lost = grown([1], [([2], True)]), grown([1], [([3], True)])
    scored.reward = {"score": 0.5, "style": 1.0}
    group = Group(GroupId("a:b", 0, 1, 2), [scored, lost], {"note": 1})
    again = Group.from_dict(json.loads(json.dumps(group.to_dict())))
    assert again.id == group.id
    assert again.rewards == [0.5]
    assert again.metadata == {"note": 1}
    assert again.oldest_weight_version == 3


def test_a_saved_group_does_not_change_with_the_group() -> None:
    group = Group(GroupId("a", 0, 0, 0), [Sample()], {"note": 1})
    saved = group.to_dict()
    group.metadata["note"] = 2
    assert saved["metadata"] == {"note": 1}


def test_the_scalar_of_a_reward() -> None:
    assert scalar_reward(Sample(reward=0.25)) == 0.25
    assert scalar_reward(Sample(reward={"style": 2.0, "score": 1.0})) == 1.0
    assert scalar_reward(Sample(reward={"style": 2.0})) == 2.0
    with pytest.raises(ValueError, match="has no reward"):
        scalar_reward(Sample())


def test_log_probs_may_be_numbers_of_several_kinds() -> None:
    sample = grown([1], [([2, 3], True)])
    sample.rollout_log_probs = [-0.5, Decimal("-0.25")]  # type: ignore[list-item]
    assert list(sample.problems()) == []
    sample.freeze()
    assert list(sample.rollout_log_probs) == [-0.5, -0.25]


parts = st.lists(st.integers() | st.text(), min_size=1, max_size=6)


@given(parts, parts)
def test_different_identities_have_different_seeds(one: list[int | str], other: list[int | str]) -> None:
    same = [(type(part), part) for part in one] == [(type(part), part) for part in other]
    assert (derive_seed(*one) == derive_seed(*other)) is same


def test_a_seed_is_the_same_everywhere() -> None:
    assert derive_seed(42, "train.jsonl", 0, 17, 0, 3) == 1247862229130271548
    assert 0 <= derive_seed("x") < 2**63


@table("value", [math.nan, math.inf, -math.inf])
def test_a_score_is_finite(value: float) -> None:
    with pytest.raises(ValueError, match="return Unscored"):
        Score(value)
    with pytest.raises(ValueError, match="style must be finite"):
        Score(1.0, {"style": value})
