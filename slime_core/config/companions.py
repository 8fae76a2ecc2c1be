"""Models in addition to the policy: reference, teacher, critic and old actor in the trainer, and served models.

Rewards and distillation call served models. `parsing` and `fit` check the keys of all these models.

Example:

    use_kl_loss = true                   # adds a reference model
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from slime_core.catalog import Catalog
from slime_core.catalog.checks import plugin_errors
from slime_core.config.keys import RunConfig, Served, ServedModelArgs, ServedPlan
from slime_core.config.model_dir import check_model_dir, read_model_config, read_vocab_size, refuse_quantized
from slime_core.config.settings import ChosenRoles, ResolvedChoice, read_settings
from slime_core.errors import ConfigError, ModelError, UnknownName, did_you_mean
from slime_core.roles import (
    BatchTransformSpec,
    Critic,
    EngineSpec,
    EngineUse,
    Extra,
    Optim,
    Reference,
    RewardSpec,
    SamplingParams,
    Teacher,
    TrainerSpec,
)

# The models that a trainer holds.

TEACHER_COLUMN = "teacher_log_probs"
"""Token column of a teacher's log-probs, from a batch transform or from the samples' field of this name."""


def reference_of(config: RunConfig) -> Reference | None:
    """The configuration's reference model, if any."""
    keys = config.reference
    if not (keys.use_kl_loss or keys.kl_coef):
        return None
    same: dict[str, Any] = keys.model_dump(exclude={"ref_load", "ref_update_interval"})
    return Reference(load=keys.ref_load or config.run.hf_checkpoint, update_interval=keys.ref_update_interval, **same)


def teacher_of(config: RunConfig) -> Teacher | None:
    """The configuration's teacher, if any."""
    keys = config.distillation
    return Teacher(keys.opd_teacher_load, keys.opd_kl_coef) if keys.use_opd else None


def critic_of(config: RunConfig, optim: Optim) -> Critic:
    """The configuration's critic. Its optimizer settings are the policy's, except learning rate and warm-up."""
    keys = config.critic
    own = replace(optim, lr=keys.critic_lr or optim.lr, lr_warmup_iters=keys.critic_lr_warmup_iters)
    return Critic(keys.critic_load or config.run.hf_checkpoint, own, keys.value_clip, keys.num_critic_only_steps)


def old_actor_lag(config: RunConfig) -> int | None:
    """Rollouts that generation runs ahead; None without `keep_old_actor`."""
    return int(config.rollout.rollout_policy == "async") if config.optim.keep_old_actor else None


_SHAPE = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "tie_word_embeddings")
"""Keys of config.json that must be equal in two models if one loads the other's weights."""


def check_models(config: RunConfig, trainer: ResolvedChoice[TrainerSpec]) -> None:
    """Check that the model directories of the policy and its companions are complete, compatible and trainable."""
    policy = config.run.hf_checkpoint
    for key, directory in {"hf_checkpoint": policy, **config.companion_dirs}.items():
        check_model_dir(directory, key)
        ours, model = read_model_config(policy), read_model_config(directory)
        is_refreshed = key == "ref_load" and config.reference.ref_update_interval is not None
        for name in _SHAPE if is_refreshed else ("vocab_size",):
            if ours.get(name) != model.get(name):
                differing = f"its {name} is {model.get(name)}, and hf_checkpoint = {policy} has {ours.get(name)}"
                raise ModelError(f"{key} = {directory}: {differing}; give a model of the same {name}")
        if config.debug.debug_rollout_only:
            continue
        refuse_quantized(directory)
        check = trainer.spec.check_model
        if key != "hf_checkpoint":
            check = trainer.spec.check_companion or check
        try:
            with plugin_errors(f"check_model of trainer {trainer.reference!r}", trainer.plugin):
                check(trainer.settings, model)
        except ConfigError as error:
            raise ConfigError(f"{key} = {directory}: {error}" if key != "hf_checkpoint" else str(error)) from None


# The models that a run serves; one of them may be the teacher, `opd_teacher_model`.

TEACHER_EXTRAS = frozenset({Extra.PROMPT_LOG_PROBS})
"""Extras that a teacher's outputs need."""


def teacher_sampling(config: RunConfig) -> SamplingParams:
    """Sampling parameters of requests to a teacher: no new tokens, and log-probs at the training temperature."""
    return SamplingParams(0, temperature=config.rollout.rollout_temperature or 1.0)


