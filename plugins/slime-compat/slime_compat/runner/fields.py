"""Fields of SlimeRunner, with the toolkit's names and defaults; checked on creation and written as a run file.

Example:

    run_file_keys(fields, num_rollout=10)["actor_num_gpus_per_node"]       # 8
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self, cast

from pydantic import Field, ValidationError, field_validator, model_validator

from slime_core import Settings
from slime_core.errors import ConfigError, did_you_mean
from slime_core.sample import Json

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0.0, le=1.0)]
RAY_ADDRESS = re.compile(r"auto|[^\s/]+:\d+")
FORBIDDEN_FLAGS = {"--save": "run_dir and exp_id set the run folder", "--num-rollout": "train(num_rollout=…) sets it"}
"""Flags that are not allowed in extra_flags, with the setting to use instead."""


class RunnerFields(Settings):
    """Settings of a SlimeRunner's run."""

    exp_id: str = Field(
        pattern=r"^\w[\w.-]*(/\w[\w.-]*)*$", description="Name of the run and of its folder in run_dir."
    )
    model_dir: Path = Field(description="Model directory in HF format.")
    data_path: Path = Field(description="File of prompts, .jsonl or .parquet.")
    model_type: str | None = Field(
        None, description="slime's name of the model, in scripts/models. Checked against model_dir if set."
    )
    run_dir: Path = Field(Path("runs"), description="Folder for the run folder, the run file and the log.")

    num_gpus: int = Field(8, ge=0, description="GPUs per machine; 0: train on the CPU with the local plugins.")
    tp_size: Positive = Field(2, description="Tensor-parallel size of Megatron.")
    rollout_gpus_per_engine: Positive = Field(2, description="GPUs per SGLang server.")
    colocate: bool = Field(True, description="Whether training and inference share the GPUs.")
    cuda_home: Path | None = Field(None, description="CUDA's folder, for CUDA_HOME, PATH and LD_LIBRARY_PATH.")
    ray_address: str | None = Field(None, description="HOST:PORT of the head of this machine's Ray cluster, or auto.")
    slime_dir: str = Field("~/slime", description="Ignored: slime itself is not used.")
    megatron_dir: str = Field("~/Megatron-LM", description="Ignored: megatron-core is installed as a package.")

    agent_runtime_arn: str | None = Field(None, description="ARN of the agent's runtime in Amazon Bedrock AgentCore.")
    s3_bucket: str | None = Field(None, description="Name of the S3 bucket for the agent's results.")
    model_id: str = Field("default", min_length=1, description="Model name that the agent receives.")
    acr_timeout: float = Field(900, gt=0, description="Timeout of an agent session, in seconds.")
    acr_tps_limit: float = Field(25, gt=0, description="Maximum invocations per second.")
    max_concurrent: Positive = Field(100, description="Maximum concurrent sessions.")
    max_pool_connections: Positive = Field(100, description="Maximum connections to AWS.")
    gateway_port: int = Field(9090, ge=0, le=65535, description="Port of the gateway; 0: any free port.")
    gateway_host: str = Field("127.0.0.1", description='Address of the gateway; "0.0.0.0" for a runtime in AWS.')
    gateway_public_url: str | None = Field(None, description="URL by which the runtime reaches the gateway.")
    acr_endpoint_url: str | None = Field(None, description="URL of the runtime's API; default: AWS.")
    s3_endpoint_url: str | None = Field(None, description="URL of S3; default: AWS.")
    reward_postprocessing: Literal["grpo", "identity"] = Field(
        "grpo", description="Normalize rewards by group, or not."
    )
    sglang_tool_call_parser: str = Field("qwen", description="Parser of tool calls; qwen: chosen by the chat template.")
    sglang_reasoning_parser: str | None = Field(None, description="Ignored: the tool-call parser also reads reasoning.")
    sglang_data_parallel_size: Positive = Field(1, description="Data-parallel size of attention, SGLang's dp_size.")
    cumulative_token_mode: bool = Field(False, description="Ignored: each turn continues the engine's tokens.")
    renderer_family: str = Field("auto", description="Ignored: the model's chat template renders prompts.")
    gateway_log_level: str = Field("warning", description="Ignored: the run's log has all messages.")

    reward: str | None = Field(
        None, description="Name of a plugin's reward; with an agent, default: the agent's score."
    )
    input_key: str = Field("prompt", description="Column of the prompt.")
    label_key: str | None = Field(None, description="Column of the gold answer.")
    apply_chat_template: bool = Field(False, description="Render prompts through the model's chat template.")
    rollout_batch_size: Positive = Field(32, description="Prompts per rollout.")
    n_samples_per_prompt: Positive = Field(8, description="Samples per prompt.")
    rollout_max_response_len: Positive = Field(1024, description="Maximum tokens of a response.")
    rollout_temperature: float = Field(1.0, gt=0, le=10, description="Sampling temperature.")
    lr: float = Field(1e-6, gt=0, le=1, description="Learning rate.")
    eps_clip: float = Field(0.2, ge=0, description="How far a token's ratio may fall below 1.")
    eps_clip_high: float = Field(0.28, ge=0, description="How far a token's ratio may rise above 1.")
    kl_loss_coef: float = Field(0.0, ge=0, description="Weight of the KL loss to the initial model; 0: no reference.")
    weight_decay: float = Field(0.1, ge=0, description="Weight decay of AdamW.")
    adam_beta2: float = Field(0.98, ge=0, lt=1, description="Decay of AdamW's second moment.")
    sglang_mem_fraction_static: Share = Field(0.7, description="Fraction of GPU memory for a server.")
    sglang_context_length: Positive | None = Field(None, description="Maximum context length of a server, in tokens.")
    max_tokens_per_gpu: Positive = Field(9216, description="Maximum tokens of a micro-batch per GPU.")

    eval_prompt_data: dict[str, Path] = Field({}, description="Evaluation sets: files by name.")
    eval_interval: Positive | None = Field(None, description="Rollouts between two evaluations.")
    save_interval: Positive | None = Field(None, description="Rollouts between two checkpoints.")

    wandb_project: str | None = Field(None, description="Project of Weights & Biases; set WANDB_API_KEY, too.")
    wandb_group: str | None = Field(None, description="Group of the run in wandb_project.")
    extra_flags: list[str] = Field([], description="Further flags of slime train; they override all fields.")

    if not TYPE_CHECKING:  # type checkers use pydantic's signature

        def __init__(self, **values: object) -> None:
            """Check the fields.

            Raises:
                ConfigError: lists all fields that are missing, unknown, of the wrong type or out of range.
            """
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigError("SlimeRunner: " + "; ".join(_messages(error, type(self)))) from None

    @field_validator("s3_bucket")
    @classmethod
    def _not_a_url(cls, bucket: str | None) -> str | None:
        if bucket is not None and "/" in bucket:
            raise ValueError("give only the bucket's name")
        return bucket

    @field_validator("ray_address")
    @classmethod
    def _check_address(cls, address: str | None) -> str | None:
        if address is not None and not RAY_ADDRESS.fullmatch(address):
            raise ValueError("expected HOST:PORT of a head, such as head:6379, or auto; run jobs by `ray job submit`")
        return address

    @field_validator("extra_flags")
    @classmethod
    def _check_flags(cls, flags: list[str]) -> list[str]:
        for flag in flags:
            if (name := flag.partition("=")[0]) in FORBIDDEN_FLAGS:
                raise ValueError(f"{name} cannot be in extra_flags: {FORBIDDEN_FLAGS[name]}")
        return flags

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if (self.agent_runtime_arn is None) != (self.s3_bucket is None):
            raise ValueError("an agent needs both settings: give agent_runtime_arn and s3_bucket, or neither")
        if self.wandb_group is not None and self.wandb_project is None:
            raise ValueError("wandb_group needs wandb_project: give both, or neither")
        return self

    def as_written(self) -> Mapping[str, Json]:
        """The fields for a file: values from the environment stay `$env:NAME`, paths become strings."""
        return {str(name): _plain(value) for name, value in self.__repr_args__()}


