"""The models beside the policy that a configuration asks for, and what they need of it and of the choices.

Example:

    reference_of(config)        # a Reference where use_kl_loss or kl_coef is set, else None
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from slime_core.catalog import Catalog
from slime_core.config.chosen import ChosenRoles
from slime_core.config.family import given_in
from slime_core.config.run_config import RunConfig
from slime_core.errors import ConfigError
from slime_core.roles import (
    AdvantageSpec,
    Companion,
    Critic,
    LossSpec,
    OldActor,
    Optim,
    Reference,
    Teacher,
    TrainerSpec,
)

TEACHER_COLUMN = "teacher_log_probs"
"""The token column of a teacher's log-probs: a batch transform's, or else that field of the samples."""


def reference_of(config: RunConfig) -> Reference | None:
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


def teacher_of(config: RunConfig) -> Teacher | None:
    """The teacher that a configuration asks for."""
    keys = config.distillation
    return Teacher(keys.opd_teacher_load, keys.opd_kl_coef) if keys.use_opd else None


def critic_of(config: RunConfig, optim: Optim) -> Critic:
    """The critic that a configuration describes, whose optimizer has the policy's keys besides its own."""
    keys = config.critic
    own = replace(optim, lr=keys.critic_lr or optim.lr, lr_warmup_iters=keys.critic_lr_warmup_iters)
    load = keys.critic_load or config.run.hf_checkpoint
    return Critic(load, own, keys.value_clip, keys.num_critic_only_steps)


def old_actor_of(config: RunConfig) -> OldActor | None:
    """The older policy that a configuration asks for."""
    if not config.optim.keep_old_actor:
        return None
    return OldActor(lag=1 if config.rollout.rollout_policy == "async" else 0)


def companion_problems(config: RunConfig, given: frozenset[str]) -> Iterator[str]:
    """A sentence for each key of those `given` that has no effect here, and for each contradiction."""
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
        for key in ("opd_kl_coef", "opd_teacher_load", "opd_teacher_model")
    ]
    for key, has_effect, remedy in needs:
        if key in given and not has_effect:
            yield f"{key} has no effect here: {remedy}"
    if reference.kl_loss_type.endswith("+") and not reference.kl_loss_coef and "kl_loss_type" in given:
        plain = reference.kl_loss_type.removesuffix("+")
        yield (
            f'kl_loss_type = "{reference.kl_loss_type}" is "{plain}" with another gradient, and here none is taken of '
            f'it: set use_kl_loss = true and kl_loss_coef above 0, or kl_loss_type = "{plain}"'
        )
    if config.distillation.opd_teacher_load and config.distillation.opd_teacher_model:
        yield "opd_teacher_load and opd_teacher_model both name a teacher, held by the trainer and served: give one"
    if "value_clip" in given and config.optim.num_steps_per_rollout == 1:
        yield (
            "value_clip has no effect here: the one step of a rollout begins where its values were found; give "
            "num_steps_per_rollout above 1, or leave it out"
        )
    if config.optim.keep_old_actor:
        yield from _old_actor_problems(config)
    optim, critic_lr, length = config.optim, config.critic.critic_lr, config.rollout.num_rollout
    if critic_lr is not None and optim.lr_decay_style != "constant" and optim.min_lr > critic_lr:
        yield f"min_lr = {optim.min_lr} is above critic_lr = {critic_lr}, where the decay begins"
    only = config.critic.num_critic_only_steps
    if length is not None and only >= length:
        yield f"num_critic_only_steps = {only} leaves none of num_rollout = {length} rollouts to train the policy in"
    if reference.kl_coef and reference.kl_loss_coef:
        yield "kl_coef and kl_loss_coef both keep the policy near the reference, in rewards and in the loss: give one"


def _old_actor_problems(config: RunConfig) -> Iterator[str]:
    rollout = config.rollout
    if not config.roles["correction"].use:
        yield (
            "keep_old_actor has no effect here: without a correction, ratios are against the sampler's log-probs, "
            'which are of those weights; choose one ([correction] use = "tis"), or leave it out'
        )
    if rollout.rollout_policy == "continuous" or rollout.partial_rollout:
        yield (
            "keep_old_actor holds the one version that generated a rollout, and here its tokens are of several: leave "
            'it out, or set rollout_policy = "sync" or "async" without partial_rollout'
        )
    elif rollout.rollout_policy == "sync" and rollout.update_weights_interval == 1:
        yield (
            "keep_old_actor has no effect here: a rollout is generated by the very weights that its training begins "
            'with; set rollout_policy = "async", or update_weights_interval above 1'
        )
    if config.debug.load_debug_rollout_data is not None:
        yield "keep_old_actor has no effect here: without an engine, no weights are published"


def check_companions(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> None:
    """See that the choices of trainer, advantage and loss can do what the keys ask for.

    Raises:
        ConfigError: one cannot, or what is asked for would change nothing; all problems in one message.
    """
    advantage, loss, trainer = roles.one(AdvantageSpec).spec, roles.one(LossSpec).spec, roles.one(TrainerSpec).spec
    wanted = {
        Companion.REFERENCE: reference_of(config) is not None,
        Companion.TEACHER: config.distillation.use_opd,
        Companion.CRITIC: advantage.uses_values,
        Companion.OLD_ACTOR: config.optim.keep_old_actor,
    }
    problems = [
        f"trainer {trainer.name!r} holds no {each.value} model: {_SWITCHES[each]} needs a trainer that does"
        for each, is_wanted in wanted.items()
        if is_wanted and each not in trainer.companions
    ]
    if config.reference.kl_coef and not advantage.uses_kl_penalty:
        problems.append(
            f"kl_coef has no effect here: advantage {advantage.name!r} has one reward a sample; use "
            f"{_estimators(catalog, 'uses_kl_penalty')}, or use_kl_loss with kl_loss_coef"
        )
    if not advantage.uses_values:
        problems += [
            f"{key} has no effect here: advantage {advantage.name!r} has no critic; use "
            f"{_estimators(catalog, 'uses_values')}, or leave it out"
            for key in sorted(given_in(config.critic))
        ]
    switches = {
        "kl_coef": config.reference.kl_coef > 0,
        "use_opd": config.distillation.use_opd,
        f"advantage {advantage.name!r}": advantage.uses_values,
    }
    problems += [
        f"{switch} has no effect here: loss {loss.name!r} does not look at advantages"
        for switch, is_on in switches.items()
        if is_on and not loss.uses_advantages
    ]
    if problems:
        raise ConfigError("\n".join(problems))


def _estimators(catalog: Catalog, able: Literal["uses_kl_penalty", "uses_values"]) -> str:
    """The estimators that are able to do something, by name."""
    names = [each.spec.name for each in catalog.choices(AdvantageSpec).values() if getattr(each.spec, able)]
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "one that does"


_SWITCHES = {
    Companion.REFERENCE: "use_kl_loss or kl_coef",
    Companion.TEACHER: "use_opd",
    Companion.CRITIC: "an advantage estimator of values",
    Companion.OLD_ACTOR: "keep_old_actor",
}
