"""The core's own keys: their names, types, bounds and defaults; and `RunConfig`, which holds them all.

Each key is flat in the run file and a flag on the command line. Where a key does the same as in slime, it has
slime's name. Settings of plugins are in their own sections.

Example:

    config = parse_config({"prompt_data": "train.jsonl", "reward": {"use": "math"}, ...})
    config.rollout.rollout_batch_size           # rollout_batch_size = 64, or --rollout-batch-size 64
    config.roles["reward"].use
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import (
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from slime_core.config.run_file import TABLE, plugins_table
from slime_core.config.settings import DEFAULT_USE, ResolvedChoice, RoleTable
from slime_core.roles import (
    Coefficient,
    EngineSpec,
    KlType,
    MinNewTokens,
    MinP,
    Penalty,
    PluginSet,
    Positive,
    RepetitionPenalty,
    SamplingParams,
    Settings,
    Temperature,
    TokenId,
    TopK,
    TopP,
    Weight,
    Workers,
)
from slime_core.sample import Json

# Family: base of the core's own keys, flat in the run file. `$env:NAME` is not resolved in them.


class Family(Settings):
    """Base of each family of keys."""

    _reads_environment: ClassVar[bool] = False


def changed_keys(family: Family) -> frozenset[str]:
    """The keys with a value other than their default."""
    fields = type(family).model_fields.items()
    return frozenset(key for key, info in fields if getattr(family, key) != info.get_default(call_default_factory=True))


# Keys of prompts, rollouts, evaluations and the optimizer.

Texts = list[Annotated[str, Field(min_length=1)]]
MediaKeys = dict[Literal["image", "video", "audio"], str]
LastMessage = Literal["refuse", "continue", "cut"]
Policy = Literal["sync", "async", "continuous"]
DecayStyle = Literal["constant", "linear", "cosine", "inverse-square-root", "WSD"]
LastDecayStyle = Literal["exponential", "linear", "cosine", "minus_sqrt"]
MatmulPrecision = Literal["highest", "high", "medium"]
Count = Annotated[int, Field(ge=0, le=10**9)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0.0, le=1e7)]


class DataArgs(Family):
    """Prompts."""

    prompt_data: list[str] = Field([], description="Prompt files, .jsonl or .parquet; FILE@[a:b] takes a slice.")
    input_key: str = Field("input", description="Column of the prompt: a string or a list of chat messages.")
    label_key: str | None = Field(None, description="Column of the gold answer.")
    metadata_key: str = Field("metadata", description="Column of a mapping kept with the sample; may be absent.")
    tool_key: str = Field("tools", description="Column of tool definitions for the chat template; may be absent.")
    multimodal_keys: MediaKeys = Field({}, description='Column of each kind of media (JSON), {"image": "images"}.')
    apply_chat_template: bool = Field(False, description="Render prompts through the model's chat template.")
    apply_chat_template_kwargs: dict[str, JsonValue] = Field({}, description="Extra chat template arguments (JSON).")
    final_assistant_message: LastMessage = Field("refuse", description="How to treat a final assistant message.")
    rollout_shuffle: bool = Field(False, description="Shuffle prompts; each epoch's order derives from the seed.")
    rollout_max_prompt_len: Positive | None = Field(None, description="Skip prompts with more tokens.")
    max_bad_row_rate: Share = Field(0.0, description="Largest share of bad rows, which are skipped.")
    accept_changed_data: bool = Field(False, exclude=True, description="Resume even if prompt files changed.")

    @field_validator("prompt_data", mode="before")
    @classmethod
    def _one_file(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_serializer("prompt_data")
    def _as_given(self, value: list[str]) -> str | list[str]:
        return value[0] if len(value) == 1 else value


class RolloutArgs(Family):
    """Rollout."""

    rollout_batch_size: Positive = Field(32, description="Groups trained on per rollout.")
    n_samples_per_prompt: Positive = Field(8, description="Samples in a group.")
    num_rollout: Positive | None = Field(None, description="Rollouts of the run; or give num_epoch.")
    num_epoch: Positive | None = Field(None, description="Passes over the prompts; or give num_rollout.")
    rollout_policy: Policy = Field(
        "sync",
        description="sync: between training steps (reproducible); async: one rollout ahead; continuous: all the time.",
    )
    max_staleness: Count | None = Field(None, description="Weight versions that a group may lag; default 1.")
    partial_rollout: bool = Field(False, description="Interrupt samples when the weights change, then continue.")
    mask_offpolicy_in_partial_rollout: bool = Field(False, description="Mask tokens from older weights in the loss.")
    update_weights_interval: Positive = Field(1, description="Rollouts between weight updates of the engines.")
    over_sampling_batch_size: Positive | None = Field(None, description="Groups per draw; default rollout_batch_size.")
    max_filter_waves: Positive = Field(16, description="End the run after this many waves without enough kept groups.")
    rollout_max_response_len: Positive = Field(256, description="Most tokens of a response.")
    rollout_max_context_len: Positive | None = Field(None, description="Most tokens of prompt and answer together.")
    rollout_max_turns: Positive | None = Field(None, description="Most engine calls of a sample.")
    rollout_temperature: float = Field(1.0, gt=0.0, le=10.0, description="Sampling temperature.")
    rollout_top_p: TopP = Field(1.0, description="Nucleus (top-p) sampling mass; 1 is off.")
    rollout_top_k: TopK = Field(-1, description="Likeliest tokens to sample from; -1 is off.")
    rollout_min_p: MinP = Field(0.0, description="Minimum probability, relative to the likeliest token; 0 is off.")
    accept_biased_sampling: bool = Field(False, description="Allow top_p, top_k or min_p that bias gradients.")
    rollout_stop: Texts = Field([], description="Texts that end a response; their tokens stay in it.")
    rollout_stop_token_ids: list[TokenId] = Field(
        [], description="Ids that end a response, in addition to the model's."
    )
    rollout_skip_special_tokens: bool = Field(True, description="Leave special tokens out of a response's text.")
    max_concurrency: Positive = Field(4096, description="Most samples in flight at once.")
    sample_timeout_s: Seconds = Field(600.0, description="Seconds that a sample may take.")
    rollout_num_engines: Workers = Field(1, description="Engines of the chosen kind that share the samples.")
    rollout_engine_timeout_s: Seconds | None = Field(
        None, description="Replace an engine silent for this long; default sample_timeout_s / 2, at most 300 s."
    )
    reward_on_error: Literal["drop", "mask", "raise"] = Field("drop", description="How to treat a failed sample.")
    max_error_rate: Share = Field(0.05, description="Stop the run above this share of failed samples.")

    @property
    def staleness(self) -> int:
        """Weight versions by which a group may lag."""
        return 1 if self.max_staleness is None else self.max_staleness

    def sampling(self) -> SamplingParams:
        """Sampling parameters of training samples."""
        return SamplingParams(
            max_new_tokens=self.rollout_max_response_len,
            temperature=self.rollout_temperature,
            top_p=self.rollout_top_p,
            top_k=self.rollout_top_k,
            stop_token_ids=frozenset(self.rollout_stop_token_ids),
            min_p=self.rollout_min_p,
            stop=tuple(self.rollout_stop),
            skip_special_tokens=self.rollout_skip_special_tokens,
        )


class EvalSetArgs(Family):
    """One evaluation data set, a table `[eval_prompt_data.aime]`. Omitted keys default to the run's keys."""

    path: str = Field(description="Prompt file, .jsonl or .parquet; file@[a:b] takes a slice.")
    reward: str | None = Field(None, description="Reward for this set, instead of the run's rewards.")
    generator: str | None = Field(None, description="Generator for this set, instead of the run's.")
    n_samples_per_eval_prompt: Positive | None = Field(None, description="Samples per prompt.")
    temperature: Temperature | None = Field(None, description="Sampling temperature; 0 is greedy.")
    top_p: TopP | None = Field(None, description="Nucleus (top-p) sampling mass.")
    top_k: TopK | None = Field(None, description="Likeliest tokens to sample from.")
    min_p: MinP | None = Field(None, description="Minimum probability, relative to the likeliest token.")
    max_response_len: Positive | None = Field(None, description="Most tokens of a response.")
    min_new_tokens: MinNewTokens | None = Field(None, description="Fewest tokens before a stop token.")
    stop: Texts | None = Field(None, description="Texts that end a response.")
    stop_token_ids: list[TokenId] | None = Field(None, description="Ids that end a response.")
    no_stop_trim: bool | None = Field(None, description="Leave the stop text in the response's text; the default.")
    skip_special_tokens: bool | None = Field(None, description="Leave special tokens out of a response's text.")
    repetition_penalty: RepetitionPenalty | None = Field(None, description="Divisor for logits of earlier tokens.")
    presence_penalty: Penalty | None = Field(None, description="Subtracted once from logits of generated tokens.")
    frequency_penalty: Penalty | None = Field(None, description="Subtracted from logits once per occurrence.")
    input_key: str | None = Field(None, description="Column of the prompt.")
    label_key: str | None = Field(None, description="Column of the gold answer.")
    metadata_key: str | None = Field(None, description="Column of a mapping kept with the sample.")
    tool_key: str | None = Field(None, description="Column of tool definitions for the chat template.")
    multimodal_keys: MediaKeys | None = Field(None, description="Column of each kind of media.")
    apply_chat_template: bool | None = Field(None, description="Render prompts through the model's chat template.")
    apply_chat_template_kwargs: dict[str, JsonValue] | None = Field(None, description="Extra template arguments.")
    final_assistant_message: LastMessage | None = Field(None, description="How to treat a final assistant message.")

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: object) -> object:
        return {"path": value} if isinstance(value, str) else value

    @model_serializer(mode="wrap")
    def _to_path(self, handler: SerializerFunctionWrapHandler) -> dict[str, JsonValue] | str:
        table = {key: value for key, value in handler(self).items() if value is not None}
        return str(table["path"]) if table.keys() == {"path"} else table


