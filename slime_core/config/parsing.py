"""Turns the keys of a run file into a `RunConfig`, and rejects keys that have no effect in this run.

A user who sets a key expects an effect: `eval_interval = 5` without `eval_prompt_data` is an error. A key at its
default is always accepted, so a resolved run file, which contains the defaults, can be read again. No file is opened.

Example:

    config = parse_config({"prompt_data": "train.jsonl", "reward": {"use": "math"}, ...})
"""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from slime_core.catalog import Catalog
from slime_core.config.keys import (
    FAMILIES,
    AlarmArgs,
    EvalArgs,
    RolloutArgs,
    RunArgs,
    RunConfig,
    changed_keys,
)
from slime_core.config.run_file import TABLE, parse_plugins
from slime_core.config.settings import DEFAULT_USE, RoleTable, explain, parse_role_table
from slime_core.config.sources import canonical
from slime_core.errors import ConfigError, did_you_mean
from slime_core.roles import SELECTABLE, LossSpec, PluginSet
from slime_core.sample import Json

# Inert keys: reject a key that was set and has no effect.

_EVAL_KEYS = (
    *("eval_interval", "skip_eval_before_train", "n_samples_per_eval_prompt", "eval_input_key", "eval_label_key"),
    *("eval_temperature", "eval_top_p", "eval_top_k", "eval_max_response_len", "eval_min_new_tokens"),
    "alarm_hacking",
)
_FILTER = 'choose a group filter ([group_filter] use = "nonzero_std")'
_LOADED = "load_debug_rollout_data"
_STAYS = "with debug_rollout_only the model stays as it is"
_NOTHING_GENERATED = "with sft_loss and no reward nothing is generated"
_NOT_ASYNC = '"async" never changes weights during a rollout; set rollout_policy = "sync" or "continuous"'
_ENDING = ("cosine", "linear", "WSD")
"""Learning rate styles whose decay ends."""


def check_template(key: str, template: str, known: Collection[str]) -> set[str]:
    """Return the names in a path template's braces. Raises ConfigError: a name is unknown, or a brace is unmatched."""
    found = {name for name in known if f"{{{name}}}" in template}
    rest = template
    for name in found:
        rest = rest.replace(f"{{{name}}}", "")
    if "{" in rest or "}" in rest:
        allowed = " and ".join(f"{{{name}}}" for name in known)
        raise ConfigError(f"{key} = {template!r}: braces may hold a name alone, {allowed}")
    return found


def refuse_inert(config: RunConfig) -> None:
    """Raise ConfigError for keys that were set and have no effect, and for contradictory combinations."""
    given = frozenset[str]().union(*(changed_keys(getattr(config, name)) for name in FAMILIES))
    problems = [
        f"{key} has no effect here: {remedy}"
        for keys, has_effect, remedy in _conditions(config, given)
        for key in ((keys,) if isinstance(keys, str) else keys)
        if key in given and not has_effect
    ]
    for find in (_rollout_problems, _run_problems, _optimizer_problems, _companion_problems, _old_actor_problems):
        problems += find(config, given)
    if config.finetunes:
        problems += unused_in_finetuning(given)
        used = [role for role in ("group_filter", "sample_filter", "correction") if config.roles[role].use]
        problems += [f"{role} has no effect here: {_NOTHING_GENERATED}" for role in used]
    if problems:
        raise ConfigError("\n".join(problems))


