"""Keys of the models beside the policy: a reference and its KL terms, a teacher; and what each combination needs.

Example:

    use_kl_loss = true               # run file
    kl_loss_coef = 0.001
    kl_loss_type = "low_var_kl"
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pydantic import Field

from slime_core.config.family import Family, Positive
from slime_core.errors import ConfigError
from slime_core.roles import AdvantageSpec, Companion, KlType, LossSpec, Reference, Spec, Teacher, TrainerSpec

if TYPE_CHECKING:
    from slime_core.config.run_config import RunConfig

TEACHER_COLUMN = "teacher_log_probs"
"""The token column of a teacher's log-probs: a batch transform's, or else that field of the samples."""


class ReferenceArgs(Family):
    """Reference model."""

    use_kl_loss: bool = Field(False, description="Compute the KL to the reference model in the loss.")
    kl_loss_coef: float = Field(0.0, ge=0.0, description="Weight of that KL in the loss; 0 reports it only.")
    kl_loss_type: KlType = Field("k1", description="How a token's KL to the reference is estimated.")
    use_unbiased_kl: bool = Field(
        False, description="Weigh the KL in the loss by the ratio of the policy to the sampler (DeepSeek-V3.2)."
    )
    kl_coef: float = Field(0.0, ge=0.0, description="What a nat of KL to the reference takes off a token's reward.")
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
    opd_kl_coef: float = Field(1.0, gt=0.0, description="What a nat of it takes off a token's advantage.")
    opd_teacher_load: Path | None = Field(
        None, description="Model directory of the teacher in HF format; default: samples bring teacher_log_probs."
    )


def reference_of(config: "RunConfig") -> Reference | None:
    """The reference that a configuration asks for."""
    keys = config.reference
    if not (keys.use_kl_loss or keys.kl_coef):
        return None
    return Reference(
        load=keys.ref_load or config.run.hf_checkpoint,
        update_interval=keys.ref_update_interval,
        use_kl_loss=keys.use_kl_loss,
        kl_loss_coef=keys.kl_loss_coef,
        kl_loss_type=keys.kl_loss_type,
        use_unbiased_kl=keys.use_unbiased_kl,
        kl_coef=keys.kl_coef,
    )


def teacher_of(config: "RunConfig") -> Teacher | None:
    """The teacher that a configuration asks for."""
    keys = config.distillation
    return Teacher(keys.opd_teacher_load, keys.opd_kl_coef) if keys.use_opd else None


def companion_problems(config: "RunConfig", given: frozenset[str]) -> Iterator[str]:
    """Keys among those `given` that have no effect, and contradictions."""
    reference = config.reference
    inside = ("use_kl_loss", reference.use_kl_loss, "set use_kl_loss = true, or leave it out")
    either = "set use_kl_loss = true or kl_coef above 0, or leave it out"
    needs = [(key, inside[1], inside[2]) for key in ("kl_loss_coef", "use_unbiased_kl")]
    needs += [
        (key, reference.use_kl_loss or reference.kl_coef > 0, either)
        for key in ("kl_loss_type", "ref_load", "ref_update_interval")
    ]
    needs += [
        (key, config.distillation.use_opd, "set use_opd = true, or leave it out")
        for key in ("opd_kl_coef", "opd_teacher_load")
    ]
    for key, has_effect, remedy in needs:
        if key in given and not has_effect:
            yield f"{key} has no effect here: {remedy}"
    if reference.kl_coef and reference.kl_loss_coef:
        yield "kl_coef and kl_loss_coef both keep the policy near the reference, in rewards and in the loss: give one"


def check_companions(config: "RunConfig", specs: Mapping[str, Spec[object]]) -> None:
    """See that the choices of trainer, advantage and loss (their specs, by role) can do what the keys ask for.

    Raises:
        ConfigError: one cannot, or what is asked for would change nothing; all problems in one message.
    """
    advantage, loss = cast(AdvantageSpec, specs["advantage"]), cast(LossSpec, specs["loss"])
    trainer = cast(TrainerSpec, specs["trainer"])
    wanted = {Companion.REFERENCE: reference_of(config) is not None, Companion.TEACHER: config.distillation.use_opd}
    problems = [
        f"trainer {trainer.name!r} holds no {each.value} model: {_SWITCHES[each]} needs a trainer that does"
        for each, is_wanted in wanted.items()
        if is_wanted and each not in trainer.companions
    ]
    if config.reference.kl_coef and not advantage.uses_kl_penalty:
        problems.append(
            f"kl_coef has no effect here: advantage {advantage.name!r} has one reward a sample; use "
            "reinforce_plus_plus or reinforce_plus_plus_baseline, or use_kl_loss with kl_loss_coef"
        )
    problems += [
        f"{key} has no effect here: loss {loss.name!r} does not look at advantages"
        for key, is_on in (("kl_coef", config.reference.kl_coef > 0), ("use_opd", config.distillation.use_opd))
        if is_on and not loss.uses_advantages
    ]
    if problems:
        raise ConfigError("\n".join(problems))


_SWITCHES = {Companion.REFERENCE: "use_kl_loss or kl_coef", Companion.TEACHER: "use_opd"}