class EvalArgs(Family):
    """Evaluation."""

    eval_prompt_data: dict[str, EvalSetArgs] = Field({}, description="Evaluation sets: NAME PATH, or a table each.")
    eval_interval: Positive | None = Field(None, description="Rollouts between evaluations.")
    skip_eval_before_train: bool = Field(False, description="Do not evaluate before the first rollout.")
    n_samples_per_eval_prompt: Positive = Field(1, description="Samples per prompt; pass@k when more than 1.")
    eval_input_key: str | None = Field(None, description="Prompt column; default: input_key's value.")
    eval_label_key: str | None = Field(None, description="Gold answer column; default: label_key's value.")
    eval_temperature: Temperature | None = Field(None, description="0 is greedy; default: rollout_temperature's value.")
    eval_top_p: TopP | None = Field(None, description="Nucleus mass; default: rollout_top_p's value.")
    eval_top_k: TopK | None = Field(None, description="Likeliest tokens; default: rollout_top_k's value.")
    eval_max_response_len: Positive | None = Field(None, description="Most tokens; default: training's value.")
    eval_min_new_tokens: MinNewTokens = Field(0, description="Fewest tokens before a stop token.")


class OptimArgs(Family):
    """Optimization."""

    lr: float = Field(1e-6, gt=0.0, le=1.0, description="Peak learning rate of AdamW.")
    lr_warmup_iters: Count = Field(0, description="Optimizer steps of linear warm-up.")
    lr_warmup_fraction: float | None = Field(None, gt=0.0, le=1.0, description="Warm-up as a share of lr_decay_iters.")
    lr_decay_style: DecayStyle = Field("constant", description="Shape of the decay after warm-up.")
    lr_decay_iters: Positive | None = Field(None, description="Optimizer step where the decay ends; default: the last.")
    lr_wsd_decay_iters: Positive | None = Field(None, description="Optimizer steps of the decay that ends WSD.")
    lr_wsd_decay_style: LastDecayStyle = Field("exponential", description="Shape of the decay that ends WSD.")
    min_lr: Share = Field(0.0, description="Learning rate at the end of the decay.")
    adam_beta1: float = Field(0.9, ge=0.0, lt=1.0, description="Decay of the first moment.")
    adam_beta2: float = Field(0.95, ge=0.0, lt=1.0, description="Decay of the second moment.")
    adam_eps: float = Field(1e-8, gt=0.0, le=1.0, description="Added to the root of the second moment.")
    weight_decay: float = Field(0.0, ge=0.0, le=10.0, description="Decoupled weight decay of matrices.")
    clip_grad: Coefficient = Field(1.0, description="Global gradient norm limit; 0 is off.")
    num_steps_per_rollout: Positive = Field(1, description="Optimizer steps per rollout.")
    balance_by_flops: bool = Field(False, description="Balance ranks by FLOPs instead of tokens.")
    calculate_per_token_loss: bool = Field(False, description="Average the loss over tokens instead of samples.")
    constant_loss_length: Positive | None = Field(None, description="Divide a sample's losses by this (Dr.GRPO).")
    reset_optimizer_states: bool = Field(False, description="Reset the optimizer's moments before each rollout.")
    keep_old_actor: bool = Field(False, description="Compute ratios to the weights that generated the rollout.")
    max_mean_logprob_abs_diff: Weight | None = Field(None, description="End the run above this mean log-prob mismatch.")
    max_logprob_abs_diff: Weight | None = Field(None, description="End the run above this mismatch of one token.")


