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

    actor_num_nodes: Workers | None = Field(
        None, description="Nodes that train; times actor_num_gpus_per_node, the trainer's ranks; default 1."
    )
    actor_num_gpus_per_node: Workers | None = Field(
        None, description="Ranks on each of them, one a GPU, or a process on a CPU; default: the trainer's own setting."
    )
    rollout_num_gpus: Workers | None = Field(
        None, description="Workers of all engines, one a GPU, or a process on a CPU; instead of rollout_num_engines."
    )
    rollout_num_gpus_per_engine: Workers | None = Field(
        None, description="Workers of one engine; default 1 with rollout_num_gpus, else the engine's own setting."
    )
    colocate: bool = Field(
        False,
        description="Engines live on the trainer's devices: they take turns, and whoever waits gives up memory.",
    )
    offload_train: bool | None = Field(
        None, description="Ranks give up what memory they can while engines generate; default: as colocate."
    )
    offload_rollout: bool | None = Field(
        None, description="Engines give up what memory they can while ranks train; default: as colocate."
    )

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
    use_unbiased_kl: bool = Field(
        False, description="Weigh the KL in the loss by the ratio of the policy to the sampler (DeepSeek-V3.2)."
    )
    kl_coef: Coefficient = Field(0.0, description="What a nat of KL to the reference takes off a token's reward.")
    ref_load: Path | None = Field(
        None, description="Model directory of the reference in HF format; default hf_checkpoint."
    )
    ref_update_interval: Positive | None = Field(
        None, description="Rollouts after which the reference becomes the policy of that moment; default never."
    )


class DistillationArgs(Family):
    """On-policy distillation."""

    use_opd: bool = Field(
        False, description="Take the reverse KL to a teacher off the advantages of the policy's own tokens."
    )
    opd_kl_coef: float = Field(1.0, gt=0.0, le=1e6, description="What a nat of it takes off a token's advantage.")
    opd_teacher_load: Path | None = Field(
        None, description="Model directory of the teacher in HF format; default: samples bring teacher_log_probs."
    )
    opd_teacher_model: str | None = Field(
        None, description="The teacher, served beside the policy: NAME of [served_models.NAME]."
    )


class CriticArgs(Family):
    """Critic."""

    critic_load: Path | None = Field(
        None, description="Model directory that the critic begins as, in HF format; default hf_checkpoint."
    )
    critic_lr: float | None = Field(None, gt=0.0, le=1.0, description="Peak learning rate of the critic; default lr.")
    critic_lr_warmup_iters: int = Field(
        0, ge=0, le=10**9, description="The critic's optimizer steps of linear warm-up."
    )
    value_clip: float = Field(
        0.2,
        gt=0.0,
        le=1e6,
        description="How far a rollout's steps may move a value, before its loss stops rewarding it.",
    )
    num_critic_only_steps: int = Field(
        0, ge=0, le=10**9, description="Rollouts, from the first, in which only the critic is trained."
    )


# Models that a run serves beside the policy: tables of `served_models`, each with an engine of its own.


class ServedModelArgs(Family):
    """One model, as a table: `[served_models.judge]`."""

    hf_checkpoint: Path = Field(description="Model directory in HF format: weights, config and tokenizer.")
    engine: str | None = Field(None, description="What serves it; default: the engine of the policy.")
    engines: Workers = Field(1, description="Engines that share its requests.")
    settings: dict[str, JsonValue] = Field(
        {}, description="Settings of that engine that are other here than in its own section."
    )


class ServedArgs(Family):
    """Models beside the policy."""

    served_models: dict[str, ServedModelArgs] = Field(
        {}, description="Models that are served and not trained, a table each: [served_models.judge]."
    )

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
        0.1,
        ge=0.0,
        lt=1.0,
        description="Share of the first rollouts' entropy (train/entropy_loss) below which it has collapsed, where the "
        "reward is not higher than it was; 0 is off.",
    )
    alarm_length: float = Field(
        2.0,
        ge=0.0,
        le=1e6,
        description="Times the first rollouts' length of responses, with a fifth of them cut off, that is an "
        "explosion; 0 is off.",
    )
    alarm_no_variance: float = Field(
        0.9,
        ge=0.0,
        le=1.0,
        description="Share of groups whose samples all have one reward, and teach nothing; 0 is off, and so is "
        "same_reward, which looks at the first rollout alone.",
    )
    alarm_kl: float = Field(
        0.5,
        ge=0.0,
        le=1e6,
        description="Nats a token of train/kl_loss or train/ppo_kl that are a runaway, where it doubles; 0 is off.",
    )
    alarm_mismatch: float = Field(
        0.05,
        ge=0.0,
        le=1e6,
        description="Nats between trainer's and sampler's log-probs, on average, where they were a third of it at the "
        "beginning; 0 is off.",
    )
    alarm_errors: float = Field(
        0.02, ge=0.0, le=1.0, description="Share of samples that could not be generated or scored; 0 is off."
    )
    alarm_hacking: float = Field(
        0.2,
        ge=0.0,
        le=1e6,
        description="Share of an evaluation's best that is lost, twice in a row, while the reward in training rises; "
        "0 is off.",
    )
    stop_on_alarms: list[AlarmName] = Field(
        [], description="Alarms that end the run after their step, as a run hook's StopRun does."
    )