def _conditions(config: RunConfig, given: Set[str]) -> Iterator[tuple[str | Sequence[str], bool, str]]:
    # Yields keys, whether they have an effect, and what to do if not.
    data, rollout, debug, reference = config.data, config.rollout, config.debug, config.reference
    partial, sync, style = rollout.partial_rollout, rollout.rollout_policy == "sync", config.optim.lr_decay_style
    filters, only = bool(config.roles["group_filter"].use), debug.debug_rollout_only
    cuts = rollout.rollout_top_p < 1 or rollout.rollout_top_k > 0 or rollout.rollout_min_p > 0
    in_loss, anywhere = reference.use_kl_loss, reference.use_kl_loss or reference.kl_coef > 0
    one_step = "with one step per rollout, values have not moved, so nothing is clipped; set num_steps_per_rollout > 1"
    yield _EVAL_KEYS, bool(config.evaluation.eval_prompt_data), "give eval_prompt_data, or leave it out"
    yield "eval_prompt_data", config.evaluation.eval_interval is not None, "give eval_interval"
    yield "apply_chat_template_kwargs", data.apply_chat_template, "set apply_chat_template = true, or leave it out"
    yield "accept_biased_sampling", cuts, "nothing cuts off the tail of a distribution; leave it out"
    over = f'{_FILTER}, or set partial_rollout = true with rollout_policy = "sync"'
    yield "over_sampling_batch_size", filters or (partial and sync), over
    yield "max_staleness", _streams(rollout), 'set rollout_policy = "continuous", or partial_rollout = true'
    yield "mask_offpolicy_in_partial_rollout", partial, "set partial_rollout = true"
    yield "partial_rollout", rollout.rollout_policy != "async", _NOT_ASYNC
    yield "max_filter_waves", filters, _FILTER
    yield "load_debug_rollout_data_subsample", debug.load_debug_rollout_data is not None, f"give {_LOADED}"
    yield ("save_best", "save_hf"), not only, _STAYS
    yield "save_best", not config.finetunes, "finetuning is judged by its loss, not by rewards"
    yield "min_lr", style != "constant", 'set lr_decay_style = "linear" or "cosine"'
    ends = style in _ENDING or "lr_warmup_fraction" in given
    yield "lr_decay_iters", ends, f'lr_decay_style = "{style}" does not end; cosine, linear and WSD do'
    yield ("lr_wsd_decay_iters", "lr_wsd_decay_style"), style == "WSD", 'set lr_decay_style = "WSD"'
    yield ("kl_loss_coef", "use_unbiased_kl"), in_loss, "set use_kl_loss = true, or leave it out"
    either = "set use_kl_loss = true or kl_coef above 0, or leave it out"
    yield ("kl_loss_type", "ref_load", "ref_update_interval"), anywhere, either
    opd = ("opd_kl_coef", "opd_teacher_load", "opd_teacher_model")
    yield opd, config.distillation.use_opd, "set use_opd = true, or leave it out"
    yield "value_clip", config.optim.num_steps_per_rollout > 1, one_step
    yield "keep_old_actor", debug.load_debug_rollout_data is None, "without an engine, no weights are published"


def _streams(rollout: RolloutArgs) -> bool:
    return rollout.rollout_policy == "continuous" or rollout.partial_rollout


def _rollout_problems(config: RunConfig, given: Set[str]) -> Iterator[str]:
    rollout, optim, interval = config.rollout, config.optim, config.rollout.update_weights_interval
    batch, most = rollout.rollout_batch_size, rollout.staleness
    drawn, in_time = rollout.over_sampling_batch_size or batch, batch * (most + 1)
    stays = rollout.partial_rollout and rollout.rollout_policy == "sync"
    if rollout.num_rollout is not None and rollout.num_epoch is not None:
        yield "num_rollout and num_epoch both say how long the run is: give one"
    if rollout.num_rollout is None and rollout.num_epoch is None:
        yield "the run's length is missing: give num_rollout (rollouts) or num_epoch (passes over the prompts)"
    if stays and drawn <= batch:
        yield f"partial_rollout has no effect here: give an over_sampling_batch_size above rollout_batch_size = {batch}"
    if stays and drawn > in_time:
        groups = f"with max_staleness = {most} at most {in_time} groups are fresh enough to train on"
        yield f"over_sampling_batch_size = {drawn} has no effect here: {groups}"
    if _streams(rollout) and interval - 1 > most:
        behind = f"{interval - 1} versions behind, and max_staleness = {most}: give at least that"
        yield f"update_weights_interval = {interval} lets weights fall {behind}"
    if optim.num_steps_per_rollout > batch:
        yield f"num_steps_per_rollout = {optim.num_steps_per_rollout} is more than rollout_batch_size = {batch} groups"
    if not (config.finetunes or config.roles["reward"].use or config.roles["group_reward"].use):
        yield (
            'no reward is chosen: write [reward] use = "math" or pass --reward math. To finetune on given responses, '
            'write [loss] use = "sft_loss". If the generator gives rewards, write [reward] use = "environment"'
        )