# Numbers of workers that train and generate, by slime's names. On a CPU, a worker is a process instead of a GPU.


class ClusterArgs(Family):
    """Workers."""

    actor_num_nodes: Workers | None = Field(None, description="Nodes that train; default 1.")
    actor_num_gpus_per_node: Workers | None = Field(None, description="Trainer ranks on each node.")
    rollout_num_gpus: Workers | None = Field(None, description="GPUs, or processes, of all engines.")
    rollout_num_gpus_per_engine: Workers | None = Field(None, description="GPUs, or processes, of one engine.")
    colocate: bool = Field(False, description="Engines and trainer take turns on the same devices.")
    offload_train: bool | None = Field(None, description="Ranks release memory while engines generate.")
    offload_rollout: bool | None = Field(None, description="Engines release memory while ranks train.")

    @property
    def offloads_train(self) -> bool:
        """Whether ranks release memory."""
        return self.colocate if self.offload_train is None else self.offload_train

    @property
    def offloads_rollout(self) -> bool:
        """Whether engines release memory."""
        return self.colocate if self.offload_rollout is None else self.offload_rollout


# Companion models: a reference and its KL terms, a teacher, a critic.


class ReferenceArgs(Family):
    """Reference model."""

    use_kl_loss: bool = Field(False, description="Compute the KL to the reference model in the loss.")
    kl_loss_coef: Coefficient = Field(0.0, description="Weight of that KL in the loss; 0 reports it only.")
    kl_loss_type: KlType = Field("k1", description="How a token's KL to the reference is estimated.")
    use_unbiased_kl: bool = Field(False, description="Weight that KL by the importance ratio (DeepSeek-V3.2).")
    kl_coef: Coefficient = Field(0.0, description="Reward penalty per nat of KL to the reference.")
    ref_load: Path | None = Field(None, description="Model directory of the reference; default hf_checkpoint.")
    ref_update_interval: Positive | None = Field(None, description="Rollouts between updates of the reference.")


