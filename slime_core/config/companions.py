"""Checks the models next to the policy: reference, teacher, critic, old actor and served models.

A reference, a critic or an old actor lives in the trainer. A served model has separate engines; rewards and
distillation call it.

Example:

    use_kl_loss = true                   # a reference model; refused where nothing would read its log-probs
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from slime_core.catalog import Catalog
from slime_core.config.keys import RunConfig, ServedPlan, given_in
from slime_core.config.model_dir import read_vocab_size
from slime_core.config.settings import ChosenRoles
from slime_core.errors import ConfigError, ModelError, did_you_mean
from slime_core.roles import (
    AdvantageSpec,
    BatchTransformSpec,
    Companion,
    Critic,
    EngineSpec,
    Extra,
    GeneratorSpec,
    LossSpec,
    OldActor,
    Optim,
    Reference,
    SampleField,
    SamplingParams,
    Teacher,
    TrainerSpec,
)
from slime_core.sample import Json

# The models beside the policy that a configuration asks for, and what they need of it and of the choices.

TEACHER_COLUMN = "teacher_log_probs"
"""The token column of a teacher's log-probs: a batch transform's, or else that field of the samples."""


def reference_of(config: RunConfig) -> Reference | None:
    """The reference that a configuration asks for."""
    keys = config.reference
    if not (keys.use_kl_loss or keys.kl_coef):
        return None
    same: dict[str, Any] = keys.model_dump(exclude={"ref_load", "ref_update_interval"})
    return Reference(load=keys.ref_load or config.run.hf_checkpoint, update_interval=keys.ref_update_interval, **same)


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
    problems = [
        f"trainer {trainer.name!r} holds no {each.value} model: {switch} needs a trainer that does"
        for each, is_wanted, switch in (
            (Companion.REFERENCE, reference_of(config) is not None, "use_kl_loss or kl_coef"),
            (Companion.TEACHER, config.distillation.use_opd, "use_opd"),
            (Companion.CRITIC, advantage.uses_values, "an advantage estimator of values"),
            (Companion.OLD_ACTOR, config.optim.keep_old_actor, "keep_old_actor"),
        )
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


# What training wants of answers beyond tokens and log-probs: what the trainer reads and the engine gives.

SOURCE_OF = {
    SampleField.ROLLOUT_ROUTED_EXPERTS: Extra.ROUTED_EXPERTS,
    SampleField.ROLLOUT_TOP_P_TOKEN_IDS: Extra.TOP_P_TOKENS,
    SampleField.ROLLOUT_TOP_P_TOKEN_OFFSETS: Extra.TOP_P_TOKENS,
}
"""The extra that fills a field of samples."""


def wanted_extras(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> frozenset[Extra]:
    """What requests for training want; where top-p is off, nobody wants the whole vocabulary of each token.

    Raises:
        ConfigError: the trainer reads what neither the engine nor the generator gives, and the run makes samples.
    """
    trainer, engine = roles.one(TrainerSpec), roles.one(EngineSpec)
    reads = trainer.spec.reads(trainer.settings)
    wanted = {SOURCE_OF[field]: field for field in sorted(reads & SOURCE_OF.keys(), key=lambda each: each.value)}
    if config.rollout.rollout_top_p == 1:
        wanted.pop(Extra.TOP_P_TOKENS, None)
    withheld = engine.spec.gives & engine.spec.withholds(engine.settings)
    given = engine.spec.gives - withheld
    brought = frozenset[Extra]().union(*(each.spec.gives for each in roles.all(GeneratorSpec)))
    generates = not config.finetunes and config.debug.load_debug_rollout_data is None
    if generates and not config.debug.debug_rollout_only:
        _refuse_bias(config, trainer.reference, replays_top_p=Extra.TOP_P_TOKENS in wanted)
        for extra, field in wanted.items():
            if extra not in given | brought:
                way = "choose others for it" if extra in withheld else _givers(extra, catalog, "[engine] use")
                with_these = " with its settings" if extra in withheld else ""
                raise ConfigError(
                    f"trainer {trainer.reference!r} reads {field.value} of samples, and engine {engine.reference!r} "
                    f"does not give {extra.value}{with_these}: {way}, or have the trainer do without by its own "
                    "settings"
                )
    return given & wanted.keys()


def _refuse_bias(config: RunConfig, trainer: str, *, replays_top_p: bool) -> None:
    """Samples of a distribution that the trainer does not compute give a biased gradient: only if the user says so."""
    rollout = config.rollout
    cut = {
        "rollout_top_p": rollout.rollout_top_p < 1 and not replays_top_p,
        "rollout_top_k": rollout.rollout_top_k > 0,
        "rollout_min_p": rollout.rollout_min_p > 0,
    }
    if (keys := [key for key, is_cut in cut.items() if is_cut]) and not rollout.accept_biased_sampling:
        raise ConfigError(
            f"{' and '.join(keys)}: trainer {trainer!r} takes log-probs among all tokens, and samples come of "
            "those that are left, so that gradients are biased. Leave it out and evaluate with it (eval_top_p, "
            "eval_top_k, min_p of a set), choose a trainer that replays what top-p kept, or set accept_biased_sampling "
            "= true"
        )


def _givers(extra: Extra, catalog: Catalog, key: str) -> str:
    names = sorted(name for name, each in catalog.choices(EngineSpec).items() if extra in each.spec.gives)
    if not names:
        return "no installed engine does; install one, `slime plugins list --role engine` shows those that are"
    return f"choose one that does ({', '.join(names)}), {key} = {names[0]!r}"


# The served teacher, `opd_teacher_model`: that there is one, that it scores texts, and knows the policy's ids.

TEACHES = frozenset({Extra.PROMPT_LOG_PROBS})
"""What is wanted of a teacher's answers."""