def _run_problems(config: RunConfig, given: Set[str]) -> Iterator[str]:
    sets, best, debug = config.evaluation.eval_prompt_data, config.run.save_best, config.debug
    loaded, template = debug.load_debug_rollout_data, config.run.save_hf
    if "hacking" in config.alarms.stop_on_alarms and not sets:
        yield "stop_on_alarms lists hacking, which needs evaluations: give eval_prompt_data, or leave it out"
    if best is not None and best not in sets and not config.finetunes and not debug.debug_rollout_only:
        there = f"eval_prompt_data has: {', '.join(sets) or 'none'}"
        yield f"save_best = {best!r} names no evaluation set.{did_you_mean(best, sets)} {there}"
    if debug.debug_train_only and loaded is None:
        yield f"debug_train_only trains on samples of another run: give its folder, {_LOADED}"
    if debug.debug_rollout_only and loaded is not None:
        yield f"debug_rollout_only starts no trainer, and {_LOADED} starts no engine: give one of them"
    if loaded is not None and loaded.resolve() == config.run.save.resolve():
        yield f"{_LOADED} = {loaded} is the run's own folder: give another save"
    if template is not None and not config.run.checkpoint_hf:
        yield "save_hf and checkpoint_hf = false: the model is linked from the checkpoint's; leave checkpoint_hf out"
    try:
        check_template("save_hf", template or "", ("rollout_id",))
    except ConfigError as error:
        yield str(error)


def _optimizer_problems(config: RunConfig, given: Set[str]) -> Iterator[str]:
    optim, critic_lr, decays = config.optim, config.critic.critic_lr, config.optim.lr_decay_style != "constant"
    if decays and optim.min_lr > optim.lr:
        yield f"min_lr = {optim.min_lr} is above lr = {optim.lr}, where the decay begins"
    if decays and critic_lr is not None and optim.min_lr > critic_lr:
        yield f"min_lr = {optim.min_lr} is above critic_lr = {critic_lr}, where the decay begins"
    if {"lr_warmup_fraction", "lr_warmup_iters"} <= given:
        yield "lr_warmup_fraction and lr_warmup_iters both say how long the warm-up is: give one"
    if optim.lr_decay_style == "WSD" and optim.lr_wsd_decay_iters is None:
        yield 'lr_decay_style = "WSD" stays at lr until the final decay: give lr_wsd_decay_iters, its number of steps'
    if optim.constant_loss_length is not None and optim.calculate_per_token_loss:
        yield "calculate_per_token_loss and constant_loss_length both say what divides the loss: give one"


def _companion_problems(config: RunConfig, given: Set[str]) -> Iterator[str]:
    reference, distillation = config.reference, config.distillation
    if reference.kl_loss_type.endswith("+") and not reference.kl_loss_coef and "kl_loss_type" in given:
        plain = reference.kl_loss_type.removesuffix("+")
        instead = f'set use_kl_loss = true and kl_loss_coef above 0, or kl_loss_type = "{plain}"'
        yield f'kl_loss_type = "{reference.kl_loss_type}" is "{plain}" without kl_loss_coef: {instead}'
    if reference.kl_coef and reference.kl_loss_coef:
        yield "kl_coef and kl_loss_coef both keep the policy near the reference, in rewards and in the loss: give one"
    if distillation.opd_teacher_load and distillation.opd_teacher_model:
        yield "opd_teacher_load and opd_teacher_model both name a teacher: give one"
    only, length = config.critic.num_critic_only_steps, config.rollout.num_rollout
    if length is not None and only >= length:
        yield f"num_critic_only_steps = {only} leaves none of num_rollout = {length} rollouts to train the policy in"


