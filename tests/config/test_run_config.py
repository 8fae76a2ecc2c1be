import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.catalog import Catalog
from slime_core.config import DEFAULT_USE, FAMILIES, FAMILY_OF_KEY, ROLE_OF_ALIAS, FlatKeys, parse_config, parse_use
from slime_core.errors import ConfigError
from slime_core.roles import SELECTABLE
from slime_core.sample import Json
from tests.tables import table

CATALOG = Catalog.discover()
LEAST: Mapping[str, Json] = {"hf_checkpoint": "m", "save": "s", "num_rollout": 3, "reward": {"use": "math"}}


def refused(changes: Mapping[str, Json], *, without: str = "") -> str:
    values = {key: value for key, value in {**LEAST, **changes}.items() if key != without}
    with pytest.raises(ConfigError) as raised:
        parse_config(values, CATALOG)
    return str(raised.value)


def test_the_least_that_a_run_must_say() -> None:
    config = parse_config(LEAST, CATALOG)
    assert config.run.hf_checkpoint.name == "m"
    assert config.rollout.rollout_batch_size == 32
    assert config.roles["reward"].use == {"math": 1.0}
    assert {role: dict(config.roles[role].use) for role in SELECTABLE if role != "reward"} == {
        role: use for role, use in DEFAULT_USE.items() if role != "reward"
    }


def test_every_key_belongs_to_one_family_and_is_no_role_and_no_setting_of_a_choice() -> None:
    assert len(FAMILY_OF_KEY) == sum(len(family.model_fields) for family in FAMILIES.values())
    declared = FlatKeys(CATALOG).owners.keys()
    assert not FAMILY_OF_KEY.keys() & {*SELECTABLE, *ROLE_OF_ALIAS, *declared}


@table(
    "missing, message",
    [
        ("hf_checkpoint", "hf_checkpoint is required: set it in the run file or pass --hf-checkpoint"),
        ("save", "save is required: set it in the run file or pass --save"),
        (
            "num_rollout",
            "the run's length is missing: give num_rollout (rollouts) or num_epoch (passes over the prompts)",
        ),
        ("reward", 'no reward is chosen: write [reward] use = "math" or pass --reward math. To finetune on '),
    ],
)
def test_what_is_missing_is_asked_for(missing: str, message: str) -> None:
    assert refused({}, without=missing).startswith(message)


@table(
    "key, value, message",
    [
        ("rollout_batch_size", "many", "rollout_batch_size = 'many': input should be a valid integer"),
        ("rollout_batch_size", 8.5, "rollout_batch_size = 8.5: input should be a valid integer"),
        ("rollout_batch_size", True, "rollout_batch_size = True: input should be a number"),
        ("num_epoch", True, "num_epoch = True: input should be a number"),
        ("rollout_batch_size", {}, "rollout_batch_size = {}: input should be a valid integer"),
        ("lr", True, "lr = True: input should be a number"),
        ("rollout_batch_size", 0, "rollout_batch_size = 0: input should be greater than or equal to 1"),
        ("rollout_temperature", 0, "rollout_temperature = 0: input should be greater than 0"),
        ("rollout_top_p", 1.5, "rollout_top_p = 1.5: input should be less than or equal to 1"),
        ("lr", float("nan"), "lr = nan: input should be a finite number"),
        ("lr", float("inf"), "lr = inf: input should be a finite number"),
        ("prompt_data", 5, "prompt_data = 5: input should be a valid list"),
        ("rollout_shuffle", "perhaps", "rollout_shuffle = 'perhaps': input should be a valid boolean"),
        ("lr_decay_style", "sharp", "lr_decay_style = 'sharp': input should be 'constant', 'linear', 'cosine', "),
        ("rollout_stop_token_ids", "five", "rollout_stop_token_ids = 'five': input should be a valid list"),
        ("rollout_stop_token_ids", ["five"], "rollout_stop_token_ids.0 = 'five': input should be a valid integer"),
        ("eval_prompt_data", "e.jsonl", "eval_prompt_data = 'e.jsonl': input should be a valid dictionary"),
    ],
)
def test_a_wrong_type_or_range_names_key_value_and_what_is_wanted(key: str, value: Json, message: str) -> None:
    assert message in refused({key: value})


