"""The run file and the flags in one form: a flag wins over every spelling of its key, a foreign name is ours."""

import tomllib

import pytest

from slime_core.catalog import Catalog
from slime_core.config import canonical
from slime_core.errors import ConfigError
from slime_core.sample import Json
from tests.tables import table

CATALOG = Catalog.discover()
CLIPPED: Json = {"policy_loss": {"eps_clip": 0.3}}
GSPO: dict[str, Json] = {"advantage_estimator": "gspo"}


def workers(number: int) -> Json:
    return {"local": {"workers": number}}


def merged(in_file: str, flags: dict[str, Json]) -> dict[str, Json]:
    return canonical([tomllib.loads(in_file), flags], CATALOG).required()


@table(
    "in_file, flags, expected",
    [
        ("eps_clip = 0.2", {}, {"loss": {"policy_loss": {"eps_clip": 0.2}}}),
        ("eps_clip = 0.2", {"eps_clip": 0.3}, {"loss": CLIPPED}),
        ("[loss.policy_loss]\neps_clip = 0.2", {"eps_clip": 0.3}, {"loss": CLIPPED}),
        ("eps_clip = 0.2", {"loss": CLIPPED}, {"loss": CLIPPED}),
        (
            "eps_clip = 0.2",
            {"eps_clip_high": 0.3, "loss_type": "gspo"},
            {"loss": {"use": "gspo", "gspo": {"eps_clip": 0.2, "eps_clip_high": 0.3}}},
        ),
        ('[advantage]\nuse = "rloo"', GSPO, {"advantage": {"use": "grpo"}, "loss": {"use": "gspo"}}),
        ('loss_type = "cispo"', GSPO, {"advantage": {"use": "grpo"}, "loss": {"use": "gspo"}}),
        ('advantage_estimator = "gspo"', {"advantage_estimator": "rloo"}, {"advantage": {"use": "rloo"}, "loss": None}),
        ("use_tis = true", {"use_tis": False}, {"correction": None}),
        ('[loss]\nuse = "sft_loss"', {"loss_type": "policy_loss"}, {"loss": {"use": "policy_loss"}}),
        ('loss_type = "sft_loss"', {"loss": {"use": {"policy_loss": 1.0}}}, {"loss": {"use": {"policy_loss": 1.0}}}),
        ("rollout_shuffle = true", {"rollout_shuffle": False}, {"rollout_shuffle": False}),
        (
            "actor_num_gpus_per_node = 4\n[trainer.local]\nranks = 4",
            {"actor_num_gpus_per_node": "2"},
            {"actor_num_gpus_per_node": "2", "trainer": {"local": {"ranks": 2}}},
        ),
        ("actor_num_gpus_per_node = 4", {"trainer": {"local": {"ranks": 2}}}, {"trainer": {"local": {"ranks": 2}}}),
        ("rollout_num_engines = 1", {"rollout_num_gpus": "4"}, {"rollout_num_engines": 4, "engine": workers(1)}),
        ("rollout_num_gpus = 4", {"rollout_num_engines": "2"}, {"rollout_num_engines": "2"}),
        (
            "rollout_num_gpus = 8\nrollout_num_gpus_per_engine = 2",
            {"rollout_num_engines": 3},
            {"rollout_num_gpus": None, "rollout_num_engines": 3, "engine": workers(2)},
        ),
        (
            "rollout_num_gpus = 8\nrollout_num_engines = 8",
            {"rollout_num_gpus_per_engine": 2},
            {"rollout_num_gpus": 8, "rollout_num_engines": 4, "engine": workers(2)},
        ),
        ("rollout_num_gpus = 8", {"engine": workers(2)}, {"rollout_num_engines": 4, "engine": workers(2)}),
        ('reward = {use = "math"}', {"reward": {"use": {"a": 0.5}}}, {"reward": {"use": {"a": 0.5}}}),
        ('rm_type = "dapo"\n[correction]\nuse = "icepop"', {"rm_type": "math"}, {"reward": {"use": "math"}}),
        ("", {"use_tis": True}, {"correction": {"use": "tis"}}),
        ('[correction]\nuse = "icepop"', {"use_tis": True}, {"correction": {"use": "tis"}}),
        ("", {"use_tis": False, "update_weight_transport": "nccl"}, {}),
        ("", {"disable_rewards_normalization": True}, {"advantage": {"grpo": {"rewards_normalization": False}}}),
    ],
)
def test_sources_are_merged_in_one_form(in_file: str, flags: dict[str, Json], expected: dict[str, Json]) -> None:
    values = merged(in_file, flags)
    assert {key: values.get(key) for key in expected} == expected
    assert not values.keys() & {"eps_clip", "loss_type", "advantage_estimator", "rm_type", "use_tis"}
    assert canonical([values], CATALOG).required() == values, "the form of the form is the same"


@table(
    "values, message",
    [
        ({"reward": {"use": "dapo"}, "rm_type": "math"}, "rm_type = 'math' contradicts reward.use = 'dapo'"),
        ({"loss": {"use": "cispo"}, "loss_type": "gspo"}, "loss_type = 'gspo' contradicts loss.use = 'cispo'"),
        ({"use_tis": "often"}, "unknown key 'use_tis'"),
        ({"rollout_seed": 5}, "unknown key 'rollout_seed'"),
        ({"lora_rank": 8, "trainer": {"local": 3}}, "local must be a table, got 3"),
    ],
)
def test_what_cannot_be_merged_is_refused(values: dict[str, Json], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        canonical([values], CATALOG).required()
