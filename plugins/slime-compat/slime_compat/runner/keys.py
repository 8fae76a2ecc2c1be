"""Keys: the run file that the fields of a SlimeRunner make.

Example:

    run_file_keys(fields, num_rollout=10)["actor_num_gpus_per_node"]       # 8
"""

from slime_compat.runner.fields import RunnerFields
from slime_core.sample import Json

UNREAD = {
    "slime_dir": "nothing of slime is read",
    "megatron_dir": "megatron-core is installed as a package",
    "sglang_reasoning_parser": "what reads calls of tools reads reasoning, too",
    "cumulative_token_mode": "turns always go on from the tokens that the engine saw",
    "renderer_family": "the model's own chat template renders",
    "gateway_log_level": "the run's log has all",
}
"""Fields of the toolkit that have nothing to say here, and why."""


def run_file_keys(fields: RunnerFields, num_rollout: int) -> dict[str, Json]:
    """The run file.

    Args:
        fields: of the runner.
        num_rollout: rollouts of the run in all.
    """
    keys: dict[str, Json] = {
        "hf_checkpoint": str(fields.model_dir),
        "prompt_data": str(fields.data_path),
        "input_key": fields.input_key,
        "save": str(fields.run_dir / fields.exp_id),
        "num_rollout": num_rollout,
        "rollout_batch_size": fields.rollout_batch_size,
        "n_samples_per_prompt": fields.n_samples_per_prompt,
        "rollout_max_response_len": fields.rollout_max_response_len,
        "rollout_temperature": fields.rollout_temperature,
        "eps_clip": fields.eps_clip,
        "eps_clip_high": fields.eps_clip_high,
        "lr": fields.lr,
        "weight_decay": fields.weight_decay,
        "adam_beta2": fields.adam_beta2,
        **_scored(fields),
        **(_on_gpus(fields) if fields.num_gpus else {}),
    }
    if fields.label_key is not None:
        keys["label_key"] = fields.label_key
    if fields.apply_chat_template:
        keys["apply_chat_template"] = True
    if fields.kl_loss_coef:
        keys |= {"use_kl_loss": True, "kl_loss_type": "low_var_kl", "kl_loss_coef": fields.kl_loss_coef}
    if fields.eval_prompt_data:
        keys["eval_prompt_data"] = {name: str(path) for name, path in fields.eval_prompt_data.items()}
    keys |= {name: value for name in ("eval_interval", "save_interval") if (value := getattr(fields, name)) is not None}
    if fields.ray_address is not None:  # a job finds its cluster
        keys["launcher"] = {"use": "ray"} if fields.is_job else {"use": "ray", "ray": {"address": fields.ray_address}}
    if fields.wandb_project is not None:
        given = {"project": fields.as_written()["wandb_project"], "group": fields.as_written()["wandb_group"]}
        keys["tracker"] = {"use": "wandb", "wandb": {key: value for key, value in given.items() if value is not None}}
    return keys


def _scored(fields: RunnerFields) -> dict[str, Json]:
    """Who generates and who scores."""
    keys: dict[str, Json] = {}
    if fields.reward_postprocessing == "identity":
        keys["rewards_normalization"] = False
    if fields.agent_runtime_arn is None:
        return keys | ({"reward": {"use": fields.reward}} if fields.reward else {})
    shown = fields.as_written()
    settings: dict[str, Json] = {
        "agent_runtime_arn": shown["agent_runtime_arn"],
        "s3_bucket": shown["s3_bucket"],
        "exp_id": shown["exp_id"],
        "model_id": shown["model_id"],
        "seconds": float(fields.acr_timeout),
        "tps_limit": float(fields.acr_tps_limit),
        "max_concurrent": fields.max_concurrent,
        "max_pool_connections": fields.max_pool_connections,
        "host": shown["gateway_host"],
        "port": fields.gateway_port,
        "public_url": shown["gateway_public_url"],
        "endpoint_url": shown["acr_endpoint_url"],
        "s3_endpoint_url": shown["s3_endpoint_url"],
        "parser": None if fields.sglang_tool_call_parser == "qwen" else fields.sglang_tool_call_parser,
    }
    given: dict[str, Json] = {key: value for key, value in settings.items() if value is not None}
    return keys | {
        "generator": {"use": "agent_remote", "agent_remote": given},
        "reward": {"use": fields.reward or "environment"},
    }


def _on_gpus(fields: RunnerFields) -> dict[str, Json]:
    """Megatron and SGLang, on the same GPUs or each on its own."""
    trainer: dict[str, Json] = {
        "tensor_model_parallel_size": fields.tp_size,
        "max_tokens_per_gpu": fields.max_tokens_per_gpu,
    }
    if fields.tp_size > 1:
        trainer["sequence_parallel"] = True
    server: dict[str, Json] = {"mem_fraction_static": fields.sglang_mem_fraction_static}
    if fields.sglang_context_length is not None:
        server["context_length"] = fields.sglang_context_length
    if fields.sglang_data_parallel_size > 1:
        server["dp_size"] = fields.sglang_data_parallel_size
    return {
        "actor_num_gpus_per_node": fields.num_gpus,
        "rollout_num_gpus": fields.num_gpus,
        "rollout_num_gpus_per_engine": fields.rollout_gpus_per_engine,
        "colocate": fields.colocate,
        # Megatron cannot give its memory up: both have the GPUs at once, which sglang_mem_fraction_static divides.
        **({"offload_train": False} if fields.colocate else {}),
        "trainer": {"use": "megatron", "megatron": trainer},
        "engine": {"use": "sglang", "sglang": {"server": server}},
    }
