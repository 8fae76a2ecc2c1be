"""Settings: which are passed to megatron-core, which are refused, and which models the plan accepts."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping

import pytest
from models_and_steps import CONFIG, OWN, STRETCHED, YARN
from pydantic import ValidationError

from slime_core.errors import ConfigError
from slime_core.roles import SampleField
from slime_trainer_megatron.arguments import (
    ARGUMENTS,
    MODEL_KEYS,
    REASONS,
    RUN_KEYS,
    critic_settings,
    layout_of,
    settings_model,
)
from slime_trainer_megatron.config_json import read_model
from slime_trainer_megatron.dimensions import DIMENSIONS
from slime_trainer_megatron.installed import SOURCES, fields
from slime_trainer_megatron.layout import Layout, layers_of_stages
from slime_trainer_megatron.plugin import slime_trainers
from tests.tables import table

LLAMA = {**CONFIG, "model_type": "llama"}
EXPERTS = {**CONFIG, **OWN["qwen3_moe"], "model_type": "qwen3_moe"}
LATENT = {**CONFIG, **OWN["deepseek_v3"], "model_type": "deepseek_v3"}


def validated(**given: object) -> Mapping[str, object]:
    return settings_model().model_validate(given).__dict__


def refused(**given: object) -> str:
    with pytest.raises(ValidationError) as caught:
        settings_model().model_validate(given)
    return caught.value.errors()[0]["msg"]


def test_reading_settings_imports_no_torch() -> None:
    program = (
        "import sys\n"
        "from slime_trainer_megatron.plugin import slime_trainers\n"
        "(spec,) = slime_trainers()\n"
        "spec.world_size(spec.model())\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('torch', 'megatron', 'numpy')])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_parsed_fields_match_megatron() -> None:
    program = (
        "import dataclasses, json, sys, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from megatron.core.model_parallel_config import ModelParallelConfig\n"
        "from megatron.core.transformer.transformer_config import TransformerConfig\n"
        "from megatron.core.optimizer import OptimizerConfig\n"
        "from megatron.core.distributed import DistributedDataParallelConfig\n"
        "owners = [ModelParallelConfig, TransformerConfig, OptimizerConfig, DistributedDataParallelConfig]\n"
        "listed = {}\n"
        "for owner in owners:\n"
        "    for each in dataclasses.fields(owner):\n"
        "        value = each.default if isinstance(each.default, (bool, int, float, str)) else None\n"
        "        listed.setdefault(each.name, [owner.__name__, value])\n"
        "print(json.dumps(listed))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    theirs = {name: entry for name, entry in json.loads(answer).items() if name[0] != "_"}
    assert fields().keys() == theirs.keys()
    assert {field.owner for field in fields().values()} == SOURCES.keys()
    assert {name: fields()[name].default for name in ARGUMENTS} == {name: theirs[name][1] for name in ARGUMENTS}
    assert {name: fields()[name].owner for name in ARGUMENTS} == {name: theirs[name][0] for name in ARGUMENTS}


def test_listed_names_exist_in_megatron() -> None:
    assert {*ARGUMENTS, *RUN_KEYS, *MODEL_KEYS, *REASONS, *DIMENSIONS} <= fields().keys()


@table(
    "name, message",
    [("lr", "--lr"), ("clip_grad", "--clip-grad"), ("bf16", "--bf16"), ("moe_layer_freq", "config.json")],
)
def test_run_controlled_settings_are_refused(name: str, message: str) -> None:
    assert message in refused(**{name: 1})


@table("config", [LLAMA, EXPERTS, LATENT])
def test_given_dimensions_must_match_the_model(config: Mapping[str, object]) -> None:
    (spec,) = slime_trainers()
    mixture = "moe_intermediate_size" in config
    same = {"num_layers": 4, "hidden_size": 48, "ffn_hidden_size": 80, "num_attention_heads": 4, "kv_channels": 16}
    same |= {"layernorm_epsilon": 1e-6, "qk_layernorm": config is EXPERTS, "add_qkv_bias": False}
    same |= {"moe_ffn_hidden_size": 24, "num_moe_experts": 8 if config is LATENT else 4} if mixture else {}
    spec.check_model(settings_model().model_validate(same), config)
    for name, value in same.items():
        other = not value if isinstance(value, bool) else value * 2
        with pytest.raises(ConfigError, match=f"{name} = .*: the config.json of the model .* says"):
            spec.check_model(settings_model().model_validate({name: other}), config)
    if not mixture:
        with pytest.raises(ConfigError, match=r"num_moe_experts = 4: .* does not set it"):
            spec.check_model(settings_model().model_validate({"num_moe_experts": 4}), config)


@table("name", REASONS)
def test_unsupported_fields_are_refused_with_a_reason(name: str) -> None:
    assert f"{name} of megatron-core's" in refused(**{name: 1})
    assert REASONS[name] in refused(**{name: 1})


def test_misspelt_fields_get_a_suggestion() -> None:
    message = refused(overlap_param_gathr=True)
    assert "unknown setting overlap_param_gathr. Did you mean 'overlap_param_gather'?" in message
    assert REASONS["overlap_param_gather"] in message
    assert "--lr" in refused(lrr=1)
    assert "Extra inputs" in refused(tensor_model_paralel_size=2)  # the core's error lists the settings


@table(
    "given, message",
    [
        ({"sequence_parallel": True}, "tensor_model_parallel_size of 2 or more"),
        ({"num_gpus": 1, "overlap_grad_reduce": True}, "one replica"),
        ({"tensor_model_parallel_size": 2, "use_distributed_optimizer": True}, "one replica"),
        ({"num_layers_in_last_pipeline_stage": 1}, "pipeline_model_parallel_size of 2 or more"),
        ({"bucket_size": 100}, "overlap_grad_reduce = true"),
        ({"mtp_loss_scaling_factor": 0.5}, "set mtp_num_layers"),
        ({"optimizer_offload_fraction": 0.5}, "set optimizer_cpu_offload = true"),
        ({"recompute_method": "block"}, 'recompute_granularity = "full"'),
        ({"recompute_modules": ["mlp"]}, 'recompute_granularity = "selective"'),
        ({"recompute_granularity": "full"}, "needs recompute_method"),
        (
            {"tensor_model_parallel_size": 2, "expert_tensor_parallel_size": 1},
            "needs expert_model_parallel_size of 2 or more",
        ),
    ],
)
def test_settings_without_effect_are_refused(given: Mapping[str, object], message: str) -> None:
    assert message in refused(**given)


def test_experts_are_divided_over_the_ranks_of_a_stage() -> None:
    message = refused(num_gpus=6, expert_model_parallel_size=4)
    assert "4 x 1 does not divide the 6 ranks" in message
    assert "give an expert_model_parallel_size of 2 or 3" in message
    message = refused(num_gpus=6, expert_model_parallel_size=2, expert_tensor_parallel_size=4)
    assert "give an expert_tensor_parallel_size of 2 or 3" in message
    layout = Layout(8, tensor=2, pipeline=2, expert=2)
    assert [layout.holder(stage, part) for stage in (0, 1) for part in (0, 1)] == [0, 2, 4, 6]


@table(
    "given, config, message",
    [
        ({"expert_model_parallel_size": 2}, LLAMA, "expert_model_parallel_size has no effect here: the model (llama)"),
        ({"mtp_num_layers": 1}, LLAMA, "mtp_num_layers = 1 has no effect here: the model (llama) has no layers for"),
        (
            {"mtp_num_layers": 2},
            {**LATENT, "num_nextn_predict_layers": 1},
            "the model (deepseek_v3) has num_nextn_predict_layers = 1; give 1, or leave it out",
        ),
        (
            {"mtp_num_layers": 1, "pipeline_model_parallel_size": 2},
            {**LATENT, "num_nextn_predict_layers": 1, "tie_word_embeddings": True},
            "give one stage, or leave mtp_num_layers out",
        ),
        ({"moe_aux_loss_coeff": 0.1}, LLAMA, "moe_aux_loss_coeff has no effect here"),
        ({"use_rollout_routing_replay": True}, LLAMA, "use_rollout_routing_replay has no effect here"),
        ({"tensor_model_parallel_size": 2}, EXPERTS, "only with sequence_parallel = true"),
        (
            {"tensor_model_parallel_size": 2},
            {**LATENT, "first_k_dense_replace": 4},
            "has experts, which Megatron splits",
        ),
        ({"recompute_granularity": "selective", "recompute_modules": ["mla_up_proj"]}, LLAMA, "'mla_up_proj' has no"),
        ({"num_gpus": 3, "expert_model_parallel_size": 3}, EXPERTS, "num_experts = 4, which cannot be split into 3"),
        ({}, {**EXPERTS, "num_experts_per_tok": 1}, "its router would not learn"),
        ({}, {**EXPERTS, "num_experts_per_tok": 5}, "num_experts_per_tok = 5 of num_experts = 4"),
        (
            {"recompute_granularity": "selective", "recompute_modules": ["moe"]},
            LLAMA,
            'recompute_modules: "moe" has no effect here',
        ),
        (
            {
                "pipeline_model_parallel_size": 2,
                "recompute_granularity": "full",
                "recompute_method": "uniform",
                "recompute_num_layers": 3,
            },
            LLAMA,
            "recompute_num_layers = 3: a pipeline stage has 2 of the model's 4 layers; give at most 2",
        ),
    ],
)
def test_settings_that_do_not_fit_the_model_are_refused(
    given: Mapping[str, object], config: Mapping[str, object], message: str
) -> None:
    (spec,) = slime_trainers()
    with pytest.raises(ConfigError, match=re.escape(message)):
        spec.check_model(settings_model().model_validate(given), config)


@table(
    "critic, message",
    [
        ({"pipeline_model_parallel_size": 2}, "the critic has the policy's layout"),
        ({"bucket_size": 100}, "critic: bucket_size has no effect here"),
        ({"mtp_num_layers": 1}, "critic.mtp_num_layers has no effect here: it applies only to the policy"),
        ({"lr": 0.1}, "lr is a key of the run"),
        ({"max_tokens_per_gp": 1}, "max_tokens_per_gp"),
    ],
)
def test_invalid_critic_settings_are_refused(critic: Mapping[str, object], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        settings_model().model_validate({"critic": critic})
    assert message in str(caught.value)


def test_critic_inherits_the_policy_settings() -> None:
    given = {"max_tokens_per_gpu": 100, "overlap_grad_reduce": True, "critic": {"max_tokens_per_gpu": 7}}
    found = critic_settings(settings_model().model_validate(given)).__dict__
    assert (found["max_tokens_per_gpu"], found["overlap_grad_reduce"]) == (7, True)


def test_companion_models_ignore_policy_only_settings() -> None:
    (spec,) = slime_trainers()
    settings = settings_model().model_validate({"mtp_num_layers": 1, "moe_aux_loss_coeff": 0.1})
    assert spec.check_companion is not None
    spec.check_companion(settings, LLAMA)
    with pytest.raises(ConfigError, match="does not support model_type"):
        spec.check_companion(settings, {**LLAMA, "model_type": "mamba"})


def test_routing_replay_reads_routed_experts() -> None:
    (spec,) = slime_trainers()
    assert spec.reads(settings_model().model_validate({})) == frozenset()
    replaying = settings_model().model_validate({"use_rollout_routing_replay": True})
    assert spec.reads(replaying) == {SampleField.ROLLOUT_ROUTED_EXPERTS}


def test_ranks_of_a_replica_share_a_batch() -> None:
    (spec,) = slime_trainers()
    given = {"num_gpus": 8, "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}
    settings = settings_model().model_validate(given)
    assert spec.share_of_ranks(settings) == (0, 0, 1, 1, 0, 0, 1, 1)
    assert layout_of(settings) == Layout(8, tensor=2, pipeline=2)


@table(
    "layout, message",
    [
        (Layout(3, tensor=3), "num_attention_heads = 4, which cannot be split into 3 equal parts; give 1 or 2"),
        (Layout(4, tensor=4), "num_key_value_heads = 2"),
        (Layout(2, pipeline=2, first=4), "leaves 0 for the other 1 of pipeline_model_parallel_size = 2 stages"),
        (Layout(3, pipeline=3, last=1), "leaves 3 for the other 2"),
        (Layout(2, pipeline=2, first=2, last=1), "must add up to the model's num_hidden_layers = 4"),
        (Layout(3, pipeline=3), "num_hidden_layers = 4, which cannot be split into 3 equal parts; give 2 or 4"),
    ],
)
def test_indivisible_model_is_refused(layout: Layout, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        layout.check(read_model(LLAMA))


@table(
    "config, message",
    [
        (
            {**LLAMA, "model_type": "mamba"},
            "does not support model_type 'mamba'; supported are deepseek_v3, glm4",
        ),
        ({**LLAMA, "attention_bias": True}, "attention_bias = False; the model's config.json says True"),
        ({**LLAMA, "hidden_act": "gelu"}, "hidden_act = 'silu'"),
        ({**LLAMA, "rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope_type 'default' and 'llama3'"),
        ({**LLAMA, "num_hidden_layers": None}, "num_hidden_layers = None"),
        ({**EXPERTS, "mlp_only_layers": [0]}, r"mlp_only_layers = \[\]; the model's config.json says \[0\]"),
        ({**CONFIG, "model_type": "qwen2", "use_sliding_window": True}, "use_sliding_window"),
        ({**LATENT, "num_experts_per_tok": 3}, "num_experts_per_tok = 4; the model's config.json says 3"),
        ({**LATENT, "norm_topk_prob": False}, "norm_topk_prob = True"),
        ({**LATENT, "scoring_func": "softmax"}, "scoring_func = 'sigmoid'"),
        ({**LATENT, "num_key_value_heads": 2}, "num_key_value_heads = 4"),
        ({**LATENT, "rope_scaling": {**YARN, "mscale_all_dim": 0}}, "the latter with factor, beta_fast"),
        ({**LATENT, "rope_scaling": STRETCHED}, "rope_type 'default' and 'yarn'"),
    ],
)
def test_unsupported_model_config_is_refused(config: Mapping[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_model(config)


def test_config_defaults_match_transformers() -> None:
    given = {key: value for key, value in LATENT.items() if key not in ("first_k_dense_replace", "topk_group")}
    found = read_model({**given, "num_experts_per_tok": 3}).experts
    assert found is not None
    assert (found.dense, found.shared) == (3, 48)
    assert found.router is not None
    assert (found.router.groups, found.router.best) == (1, 1), "all groups are looked at"
    assert read_model({**CONFIG, "model_type": "glm4"}).placed == 0.5


def test_rope_config_of_both_transformers_releases_is_read() -> None:
    since = read_model({**LLAMA, "rope_parameters": STRETCHED})
    before = {key: value for key, value in STRETCHED.items() if key != "rope_theta"}
    assert since == read_model({**LLAMA, "rope_theta": 500000.0, "rope_scaling": before})
    assert since.stretch is not None


def test_key_value_heads_default_to_query_heads() -> None:
    config = {key: value for key, value in LLAMA.items() if key not in ("num_key_value_heads", "head_dim")}
    assert (read_model(config).groups, read_model(config).head) == (4, 12)


def test_pipeline_stages_have_the_given_layers() -> None:
    model = read_model({**LLAMA, "num_hidden_layers": 9})
    assert layers_of_stages(model, 3, 0, 0) == [3, 3, 3]
    assert layers_of_stages(model, 3, 1, 0) == [1, 4, 4]
    assert layers_of_stages(model, 4, 2, 1) == [2, 3, 3, 1]
    assert layers_of_stages(model, 2, 5, 4) == [5, 4]
