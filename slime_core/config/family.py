"""The core's keys for worker counts, models next to the policy, served models and alarms.

`keys.py` has the others and joins them all into one `RunConfig`.

Example:

    actor_num_gpus_per_node = 2          # two ranks: trainer.local.ranks = 2
    alarm_length = 3.0                   # an alarm when responses are three times as long as at first
    [served_models.judge]
    hf_checkpoint = "models/judge"
    engine = "local"                     # default: the engine of the policy
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, JsonValue, field_validator

from slime_core.config.settings import Chosen
from slime_core.roles import Coefficient, EngineSpec, KlType, Positive, Settings, Workers

# Family: the base of the core's own keys, flat in the run file; nothing in them is read from the environment.


class Family(Settings):
    """Base of the families."""

    _reads_environment: ClassVar[bool] = False


def given_in(family: Family) -> frozenset[str]:
    """The keys whose value is not their default."""
    fields = type(family).model_fields.items()
    return frozenset(key for key, info in fields if getattr(family, key) != info.get_default(call_default_factory=True))


# Keys of how many workers train and generate, under slime's names; on a CPU a worker is a process instead of a GPU.


class ClusterArgs(Family):
    """Workers."""

    actor_num_nodes: Workers | None = Field(None, description="Nodes that train; default 1.")
    actor_num_gpus_per_node: Workers | None = Field(None, description="Trainer ranks on each node.")
    rollout_num_gpus: Workers | None = Field(None, description="GPUs, or processes, of all engines.")
    rollout_num_gpus_per_engine: Workers | None = Field(None, description="GPUs, or processes, of one engine.")
    colocate: bool = Field(False, description="Engines share the trainer's devices: they take turns.")
    offload_train: bool | None = Field(None, description="Ranks release memory while engines generate.")
    offload_rollout: bool | None = Field(None, description="Engines release memory while ranks train.")

    @property
    def offloads_train(self) -> bool:
        """Whether ranks give memory up."""
        return self.colocate if self.offload_train is None else self.offload_train

    @property
    def offloads_rollout(self) -> bool:
        """Whether engines give memory up."""
        return self.colocate if self.offload_rollout is None else self.offload_rollout


# Keys of the models beside the policy: a reference and its KL terms, a teacher, a critic.


class ReferenceArgs(Family):
    """Reference model."""

    use_kl_loss: bool = Field(False, description="Compute the KL to the reference model in the loss.")
    kl_loss_coef: Coefficient = Field(0.0, description="Weight of that KL in the loss; 0 reports it only.")
    kl_loss_type: KlType = Field("k1", description="How a token's KL to the reference is estimated.")
    use_unbiased_kl: bool = Field(False, description="Weigh that KL by the importance ratio (DeepSeek-V3.2).")
    kl_coef: Coefficient = Field(0.0, description="What a nat of KL to the reference takes off a token's reward.")
    ref_load: Path | None = Field(None, description="Model directory of the reference; default hf_checkpoint.")
    ref_update_interval: Positive | None = Field(None, description="Rollouts between updates of the reference.")


class DistillationArgs(Family):
    """On-policy distillation."""

    use_opd: bool = Field(False, description="Subtract the reverse KL to a teacher from the advantages.")
    opd_kl_coef: float = Field(1.0, gt=0.0, le=1e6, description="What a nat of it takes off a token's advantage.")
    opd_teacher_load: Path | None = Field(None, description="Teacher's model directory; default: in the samples.")
    opd_teacher_model: str | None = Field(None, description="Served teacher: NAME of [served_models.NAME].")


class CriticArgs(Family):
    """Critic."""

    critic_load: Path | None = Field(None, description="First model directory of the critic; default hf_checkpoint.")
    critic_lr: float | None = Field(None, gt=0.0, le=1.0, description="Peak learning rate of the critic; default lr.")
    critic_lr_warmup_iters: int = Field(0, ge=0, le=10**9, description="Optimizer steps of the critic's warm-up.")
    value_clip: float = Field(0.2, gt=0.0, le=1e6, description="How far a rollout may move a value.")
    num_critic_only_steps: int = Field(0, ge=0, le=10**9, description="First rollouts that train the critic alone.")


# Models that a run serves beside the policy: tables of `served_models`, each with an engine of its own.


class ServedModelArgs(Family):
    """One model, as a table: `[served_models.judge]`."""

    hf_checkpoint: Path = Field(description="Model directory in HF format: weights, config and tokenizer.")
    engine: str | None = Field(None, description="What serves it; default: the engine of the policy.")
    engines: Workers = Field(1, description="Engines that share its requests.")
    settings: dict[str, JsonValue] = Field({}, description="Settings of that engine that differ from its section.")


class ServedArgs(Family):
    """Models beside the policy."""

    served_models: dict[str, ServedModelArgs] = Field({}, description="Models served beside the policy.")

    @field_validator("served_models")
    @classmethod
    def _plain_names(cls, models: dict[str, ServedModelArgs]) -> dict[str, ServedModelArgs]:
        for name in models:
            if not (name.replace("_", "").replace("-", "").isalnum() and name.isascii()):
                raise ValueError(f"{name!r} is not a name of a model: use letters, digits, '-' and '_'")
        return models


@dataclass(frozen=True, slots=True)
class Served:
    """A model of a plan."""

    model: Path
    """Its directory."""
    engine: Chosen[EngineSpec]
    """What serves it, with its settings."""
    engines: int
    """How many of them."""


ServedPlan = Mapping[str, Served]
"""By the names of their tables."""


# Settings of the alarms: from when on a run says that something goes wrong, and which of them end it.

AlarmName = Literal["entropy", "length", "same_reward", "no_variance", "kl", "mismatch", "errors", "hacking"]


class AlarmArgs(Family):
    """Alarms."""

    alarm_entropy: float = Field(
        0.1, ge=0.0, lt=1.0, description="Share of the first entropy that is a collapse; 0 is off."
    )
    alarm_length: float = Field(2.0, ge=0.0, le=1e6, description="Growth of responses that is an explosion; 0 is off.")
    alarm_no_variance: float = Field(0.9, ge=0.0, le=1.0, description="Share of groups of equal rewards; 0 is off.")
    alarm_kl: float = Field(0.5, ge=0.0, le=1e6, description="KL a token that is a runaway; 0 is off.")
    alarm_mismatch: float = Field(
        0.05, ge=0.0, le=1e6, description="Distance of trainer and sampler in log-probs; 0 is off."
    )
    alarm_errors: float = Field(0.02, ge=0.0, le=1.0, description="Share of failed samples; 0 is off.")
    alarm_hacking: float = Field(
        0.2, ge=0.0, le=1e6, description="Share of an evaluation's best that is lost; 0 is off."
    )
    stop_on_alarms: list[AlarmName] = Field([], description="Alarms that end the run.")
