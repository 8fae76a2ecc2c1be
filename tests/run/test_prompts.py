"""Evaluation sets: each key is the set's own, else that of all sets, else as in training."""

from pathlib import Path

import pytest

from slime_core.config import EvalSetArgs, RunConfig, parse_config
from slime_core.errors import ConfigError
from slime_core.roles import RowFormat, SamplingParams
from slime_core.run.prompts import eval_file, eval_sampling
from slime_core.sample import Json

SAMPLING: dict[str, Json] = {
    "temperature": 0.9,
    "top_p": 0.8,
    "top_k": 50,
    "min_p": 0.1,
    "no_stop_trim": False,
    "skip_special_tokens": False,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.2,
    "frequency_penalty": 0.3,
}
TRAINING = SamplingParams(
    max_new_tokens=100,
    min_new_tokens=7,
    stop=("END",),
    stop_token_ids=frozenset({9}),
    **SAMPLING,  # type: ignore[arg-type]  # each of its type
)
OF_ALL: dict[str, Json] = {
    "eval_prompt_data": {"held": "held.jsonl"},
    "eval_interval": 1,
    "eval_max_response_len": 60,
    "eval_temperature": 0.5,
    "eval_top_p": 0.6,
    "eval_top_k": 20,
    "eval_min_new_tokens": 3,
    "eval_input_key": "asked",
    "eval_label_key": "gold",
}
COLUMNS: dict[str, Json] = {
    "input_key": "question",
    "label_key": "answer",
    "metadata_key": "about",
    "tool_key": "uses",
    "multimodal_keys": {"image": "pictures"},
    "apply_chat_template": True,
    "apply_chat_template_kwargs": {"thinking": True},
    "final_assistant_message": "continue",
}
ROWS = RowFormat(**COLUMNS, max_prompt_len=5, max_bad_row_rate=0.5)  # type: ignore[arg-type]


def config(**changes: Json) -> RunConfig:
    least: dict[str, Json] = {"hf_checkpoint": "m", "save": "s", "num_rollout": 3, "reward": {"use": "math"}}
    return parse_config(least | changes)


def sampling(own: dict[str, Json], **changes: Json) -> SamplingParams:
    return eval_sampling("held", EvalSetArgs.model_validate({"path": "p.jsonl", **own}), config(**changes), TRAINING)


def test_a_set_that_says_nothing_is_sampled_as_in_training_but_for_the_least_length() -> None:
    found = sampling({})
    assert found.min_new_tokens == 0
    for key in SamplingParams.__dataclass_fields__.keys() - {"min_new_tokens"}:
        assert getattr(found, key) == getattr(TRAINING, key), key


def test_a_sets_own_keys_come_first_and_0_and_nothing_are_values() -> None:
    own: dict[str, Json] = {
        key: True if value is False else 1.0 if "repet" in key else 0 for key, value in SAMPLING.items()
    }
    own |= {"top_p": 0.1, "top_k": -1, "max_response_len": 30, "min_new_tokens": 0, "stop": [], "stop_token_ids": []}
    found = sampling(own, **OF_ALL)
    assert (found.max_new_tokens, found.stop, found.stop_token_ids) == (30, (), frozenset())
    for key in own.keys() - {"max_response_len", "stop", "stop_token_ids"}:
        assert getattr(found, key) == own[key], key


def test_a_least_length_above_the_budget_is_refused_and_an_equal_one_is_not() -> None:
    assert sampling({"min_new_tokens": 30, "max_response_len": 30}).min_new_tokens == 30
    says = r"'held' asks for at least 31 tokens \(min_new_tokens\) and at most 30 \(max_response_len\)"
    with pytest.raises(ConfigError, match=says):
        sampling({"min_new_tokens": 31, "max_response_len": 30})


def test_a_file_is_read_as_in_training_and_no_prompt_is_too_long() -> None:
    found = eval_file("held", EvalSetArgs(path="held.jsonl"), config(), ROWS)
    assert (found.path, found.name, found.max_prompt_len) == (Path("held.jsonl"), "eval:held", None)
    assert found.flag_prefix == "eval-"
    for key in RowFormat.__dataclass_fields__.keys() - {"max_prompt_len", "flag_prefix"}:
        assert getattr(found, key) == getattr(ROWS, key), key


def test_columns_of_all_sets_come_before_those_of_training_and_a_sets_own_first() -> None:
    found = eval_file("held", EvalSetArgs(path="held.jsonl"), config(**OF_ALL), ROWS)
    assert (found.input_key, found.label_key) == ("asked", "gold")
    own: dict[str, Json] = {key: "x" for key in COLUMNS if key.endswith("_key")}
    own |= {"multimodal_keys": {}, "apply_chat_template": False, "apply_chat_template_kwargs": {}}
    own |= {"final_assistant_message": "cut"}
    found = eval_file("held", EvalSetArgs.model_validate({"path": "p", **own}), config(**OF_ALL), ROWS)
    assert {key: getattr(found, key) for key in own} == own