def teaching(config: RunConfig) -> SamplingParams:
    """How a teacher is asked about a sample: nothing is made, and log-probs are of the distribution that is trained."""
    return SamplingParams(0, temperature=config.rollout.rollout_temperature or 1.0)


def check_teacher(config: RunConfig, roles: ChosenRoles, served: ServedPlan, catalog: Catalog) -> None:
    """See that the served teacher can be asked about every sample.

    Raises:
        ConfigError: it is not served, or its engine does not score texts, or a batch transform makes its column.
        ModelError: an id means something else to it than to the policy.
    """
    if (name := config.distillation.opd_teacher_model) is None:
        return
    if name not in served:
        raise ConfigError(
            f"opd_teacher_model = {name!r}: this run serves no such model.{did_you_mean(name, served)} Models: "
            f"{', '.join(served) or 'none'}; add one by [served_models.{name}] hf_checkpoint = PATH"
        )
    for chosen in roles.all(BatchTransformSpec):
        if TEACHER_COLUMN in chosen.spec.columns:
            raise ConfigError(
                f"opd_teacher_model has no effect here: batch transform {chosen.reference!r} makes {TEACHER_COLUMN}"
            )
    model, engine = served[name].model, served[name].engine
    if not engine.spec.gives - engine.spec.withholds(engine.settings) >= TEACHES:
        raise ConfigError(
            f"served_models.{name}: a teacher is asked for log-probs of texts, and engine {engine.reference!r} does "
            f"not give prompt_log_probs with its settings: "
            f"{_givers(Extra.PROMPT_LOG_PROBS, catalog, f'[served_models.{name}] engine')}"
        )
    policy = config.run.hf_checkpoint
    differing = unlike(policy, model)
    ours, theirs = read_vocab_size(policy), read_vocab_size(model)
    if differing is None and ours is not None and theirs is not None and ours > theirs:
        differing = f"its vocab_size is {theirs}, and the policy's {ours}, whose larger ids it could not be asked about"
    if differing is not None:
        raise ModelError(
            f"served_models.{name}.hf_checkpoint = {model}: the teacher has another vocabulary than hf_checkpoint = "
            f"{policy}: {differing}; give a teacher with the policy's tokenizer"
        )


def unlike(policy: Path, other: Path) -> str | None:
    """Which id of the policy's tokenizer another one does not have, or has for another text; None if there is none.

    The other may have more: models of one family pad their vocabularies to different sizes.

    Raises:
        ModelError: a tokenizer.json cannot be read.
    """
    if (policy / "tokenizer.json").read_bytes() == (other / "tokenizer.json").read_bytes():
        return None
    ours, theirs = _texts(policy), _texts(other)
    for number in sorted(ours):
        if (text := theirs.get(number)) != ours[number]:
            meant = "no token" if text is None else repr(text)
            return f"id {number} is {ours[number]!r} to the policy, and {meant} to it"
    return None


def _texts(directory: Path) -> Mapping[int, str]:
    """The text of each id."""
    path = directory / "tokenizer.json"
    try:
        about = cast(dict[str, dict[str, Json]], json.loads(path.read_text("utf-8")))
        vocab = about["model"]["vocab"]
        if isinstance(vocab, dict):
            texts = {cast(int, number): text for text, number in vocab.items()}
        else:  # Unigram: texts with their scores, in order
            texts = {number: cast(str, entry[0]) for number, entry in enumerate(cast(list[list[Json]], vocab))}
        added = cast(list[dict[str, Json]], about.get("added_tokens") or [])
        return texts | {cast(int, each["id"]): cast(str, each["content"]) for each in added}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path} cannot be read as a tokenizer: {type(error).__name__}: {error}; save it with `save_pretrained` of "
            "transformers"
        ) from None
