"""Evaluation sets as tables: what each may say for itself, and what is refused."""

import tomllib

import pytest

from slime_core.config import parse_config, write_toml
from slime_core.errors import ConfigError
from slime_core.sample import Json

RUN: dict[str, Json] = {
    "hf_checkpoint": "model",
    "save": "runs/x",
    "prompt_data": "p.jsonl",
    "num_rollout": 1,
    "eval_interval": 1,
    "reward": {"use": "math"},
}


def test_a_path_is_a_table_that_says_nothing_else() -> None:
    tables: dict[str, Json] = {"a": "x.jsonl", "b": {"path": "y.jsonl", "reward": "math", "top_p": 0.5}}
    config = parse_config({**RUN, "eval_prompt_data": tables})
    first, second = config.evaluation.eval_prompt_data.values()
    assert (first.path, first.reward, first.top_p) == ("x.jsonl", None, None)
    assert (second.path, second.reward, second.top_p) == ("y.jsonl", "math", 0.5)
    assert config.to_dict()["eval_prompt_data"] == tables
    assert parse_config(tomllib.loads(write_toml(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"path": "y", "topp": 1}, r"unknown setting eval_prompt_data\.aime\.topp"),
        ({}, r"eval_prompt_data\.aime\.path is required: set it in the run file$"),
        ({"path": "y", "top_p": 2}, r"eval_prompt_data\.aime\.top_p = 2: input should be less than or equal to 1"),
        (3, r"eval_prompt_data\.aime = 3: input should be a valid dictionary"),
    ],
)
def test_a_wrong_table_is_refused_by_its_key(table: Json, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_config({**RUN, "eval_prompt_data": {"aime": table}})
