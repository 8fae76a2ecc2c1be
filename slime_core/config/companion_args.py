"""Keys of the models beside the policy: a reference and its KL terms, a teacher, a critic.

Example:

    use_kl_loss = true               # run file
    kl_loss_coef = 0.001
    kl_loss_type = "low_var_kl"
"""

from pathlib import Path

from pydantic import Field

from slime_core.config.family import Family
from slime_core.roles import Coefficient, KlType, Positive


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
