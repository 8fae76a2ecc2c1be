"""Names from elsewhere lead to ours, and none that was ever told is forgotten."""

import pytest

from slime_compat.flags.table import flags
from slime_compat.names import foreign_names
from slime_core.catalog import Catalog, key_brought_by
from slime_core.config import CHOOSES, FAMILY_OF_KEY, FlatKeys, parse_config
from slime_core.errors import ConfigError
from slime_core.roles import SELECTABLE, ForeignName
from slime_core.sample import Json

TOLD: dict[str, str] = {
    "batch_size": "rollout_batch_size",
    "beta": "kl_loss_coef",
    "cliprange": "eps_clip",
    "clip_eps": "eps_clip",
    "clip_range": "eps_clip",
    "clip_ratio": "eps_clip",
    "clip_ratio_high": "eps_clip_high",
    "clip_ratio_low": "eps_clip",
    "dataset": "prompt_data",
    "dataset_name": "prompt_data",
    "entropy_coeff": "entropy_coef",
    "epochs": "num_epoch",
    "epsilon": "eps_clip",
    "epsilon_high": "eps_clip_high",
    "eval_dataset": "eval_prompt_data",
    "eval_steps": "eval_interval",
    "grad_clip": "clip_grad",
    "group_size": "n_samples_per_prompt",
    "init_kl_coef": "kl_coef",
    "kl_beta": "kl_loss_coef",
    "learning_rate": "lr",
    "lora": "lora_rank",
    "lora_r": "lora_rank",
    "lr_scheduler": "lr_decay_style",
    "lr_scheduler_type": "lr_decay_style",
    "max_completion_length": "rollout_max_response_len",
    "max_grad_norm": "clip_grad",
    "max_new_tokens": "rollout_max_response_len",
    "max_prompt_length": "rollout_max_prompt_len",
    "max_response_length": "rollout_max_response_len",
    "max_steps": "num_rollout",
    "max_tokens": "rollout_max_response_len",
    "min_p": "rollout_min_p",
    "model": "hf_checkpoint",
    "model_name": "hf_checkpoint",
    "model_name_or_path": "hf_checkpoint",
    "model_path": "hf_checkpoint",
    "num_epochs": "num_epoch",
    "num_generations": "n_samples_per_prompt",
    "num_train_epochs": "num_epoch",
    "output_dir": "save",
    "pretrain": "hf_checkpoint",
    "ref_model": "ref_load",
    "reward_funcs": "reward",
    "reward_function": "reward",
    "rollout_n": "n_samples_per_prompt",
    "save_steps": "save_interval",
    "save_total_limit": "save_keep",
    "steps": "num_rollout",
    "stop": "rollout_stop",
    "target_modules": "lora_target_modules",
    "temperature": "rollout_temperature",
    "top_k": "rollout_top_k",
    "top_p": "rollout_top_p",
    "total_epochs": "num_epoch",
    "train_dataset": "prompt_data",
    "use_gradient_checkpointing": "gradient_checkpointing",
    "warmup_ratio": "lr_warmup_fraction",
    "warmup_steps": "lr_warmup_iters",
}
"""Every name that was told in the first list of them, and what of ours it led to."""
LEAST: dict[str, Json] = {"hf_checkpoint": "m", "save": "s", "num_rollout": 3, "reward": {"use": "math"}}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.discover()


def said(catalog: Catalog, name: str, value: Json = 1) -> str:
    with pytest.raises(ConfigError) as raised:
        parse_config({**LEAST, name: value}, catalog)
    return str(raised.value)


@pytest.mark.parametrize("name", TOLD)
def test_no_name_that_was_told_is_forgotten(catalog: Catalog, name: str) -> None:
    assert said(catalog, name) == f"unknown key {name!r}. Did you mean {TOLD[name]!r}?"


def test_names_are_none_of_ours_and_lead_to_one_of_ours_or_of_a_plugins(catalog: Catalog) -> None:
    ours = {*FAMILY_OF_KEY, *SELECTABLE, *CHOOSES, *FlatKeys(catalog).owners}
    names = list(foreign_names())
    assert {*catalog.foreign_names} >= {*names}
    passed_on = {name for name, flag in flags().items() if flag.asks}  # some trainers have them
    assert not ours & {each.name for each in names} - passed_on
    assert [each.key for each in names if each.key not in {"", *ours} and not key_brought_by(each.key)[0]] == []


def test_every_framework_is_there_and_no_name_twice_in_one() -> None:
    names = [(each.framework, each.name) for each in foreign_names()]
    assert {framework for framework, _ in names} == {"slime", "TRL", "verl", "OpenRLHF", "peft", ""}
    assert len(names) == len({*names})


def test_a_flag_of_slimes_is_answered_with_what_does_the_same(catalog: Catalog) -> None:
    assert said(catalog, "global_batch_size") == (
        "unknown key 'global_batch_size'. It is slime's: num_steps_per_rollout is rollout_batch_size * "
        "n_samples_per_prompt / global_batch_size."
    )
    assert "calls the function as slime does." in said(catalog, "group_rm", True)


def test_a_value_is_told_as_well_where_it_differs(catalog: Catalog) -> None:
    assert said(catalog, "lr_scheduler_type", "inverse_sqrt") == (
        "unknown key 'lr_scheduler_type'. Did you mean 'lr_decay_style'? TRL's 'inverse_sqrt' is "
        "'inverse-square-root' here."
    )
    assert said(catalog, "lr_scheduler_type", "linear").endswith("Did you mean 'lr_decay_style'?")


@pytest.mark.parametrize("each", [each for each in foreign_names() if each.values], ids=lambda each: each.name)
def test_the_values_are_those_of_the_key(catalog: Catalog, each: ForeignName) -> None:
    optional = {"lr_wsd_decay_iters": 1} if "WSD" in each.values.values() else {}
    for value in each.values.values():
        chosen: Json = {"use": value} if each.key in SELECTABLE else value
        parse_config({**LEAST, each.key: chosen, **(optional if value == "WSD" else {})}, catalog)