def _old_actor_problems(config: RunConfig, given: Set[str]) -> Iterator[str]:
    rollout = config.rollout
    if not config.optim.keep_old_actor:
        return
    if not config.roles["correction"].use:
        reason = "without a correction, ratios use the engine's log-probs"
        yield f'keep_old_actor has no effect here: {reason}; leave it out, or write [correction] use = "tis"'
    if _streams(rollout):
        yield (
            "keep_old_actor keeps one weight version, and here a rollout's tokens are of several: leave it out, or set "
            'rollout_policy = "sync" or "async" without partial_rollout'
        )
    elif rollout.rollout_policy == "sync" and rollout.update_weights_interval == 1:
        instead = 'set rollout_policy = "async", or update_weights_interval above 1'
        yield f"keep_old_actor has no effect here: training begins with the weights that generated; {instead}"


def unused_in_finetuning(given: Collection[str]) -> Iterator[str]:
    """Yield one sentence for each given key that concerns generation, which finetuning does not do."""
    used = {"rollout_batch_size", "num_rollout", "num_epoch", "eval_interval", "skip_eval_before_train"}
    used |= {"eval_prompt_data", "eval_input_key", "eval_label_key", "rollout_max_context_len"}
    keys = {*RolloutArgs.model_fields, *EvalArgs.model_fields, *AlarmArgs.model_fields} - used
    keys |= {"served_models", "metadata_key", "multimodal_keys", "rollout_max_prompt_len", "final_assistant_message"}
    for key in sorted(keys.intersection(given)):
        yield f"{key} has no effect here: {_NOTHING_GENERATED}"


# From the keys of a run file and flags to a `RunConfig`, with all checks that need no file.


def parse_config(
    values: Mapping[str, Json], catalog: Catalog | None = None, over: Mapping[str, Json] | None = None
) -> RunConfig:
    """Check the keys of a run file and of flags (`over`, which win), and sort them into families.

    Without a catalog, discover the plugins that `[plugins]` selects.

    Raises:
        ConfigError: unknown, missing, mistyped, out-of-range or inert keys; one message lists all.
        PluginError: a choice declares a forbidden key, or a required plugin fails to load.
        UnknownName: no reward is chosen and the loss is unknown.
    """
    problems: list[str] = []
    plugins = PluginSet()
    try:
        plugins = parse_plugins(values.get(TABLE, {}))
    except ConfigError as error:
        problems.append(str(error))
    catalog = catalog or Catalog.discover(plugins)
    form = canonical([values, over or {}], catalog)
    problems += form.problems
    families: dict[str, Any] = {}
    for name, family in FAMILIES.items():
        given = {key: form.values[key] for key in family.model_fields if key in form.values}
        try:  # defaults are valid; skipping validation saves the time to build pydantic's schema
            families[name] = family.model_validate(given) if given or family is RunArgs else family.model_construct()
        except ValidationError as error:
            problems += explain(error, family)
    roles: dict[str, RoleTable] = {}
    for role in SELECTABLE:
        try:
            roles[role] = parse_role_table(role, form.values.get(role, {}))
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    config = RunConfig(**families, roles=roles, plugins=plugins)
    scored = roles["reward"].use or roles["group_reward"].use or config.debug.load_debug_rollout_data
    named = () if scored else roles["loss"].use.keys() - DEFAULT_USE["loss"]
    if any(not catalog.find(LossSpec, name).spec.uses_advantages for name in named):
        config = replace(config, finetunes=True)
    refuse_inert(config)
    return config
