"""Settings of the trainer: arguments for megatron-core, with its names, types, defaults and help.

The settings are generated from the source of the installed megatron-core when the trainer is chosen. Other arguments
of megatron-core, and arguments that the run or the model determines, are rejected by name.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Literal, Self, cast

from pydantic import ByteSize, Field, create_model, field_validator, model_validator

from slime_core.errors import ConfigError, did_you_mean
from slime_core.roles import Coefficient, Positive, Settings, Workers
from slime_trainer_megatron.dimensions import DIMENSIONS, check_dimensions
from slime_trainer_megatron.families import Model
from slime_trainer_megatron.freezing import Patterns
from slime_trainer_megatron.installed import fields
from slime_trainer_megatron.layout import Layout

ARGUMENTS: Mapping[str, object] = {
    "tensor_model_parallel_size": Workers,
    "pipeline_model_parallel_size": Workers,
    "num_layers_in_first_pipeline_stage": Positive | None,
    "num_layers_in_last_pipeline_stage": Positive | None,
    "context_parallel_size": Workers,
    "expert_model_parallel_size": Workers,
    "expert_tensor_parallel_size": Workers | None,
    "sequence_parallel": bool,
    "recompute_granularity": Literal["full", "selective"] | None,
    "recompute_method": Literal["uniform", "block"] | None,
    "recompute_num_layers": Positive | None,
    "recompute_modules": list[Literal["core_attn", "mla_up_proj", "mlp", "moe", "shared_experts"]] | None,
    "moe_aux_loss_coeff": Coefficient,
    "mtp_num_layers": Positive | None,
    "mtp_loss_scaling_factor": Coefficient,
    "overlap_grad_reduce": bool,
    "bucket_size": Positive | None,
    "use_distributed_optimizer": bool,
    "optimizer_cpu_offload": bool,
    "optimizer_offload_fraction": Annotated[float, Field(ge=0.0, le=1.0)],
}
"""Arguments passed to megatron-core, with their constraints."""
RUN_KEYS = {
    "lr": "lr",
    "min_lr": "min_lr",
    "weight_decay": "weight_decay",
    "adam_beta1": "adam_beta1",
    "adam_beta2": "adam_beta2",
    "adam_eps": "adam_eps",
    "clip_grad": "clip_grad",
    "bf16": "bf16",
    "calculate_per_token_loss": "calculate_per_token_loss",
}
"""Arguments that the run determines for every trainer: Megatron's name -> the run's key."""
MODEL_KEYS = ("moe_layer_freq", "moe_router_pre_softmax")
"""Arguments that the model determines, in addition to its `DIMENSIONS`."""
REASONS = {
    "overlap_param_gather": "weights are gathered at the end of every step",
    "num_distributed_optimizer_instances": "the moments are distributed over all replicas",
    "average_in_collective": "gradients are summed, because token weights already cover the whole step",
    "grad_reduce_in_fp32": "gradients are always summed in fp32",
    "moe_enable_routing_replay": "set use_rollout_routing_replay = true to replay the engine's routing",
    "moe_router_bias_update_rate": "router biases keep their loaded values",
    "moe_expert_capacity_factor": "no token is dropped",
    "moe_token_dispatcher_type": "tokens are sent to experts by all-to-all",
    "cpu_offloading": "it needs Transformer Engine; recompute_granularity saves memory for activations instead",
    "use_precision_aware_optimizer": "it needs Transformer Engine",
    "virtual_pipeline_model_parallel_size": "each pipeline stage has one contiguous block of layers",
    "hidden_dropout": "dropout would make the policy's log-probs differ from the sampler's",
    "attention_dropout": "dropout would make the policy's log-probs differ from the sampler's",
    "fp16": "the trainer computes in fp32, or in bf16 with bf16 = true",
    "fp8": "the trainer computes in fp32, or in bf16 with bf16 = true",
    "params_dtype": "the trainer computes in fp32, or in bf16 with bf16 = true",
}
"""Reasons why some arguments are not supported."""
EXPERT_SETTINGS = (
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "moe_aux_loss_coeff",
    "use_rollout_routing_replay",
)
"""Settings that have no effect on a model without experts."""
RECOMPUTED_PARTS: Mapping[str, Callable[[Model], object]] = {
    "mla_up_proj": lambda model: model.latent,
    "moe": lambda model: model.experts,
    "shared_experts": lambda model: model.experts and model.experts.shared,
}
"""Values of `recompute_modules` whose module only some models have."""
POLICY_ONLY = ("mtp_num_layers", "mtp_loss_scaling_factor", "use_rollout_routing_replay")
"""Arguments that apply to the policy and not to a critic."""
NAME, CRITIC = "MegatronSettings", "MegatronCriticSettings"


class CriticBase(Settings):
    """Base of `[trainer.megatron.critic]`, without megatron-core's arguments; missing keys take the policy's values."""

    max_tokens_per_gpu: int | None = Field(
        None, ge=1, le=10**9, description="Maximum tokens of a micro-batch of the critic; default: the policy's value."
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_foreign(cls, given: object) -> object:
        return _refuse_others(given)


class MegatronBase(Settings):
    """Base of `[trainer.megatron]`, without megatron-core's arguments."""

    num_gpus: int = Field(
        2, ge=1, le=65536, description="Number of ranks: `actor_num_nodes` times `actor_num_gpus_per_node`."
    )
    max_tokens_per_gpu: int = Field(
        16384,
        ge=1,
        le=10**9,
        description="Maximum tokens of a micro-batch, prompts included; multiplied by context_parallel_size.",
    )
    device: Literal["cpu", "cuda"] = Field(
        "cpu", description="Device of the ranks. With cuda, each rank uses one GPU and ranks communicate by NCCL."
    )
    model_type: str | None = Field(
        None,
        description="slime's name of the model, such as qwen3-4B. The run is refused if config.json has other sizes. "
        "Needs slime-compat, which lists the names.",
    )
    log_probs_chunk_size: int = Field(
        1024,
        ge=1,
        le=10**9,
        description="Response tokens whose logits are in memory at once; the backward pass recomputes them.",
    )

    max_shard_size: ByteSize = Field(
        ByteSize(5 * 10**9), ge=1, le=2**50, description="Approximate size of a file of hf/: bytes, 256MiB or 5GB."
    )
    critic: CriticBase | None = Field(
        None, description="The critic's settings, where they differ from the policy's. The layout must be the same."
    )
    use_rollout_routing_replay: bool = Field(
        False, description="Route tokens to the experts that the engine's routers chose. The engine must return them."
    )

    only_train_params_name_list: list[str] = Field(
        [],
        description="Train only weights whose Megatron name matches one of these regular expressions; slime's flag.",
    )
    freeze_params_name_list: list[str] = Field(
        [], description="Freeze weights whose Megatron name matches one of these regular expressions; slime's flag."
    )

    @field_validator("only_train_params_name_list", "freeze_params_name_list", mode="before")
    @classmethod
    def _one_name(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("only_train_params_name_list", "freeze_params_name_list")
    @classmethod
    def _compiles(cls, patterns: list[str]) -> list[str]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return patterns

    @model_validator(mode="before")
    @classmethod
    def _refuse_foreign(cls, given: object) -> object:
        return _refuse_others(given)

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        layout_of(self).check_ranks()
        for why in _without_effect(self.__dict__, layout_of(self)):
            raise ValueError(why)
        if self.only_train_params_name_list and self.freeze_params_name_list:
            raise ValueError(
                "only_train_params_name_list and freeze_params_name_list exclude each other: give one of them"
            )
        if self.critic is not None:
            _check_critic(self, self.critic)
        return self


def critic_settings(settings: Settings) -> Settings:
    """Settings of the critic: the policy's, overridden by `[trainer.megatron.critic]`."""
    critic: Settings | None = settings.__dict__["critic"]
    own = {} if critic is None else {name: value for name, value in critic.__dict__.items() if value is not None}
    without = {name: type(settings).model_fields[name].default for name in (*POLICY_ONLY, "critic")}
    return settings.model_copy(update={**own, **without})


def _check_critic(settings: Settings, critic: Settings) -> None:
    for name, value in critic.__dict__.items():
        if name in POLICY_ONLY and value is not None:
            raise ValueError(f"critic.{name} has no effect here: it applies only to the policy; leave it out")
        if name.endswith("_size") and name != "bucket_size" and value not in (None, settings.__dict__[name]):
            raise ValueError(
                f"critic.{name} = {value}: the critic has the policy's layout, with {name} = "
                f"{settings.__dict__[name]}; leave it out"
            )
    for why in _without_effect(critic_settings(settings).__dict__, layout_of(settings)):
        raise ValueError(f"critic: {why}")


def _refuse_others(given: object) -> object:
    for name in given if isinstance(given, Mapping) else ():
        if why := refusal(str(name)):
            raise ValueError(why)
    return given


def refusal(name: str) -> str:
    """Why an argument of Megatron is not supported, or the likely spelling; "" for settings and unknown names."""
    if name in RUN_KEYS:
        key = RUN_KEYS[name]
        return f"{name} is a key of the run: set {key} at the top of the run file, or --{key.replace('_', '-')}"
    if name in MODEL_KEYS:
        return f"{name} is read from the model's config.json; leave it out"
    if name in ARGUMENTS or name in DIMENSIONS or name in MegatronBase.model_fields:
        return ""
    if name not in fields():
        nearest = did_you_mean(name, {*fields(), *MegatronBase.model_fields})
        why = next((refusal(each) for each in fields() if repr(each) in nearest), "")
        return f"unknown setting {name}.{nearest} But {why}" if why else ""
    reason = f": {REASONS[name]}" if name in REASONS else ""
    return (
        f"{name} of megatron-core's {fields()[name].owner} is not supported by this trainer{reason}; leave it out. "
        f"Supported are {', '.join(ARGUMENTS)}.{did_you_mean(name, ARGUMENTS)}"
    )


def layout_of(settings: Settings) -> Layout:
    """The parallel layout in the settings."""
    given = cast(Mapping[str, int], settings.__dict__)
    return Layout(
        given["num_gpus"],
        tensor=given["tensor_model_parallel_size"],
        pipeline=given["pipeline_model_parallel_size"],
        context=given["context_parallel_size"],
        expert=given["expert_model_parallel_size"],
        expert_tensor=given["expert_tensor_parallel_size"] or 0,
        first=given["num_layers_in_first_pipeline_stage"] or 0,
        last=given["num_layers_in_last_pipeline_stage"] or 0,
    )


def check_model(settings: Settings, model: Model) -> None:
    """Check that a model fits a layout.

    Raises:
        ConfigError: it does not fit.
    """
    layout = layout_of(settings)
    layout.check(model)
    if layout.tensor > 1 and not settings.__dict__["sequence_parallel"]:
        for has, what in ((model.experts, "experts"), (model.latent, "latent attention")):
            if has:
                raise ConfigError(
                    f"[trainer.megatron] tensor_model_parallel_size = {layout.tensor}: the model ({model.family}) has "
                    f"{what}, which Megatron splits over ranks only with sequence_parallel = true; set it, or "
                    "tensor_model_parallel_size = 1"
                )
    if model.further and model.tied and layout.pipeline > 1:
        raise ConfigError(
            f"[trainer.megatron] mtp_num_layers = {model.further} with pipeline_model_parallel_size = "
            f"{layout.pipeline}: the model ({model.family}) ties its output layer to the embedding, so Megatron would "
            "have two copies of it on the last stage; give one stage, or leave mtp_num_layers out"
        )
    _check_experts(model)


def _check_experts(model: Model) -> None:
    experts = model.experts
    if experts and experts.chosen > experts.count:
        raise ConfigError(
            f"the model's config.json says num_experts_per_tok = {experts.chosen} of num_experts = {experts.count}, "
            f"but a token can use at most {experts.count} experts; use another model"
        )
    if experts and experts.chosen == 1 and experts.normalised:
        raise ConfigError(
            "the model's config.json says num_experts_per_tok = 1 with norm_topk_prob = true: the weight of the only "
            "expert of a token is always 1, so its router would not learn. Use a model with norm_topk_prob = false, or "
            "with 2 or more experts per token"
        )


def check_effect(settings: Settings, model: Model) -> None:
    """Check that every given setting has an effect on the trained model.

    Raises:
        ConfigError: a setting has no effect.
    """
    check_dimensions(settings, model)
    given, stage_layers = settings.__dict__, model.layers // layout_of(settings).pipeline
    if (recomputed := given["recompute_num_layers"] or 0) > stage_layers:
        raise ConfigError(
            f"[trainer.megatron] recompute_num_layers = {recomputed}: a pipeline stage has {stage_layers} of the "
            f"model's {model.layers} layers; give at most {stage_layers}"
        )
    if model.experts is None and "moe" in (given["recompute_modules"] or ()):
        raise ConfigError(
            f'[trainer.megatron] recompute_modules: "moe" has no effect here: the model ({model.family}) has no '
            'experts; give "mlp"'
        )
    for name in EXPERT_SETTINGS if model.experts is None else ():
        if settings.__dict__[name] not in (None, settings_model().model_fields[name].default):
            raise ConfigError(
                f"[trainer.megatron] {name} has no effect here: the model ({model.family}) has no experts; leave it out"
            )
    for part in settings.__dict__["recompute_modules"] or ():
        if part in RECOMPUTED_PARTS and not RECOMPUTED_PARTS[part](model):
            raise ConfigError(
                f"[trainer.megatron] recompute_modules: {part!r} has no effect here: the model ({model.family}) has "
                "none; leave it out"
            )


def patterns_of(settings: Settings) -> Patterns:
    """Patterns of trained and frozen weights."""
    given = settings.__dict__
    return Patterns(given["only_train_params_name_list"], given["freeze_params_name_list"])


def megatron_arguments(settings: Settings, owner: str) -> dict[str, object]:
    """Arguments by name for a configuration class of megatron-core.

    Args:
        settings: validated settings.
        owner: the class that defines the arguments, see `slime_trainer_megatron.installed.Field`.
    """
    return {name: settings.__dict__[name] for name in ARGUMENTS if fields()[name].owner == owner}


def _without_effect(given: Mapping[str, object], layout: Layout) -> Iterator[str]:
    if given["sequence_parallel"] and layout.tensor == 1:
        yield "sequence_parallel has no effect here: it needs tensor_model_parallel_size of 2 or more"
    for name in ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"):
        if given[name] and layout.pipeline == 1:
            yield f"{name} has no effect here: it needs pipeline_model_parallel_size of 2 or more"
    if given["overlap_grad_reduce"] and layout.data * layout.context == 1:
        yield "overlap_grad_reduce has no effect here: there is one replica of the model"
    if layout.expert == 1 and layout.expert_tensor != layout.tensor:
        yield (
            f"expert_tensor_parallel_size = {layout.expert_tensor} with tensor_model_parallel_size = {layout.tensor} "
            "needs expert_model_parallel_size of 2 or more"
        )
    if given["mtp_loss_scaling_factor"] != fields()["mtp_loss_scaling_factor"].default and not given["mtp_num_layers"]:
        yield "mtp_loss_scaling_factor has no effect here: set mtp_num_layers"
    if given["bucket_size"] and not given["overlap_grad_reduce"]:
        yield "bucket_size has no effect here: set overlap_grad_reduce = true"
    if given["use_distributed_optimizer"] and layout.data * layout.context == 1:
        yield "use_distributed_optimizer has no effect here: there is only one replica of the model"
    if given["optimizer_offload_fraction"] and not given["optimizer_cpu_offload"]:
        yield "optimizer_offload_fraction has no effect here: set optimizer_cpu_offload = true"
    granularity = given["recompute_granularity"]
    for name in ("recompute_method", "recompute_num_layers"):
        if given[name] and granularity != "full":
            yield f'{name} has no effect here: set recompute_granularity = "full"'
        if not given[name] and granularity == "full":
            yield f'recompute_granularity = "full" needs {name}'
    if given["recompute_modules"] and granularity != "selective":
        yield 'recompute_modules has no effect here: set recompute_granularity = "selective"'


@functools.cache
def settings_model() -> type[Settings]:
    """The settings model of `[trainer.megatron]`, from the installed megatron-core.

    Raises:
        PluginError: megatron-core is not installed.
    """
    definitions: dict[str, tuple[object, object]] = {
        name: (annotation, Field(fields()[name].default, description=fields()[name].help))
        for name, annotation in ARGUMENTS.items()
    }
    for name, kind in DIMENSIONS.items():
        text = f"{fields()[name].help} Read from the model's config.json; a value given here must match it."
        definitions[name] = (kind, Field(None, description=text.strip()))
    critic = critic_model()
    definitions["critic"] = (critic | None, MegatronBase.model_fields["critic"])
    model = create_model(NAME, __base__=MegatronBase, __module__=__name__, **definitions)  # type: ignore[call-overload]
    return cast(type[Settings], model)


@functools.cache
def critic_model() -> type[Settings]:
    """The settings model of `[trainer.megatron.critic]`."""
    definitions = {
        name: (annotation | None, Field(None, description=fields()[name].help))  # type: ignore[operator]
        for name, annotation in ARGUMENTS.items()
    }
    model = create_model(CRITIC, __base__=CriticBase, __module__=__name__, **definitions)  # type: ignore[call-overload]
    return cast(type[Settings], model)


def __getattr__(name: str) -> object:
    """The generated classes by name, so that other processes can unpickle them."""
    if name in (NAME, CRITIC):
        return settings_model() if name == NAME else critic_model()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