def _plain(value: object) -> Json:
    match value:
        case Path():
            return str(value)
        case dict():
            return {str(key): _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
    return cast("Json", value)


def _messages(error: ValidationError, model: type[Settings]) -> list[str]:
    messages = []
    for item in error.errors(include_url=False):
        name = ".".join(map(str, item["loc"]))
        if item["type"] == "extra_forbidden":
            messages.append(f"there is no field {name!r}.{did_you_mean(name, model.model_fields)}".rstrip("."))
        elif item["type"] == "missing":
            messages.append(f"{name} is required")
        elif not name:
            messages.append(str(item["msg"]).removeprefix("Value error, "))
        else:
            text = item["msg"].removeprefix("Value error, ")
            messages.append(f"{name} = {item['input']!r}: {text[0].lower()}{text[1:]}")
    return messages


SAME = [
    "input_key", "rollout_batch_size", "n_samples_per_prompt", "rollout_max_response_len", "rollout_temperature",
    "eps_clip", "eps_clip_high", "lr", "weight_decay", "adam_beta2",
]  # fmt: skip
"""Fields with a key of the same name."""
IGNORED_FIELDS = {
    "slime_dir": "slime itself is not used",
    "megatron_dir": "megatron-core is installed as a package",
    "sglang_reasoning_parser": "the tool-call parser also reads reasoning",
    "cumulative_token_mode": "each turn continues the engine's tokens",
    "renderer_family": "the model's chat template renders prompts",
    "gateway_log_level": "the run's log has all messages",
}
"""Fields of the toolkit that have no effect here, with the reason."""


def run_file_keys(fields: RunnerFields, num_rollout: int) -> dict[str, Json]:
    """The keys of the run file.

    Args:
        fields: the runner's fields.
        num_rollout: total number of rollouts of the run.
    """
    keys: dict[str, Json] = {
        "hf_checkpoint": str(fields.model_dir),
        "prompt_data": str(fields.data_path),
        "save": str(fields.run_dir / fields.exp_id),
        "num_rollout": num_rollout,
        **{name: getattr(fields, name) for name in SAME},
        **_reward_keys(fields),
        **(_gpu_keys(fields) if fields.num_gpus else {}),
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
    if fields.ray_address is not None:
        keys["launcher"] = {"use": "ray", "ray": {"address": fields.ray_address}}
    if fields.wandb_project is not None:
        given = {"project": fields.as_written()["wandb_project"], "group": fields.as_written()["wandb_group"]}
        keys["tracker"] = {"use": "wandb", "wandb": {key: value for key, value in given.items() if value is not None}}
    return keys


def _reward_keys(fields: RunnerFields) -> dict[str, Json]:
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


def _gpu_keys(fields: RunnerFields) -> dict[str, Json]:
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
        # Megatron cannot release its memory, so both share the GPUs, split by sglang_mem_fraction_static.
        **({"offload_train": False} if fields.colocate else {}),
        "trainer": {"use": "megatron", "megatron": trainer},
        "engine": {"use": "sglang", "sglang": {"server": server}},
    }