class DistillationArgs(Family):
    """On-policy distillation."""

    use_opd: bool = Field(False, description="Subtract the reverse KL to a teacher from the advantages.")
    opd_kl_coef: Weight = Field(1.0, description="Advantage penalty per nat of that KL.")
    opd_teacher_load: Path | None = Field(
        None, description="Teacher's model directory; default: read teacher_log_probs from samples."
    )
    opd_teacher_model: str | None = Field(None, description="Served teacher: NAME of [served_models.NAME].")


class CriticArgs(Family):
    """Critic."""

    critic_load: Path | None = Field(None, description="Initial model directory of the critic; default hf_checkpoint.")
    critic_lr: float | None = Field(None, gt=0.0, le=1.0, description="Peak learning rate of the critic; default lr.")
    critic_lr_warmup_iters: Count = Field(0, description="Optimizer steps of the critic's warm-up.")
    value_clip: Weight = Field(0.2, description="PPO clip range of values.")
    num_critic_only_steps: Count = Field(0, description="Number of first rollouts that train only the critic.")


# Served models: tables of `served_models`, each with separate engines.


class ServedModelArgs(Family):
    """One model, as a table: `[served_models.judge]`."""

    hf_checkpoint: Path = Field(description="Model directory in HF format: weights, config and tokenizer.")
    engine: str | None = Field(None, description="Engine that serves it; default: the policy's engine.")
    engines: Workers = Field(1, description="Engines that share its requests.")
    settings: dict[str, JsonValue] = Field({}, description="Settings of that engine that differ from its section.")