@table(
    "key, message",
    [
        ("rolout_batch_size", "unknown key 'rolout_batch_size'. Did you mean 'rollout_batch_size'?"),
        ("rewards", "unknown key 'rewards'. Did you mean 'reward'?"),
        ("eps_clip_hi", "unknown key 'eps_clip_hi'. Did you mean 'eps_clip_high'?"),
        ("xyzzy", "unknown key 'xyzzy'. `slime train --help all` lists every key."),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(key: str, message: str) -> None:
    assert refused({key: 1}) == message


def test_all_problems_come_in_one_message() -> None:
    message = refused({"lr": -1, "sede": 3, "rollout_top_p": 2, "engine": "local"})
    assert [re.split(r"[ =:.]", line)[0] for line in message.splitlines()] == [
        "unknown",
        "rollout_top_p",
        "lr",
        "engine",
    ]


@table(
    "changes, message",
    [
        ({"eval_interval": 5}, "eval_interval has no effect here: give eval_prompt_data, or leave it out"),
        ({"eval_temperature": 0.5}, "eval_temperature has no effect here"),
        ({"eval_prompt_data": {"a": "b"}}, "eval_prompt_data has no effect here: give eval_interval"),
        ({"apply_chat_template_kwargs": {"a": 1}}, "apply_chat_template_kwargs has no effect here: set apply_chat"),
        ({"over_sampling_batch_size": 64}, "over_sampling_batch_size has no effect here: choose a group filter"),
        ({"max_filter_waves": 3}, "max_filter_waves has no effect here: choose a group filter"),
        ({"min_lr": 1e-9}, 'min_lr has no effect here: set lr_decay_style = "linear" or "cosine"'),
        ({"min_lr": 1e-3, "lr_decay_style": "linear"}, "min_lr = 0.001 is above lr = 1e-06"),
        ({"lr_warmup_fraction": 0.1, "lr_warmup_iters": 5}, "lr_warmup_fraction and lr_warmup_iters both say"),
        ({"lr_decay_iters": 9}, 'lr_decay_iters has no effect here: lr_decay_style = "constant" does not end'),
        ({"lr_wsd_decay_iters": 9}, 'lr_wsd_decay_iters has no effect here: set lr_decay_style = "WSD"'),
        ({"lr_decay_style": "WSD"}, "give lr_wsd_decay_iters"),
        ({"num_epoch": 1}, "num_rollout and num_epoch both say how long the run is: give one"),
        ({"num_steps_per_rollout": 64}, "num_steps_per_rollout = 64 is more than rollout_batch_size = 32 groups"),
        ({"eps_clip": 0.1, "loss": {"use": "sft_loss"}}, "'gspo' or 'cispo', and loss.use is 'sft_loss'"),
    ],
)
def test_a_key_without_effect_is_refused_with_what_would_give_it_one(changes: Mapping[str, Json], message: str) -> None:
    assert message in refused(changes)


@table(
    "changes",
    [
        {"eval_prompt_data": {"a": "b"}, "eval_interval": 5, "eval_temperature": 0},
        {"over_sampling_batch_size": 64, "group_filter": {"use": "nonzero_std"}},
        {"min_lr": 1e-9, "lr_decay_style": "cosine"},
        {"lr_decay_style": "WSD", "lr_wsd_decay_iters": 9, "lr_wsd_decay_style": "linear", "lr_decay_iters": 90},
        {"lr_decay_iters": 9, "lr_warmup_fraction": 0.5},
        {"eval_interval": None, "min_lr": 0.0, "max_filter_waves": 16},
        {"loss": {"use": "sft_loss", "policy_loss": {"eps_clip": 0.1}}},
    ],
)
def test_the_same_keys_are_welcome_where_they_have_one_or_are_at_their_default(changes: Mapping[str, Json]) -> None:
    parse_config({**LEAST, **changes}, CATALOG)


@table(
    "changes, message",
    [
        ({"reward": "math"}, "reward = 'math': write a table instead, [reward] use = \"math\""),
        ({"engine": {"workers": 4}}, "[engine] has a key 'workers' that is not a table"),
        ({"engine": {"use": ["local", "other"]}}, "engine.use names local, other: this role takes only one"),
        ({"engine": {"use": {"local": 0.5}}}, "only rewards and group rewards have weights"),
        ({"reward": {"use": {"math": "much"}}}, "reward.use = {'math': 'much'}: write \"NAME\", or a table of finite"),
        ({"reward": {"use": {"math": True}}}, "or a table of finite weights"),
        ({"reward": {"use": {"math": float("nan")}}}, "or a table of finite weights"),
        ({"reward": {"use": 5}}, "reward.use = 5"),
        ({"reward": {"use": ["math", "math"]}}, "reward.use = ['math', 'math'] repeats a name"),
    ],
)
def test_a_role_is_chosen_in_one_of_three_ways(changes: Mapping[str, Json], message: str) -> None:
    assert message in refused(changes)


@given(st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9)))
def test_rewards_keep_their_names_order_and_weights(use: dict[str, float]) -> None:
    parsed = parse_use("reward", dict(use))
    assert list(parsed.items()) == list(use.items())
    assert parse_use("reward", list(use)) == dict.fromkeys(use, 1.0)