def plan_served(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> ServedPlan:
    """The engine of each served model. Raises SlimeError: one cannot serve its model, or a name is unknown."""
    given, teacher = config.served.served_models, config.distillation.opd_teacher_model
    served = {name: _serve(name, args, config, roles, catalog) for name, args in given.items()}
    wanted = {
        f"reward {each.reference!r} asks the model {name!r}, which this run does not serve.": name
        for each in roles.all(RewardSpec)
        for name in each.spec.models(each.settings)
    }
    if teacher is not None:
        wanted[f"opd_teacher_model = {teacher!r}: this run serves no such model."] = teacher
    for problem, name in wanted.items():
        if name not in served:
            known = f"Models: {', '.join(served) or 'none'}; add one by [served_models.{name}] hf_checkpoint = PATH"
            raise ConfigError(f"{problem}{did_you_mean(name, served)} {known}")
    if teacher is not None:
        _check_teacher(teacher, served[teacher], config, roles, catalog)
    return served


def _serve(name: str, args: ServedModelArgs, config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> Served:
    key, reference = f"served_models.{name}", args.engine or roles.one(EngineSpec).reference
    section = {**config.roles["engine"].sections.get(reference, {}), **args.settings}
    try:
        registered = catalog.find(EngineSpec, reference)
        spec, settings = registered.spec, read_settings("engine", reference, registered.spec, section)
        check_model_dir(args.hf_checkpoint, f"{key}.hf_checkpoint")
        if config.run.bf16 and not spec.bf16:
            raise ConfigError(f"engine {reference!r} cannot compute in bf16, as this run does: choose another")
        if spec.check is not None:
            use = EngineUse(args.hf_checkpoint, read_model_config(args.hf_checkpoint), args.engines)
            if name == config.distillation.opd_teacher_model:
                use = replace(use, sampling=teacher_sampling(config), want=TEACHER_EXTRAS)
            spec.check(settings, use)
    except UnknownName as error:
        raise UnknownName(f"{key}.engine: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None
    return Served(args.hf_checkpoint, ResolvedChoice(reference, registered, settings, 1.0), args.engines)


def _check_teacher(name: str, served: Served, config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> None:
    for chosen in roles.all(BatchTransformSpec):
        if TEACHER_COLUMN in chosen.spec.columns:
            maker = f"batch transform {chosen.reference!r} makes {TEACHER_COLUMN}"
            raise ConfigError(f"opd_teacher_model has no effect here: {maker}; leave it out")
    policy, model, engine = config.run.hf_checkpoint, served.model, served.engine
    if not engine.spec.gives - engine.spec.excluded_extras(engine.settings) >= TEACHER_EXTRAS:
        advice = engine_advice(Extra.PROMPT_LOG_PROBS, catalog, f"[served_models.{name}] engine")
        reason = f"engine {engine.reference!r} does not give a teacher's prompt_log_probs with its settings"
        raise ConfigError(f"served_models.{name}: {reason}: {advice}")
    differing = vocabulary_difference(policy, model)
    ours, theirs = read_vocab_size(policy), read_vocab_size(model)
    if differing is None and ours is not None and theirs is not None and ours > theirs:
        differing = f"its vocab_size is {theirs}, and the policy's {ours}"
    if differing is not None:
        raise ModelError(
            f"served_models.{name}.hf_checkpoint = {model}: the teacher has another vocabulary than hf_checkpoint = "
            f"{policy}: {differing}; give a teacher with the policy's tokenizer"
        )


def engine_advice(extra: Extra, catalog: Catalog, key: str) -> str:
    """Advice to choose, with `key`, an engine that returns an extra."""
    names = sorted(name for name, each in catalog.choices(EngineSpec).items() if extra in each.spec.gives)
    if not names:
        return "no installed engine does; install one; `slime plugins list --role engine` lists the installed ones"
    return f"choose one that does ({', '.join(names)}), {key} = {names[0]!r}"


def vocabulary_difference(policy: Path, other: Path) -> str | None:
    """Describe the first token id that means another text, or nothing, in the other tokenizer; None if all agree.

    The other tokenizer may have more ids, because models of one family pad their vocabularies to different sizes.
    """
    if (policy / "tokenizer.json").read_bytes() == (other / "tokenizer.json").read_bytes():
        return None
    ours, theirs = _texts(policy), _texts(other)
    for number in sorted(ours):
        if (text := theirs.get(number)) != ours[number]:
            meant = "no token" if text is None else repr(text)
            return f"id {number} is {ours[number]!r} for the policy, and {meant} for it"
    return None


def _texts(directory: Path) -> Mapping[int, str]:
    path = directory / "tokenizer.json"
    try:
        about: Any = json.loads(path.read_text("utf-8"))
        vocab = about["model"]["vocab"]  # a table; for Unigram a list of [text, score]
        ids = vocab.items() if isinstance(vocab, dict) else ((entry[0], number) for number, entry in enumerate(vocab))
        added = ((each["content"], each["id"]) for each in about.get("added_tokens") or ())
        return cast("Mapping[int, str]", {number: text for text, number in (*ids, *added)})
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path} cannot be read as a tokenizer: {type(error).__name__}: {error}; save it with `save_pretrained` of "
            "transformers"
        ) from None