class ServedArgs(Family):
    """Served models."""

    served_models: dict[str, ServedModelArgs] = Field({}, description="Models served in addition to the policy.")

    @field_validator("served_models")
    @classmethod
    def _plain_names(cls, models: dict[str, ServedModelArgs]) -> dict[str, ServedModelArgs]:
        for name in models:
            if not (name.replace("_", "").replace("-", "").isalnum() and name.isascii()):
                raise ValueError(f"{name!r} is not a name of a model: use letters, digits, '-' and '_'")
        return models


@dataclass(frozen=True, slots=True)
class Served:
    """A served model of a plan."""

    model: Path
    """Its model directory."""
    engine: ResolvedChoice[EngineSpec]
    """Its engine, with settings."""
    engines: int
    """Number of engines."""


ServedPlan = Mapping[str, Served]
"""Served models by the names of their tables."""


# Alarms: thresholds for warnings, and which of them end the run.

AlarmName = Literal["entropy", "length", "same_reward", "no_variance", "kl", "mismatch", "errors", "hacking"]


class AlarmArgs(Family):
    """Alarms."""

    alarm_entropy: float = Field(
        0.1, ge=0.0, lt=1.0, description="Warn when entropy falls below this share of its first value; 0 is off."
    )
    alarm_length: Coefficient = Field(2.0, description="Warn when responses grow by this factor; 0 is off.")
    alarm_no_variance: Share = Field(0.9, description="Warn at this share of groups with equal rewards; 0 is off.")
    alarm_kl: Coefficient = Field(0.5, description="Warn when KL per token reaches this; 0 is off.")
    alarm_mismatch: Coefficient = Field(
        0.05, description="Warn at this log-prob mismatch of trainer and engine; 0 is off."
    )
    alarm_errors: Share = Field(0.02, description="Warn at this share of failed samples; 0 is off.")
    alarm_hacking: Coefficient = Field(
        0.2, description="Warn when the score falls by this share below its best; 0 is off."
    )
    stop_on_alarms: list[AlarmName] = Field([], description="Alarms that end the run.")


# Keys for debugging one half of a run (generation or training), and for the run folder.


class DebugArgs(Family):
    """Debugging only generation or only training."""

    debug_rollout_only: bool = Field(False, description="Start no trainer: generate and keep samples.")
    debug_train_only: bool = Field(False, description="Start no engine: train on load_debug_rollout_data.")
    load_debug_rollout_data: Path | None = Field(None, description="Run folder whose samples are trained on.")
    load_debug_rollout_data_subsample: float = Field(1.0, gt=0.0, le=1.0, description="Share of its groups to use.")
    save_debug_train_data: str | None = Field(
        None, description="File of training data, {rollout_id}-{rank}.safetensors."
    )


class RunArgs(Family):
    """Run."""

    hf_checkpoint: Path = Field(description="Model directory in HF format: weights, config and tokenizer.")
    save: Path = Field(description="Run folder; default runs/NAME of the run file.")
    save_interval: Positive = Field(10, description="Rollouts between checkpoints; the last one is always kept.")
    save_keep: Positive = Field(2, description="Newest checkpoints to keep.")
    save_best: str | None = Field(None, description="Evaluation set; RUN/best links to the best checkpoint on it.")
    checkpoint_hf: bool = Field(True, description="Write the model in HF format into each checkpoint.")
    save_hf: str | None = Field(None, description="Directory of another copy in HF format; may have {rollout_id}.")
    async_save: bool = Field(False, description="Checksum and sync a checkpoint while the next rollout runs.")
    accept_changed_plugins: bool = Field(False, exclude=True, description="Resume even if plugins changed.")
    accept_changed_settings: bool = Field(False, exclude=True, description="Resume even if keys changed.")
    seed: int = Field(1234, ge=0, le=2**63 - 1, description="Seed of every random number.")
    float32_matmul_precision: MatmulPrecision = Field(
        "highest", description="Precision of torch's float32 matmul: fp32, tf32 or bf16."
    )
    bf16: bool = Field(False, description="Compute in bf16; master weights, moments, log-probs and loss stay in fp32.")
    step_timeout_s: Seconds = Field(
        1800.0, description="Seconds that a training step, a save or a weight update may take."
    )

    @field_validator("save", mode="before")
    @classmethod
    def _refuse_empty(cls, value: object) -> object:
        if value == "":
            raise ValueError("it is empty. Give a folder that does not exist yet")
        return value


# RunConfig: the keys of a run file and a command line, sorted into families and tables of roles.


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A whole configuration. Each part of the core receives only its family."""

    data: DataArgs
    rollout: RolloutArgs
    evaluation: EvalArgs
    optim: OptimArgs
    reference: ReferenceArgs
    distillation: DistillationArgs
    critic: CriticArgs
    served: ServedArgs
    cluster: ClusterArgs
    debug: DebugArgs
    alarms: AlarmArgs
    run: RunArgs
    roles: Mapping[str, RoleTable]
    """Selections by role."""
    plugins: PluginSet
    """Plugins to load."""
    finetunes: bool = False
    """Whether the run finetunes on given responses, without rewards and advantages."""

    @property
    def generates(self) -> bool:
        """Whether the run starts engines."""
        return not self.finetunes and self.debug.load_debug_rollout_data is None

    @property
    def companion_dirs(self) -> dict[str, Path]:
        """Model directories of companion models, by their keys."""
        reference, teacher, critic = (
            self.reference.ref_load,
            self.distillation.opd_teacher_load,
            self.critic.critic_load,
        )
        found = {"ref_load": reference, "opd_teacher_load": teacher, "critic_load": critic}
        return {key: directory for key, directory in found.items() if directory is not None}

    def keys(self) -> dict[str, Json]:
        """The core's own keys by name, including defaults, as plain data."""
        return _plain(*(getattr(self, name) for name in FAMILIES))

    def to_dict(self) -> dict[str, Json]:
        """The configuration as a run file's keys, including defaults."""
        flat = self.keys()
        for role, chosen in self.roles.items():
            table: dict[str, Json] = {"use": dict(chosen.use)}
            table.update({name: dict(section) for name, section in chosen.sections.items()})
            flat[role] = table
        if plugins := plugins_table(self.plugins):
            flat[TABLE] = plugins
        return flat


def _plain(*families: Family) -> dict[str, Json]:
    flat: dict[str, Json] = {}
    for family in families:
        flat.update(family.model_dump(mode="json", exclude_none=True, warnings=False))
    return flat


FAMILIES: dict[str, type[Family]] = {
    each.name: each.type for each in fields(RunConfig) if isinstance(each.type, type) and issubclass(each.type, Family)
}
"""Attribute of `RunConfig` -> family."""

FAMILY_OF_KEY: dict[str, str] = {key: name for name, family in FAMILIES.items() for key in family.model_fields}
"""Flat key -> family."""


def default_settings() -> dict[str, Json]:
    """Default of every key that has one."""
    defaults = _plain(*(family.model_construct() for family in FAMILIES.values()))
    return defaults | {role: {"use": dict(use)} for role, use in DEFAULT_USE.items()}
