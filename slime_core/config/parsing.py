"""Turns the keys of a run file into a `RunConfig`, and rejects keys that have no effect in this run.

A user who sets a key expects an effect: `eval_interval = 5` without `eval_prompt_data` is an error. A key at its
default is always accepted, so a resolved run file, which contains the defaults, can be read again. No file is opened.

Example:

    config = parse_config({"prompt_data": "train.jsonl", "reward": {"use": "math"}, ...})
"""

from collections.abc import Collection, Iterator, Mapping, Set
from string import Formatter

from pydantic import ValidationError

from slime_core.catalog import Catalog
from slime_core.config.companions import companion_problems
from slime_core.config.family import AlarmArgs, ClusterArgs, given_in
from slime_core.config.flat_keys import CHOOSES, FlatKeys, TakenNames, place_workers, unknown_key
from slime_core.config.keys import FAMILIES, FAMILY_OF_KEY, EvalArgs, OptimArgs, RolloutArgs, RunConfig
from slime_core.config.run_file import TABLE, parse_plugins
from slime_core.config.settings import DEFAULT_USE, RoleTable, explain, parse_role_table
from slime_core.errors import ConfigError, did_you_mean
from slime_core.roles import SELECTABLE, LossSpec, PluginSet, Settings, TrainerSpec
from slime_core.sample import Json

# What `save_debug_train_data` and `save_hf` may say: paths with the numbers of what is written in braces.


def fields_of(template: str) -> set[str]:
    """What stands in braces.

    Raises:
        ValueError: a brace is left alone, or says more than a name.
    """
    found = {name for _, name, form, conversion in Formatter().parse(template) if name is not None}
    if any(form or conversion for _, _, form, conversion in Formatter().parse(template)):
        raise ValueError("a name alone stands in braces")
    return found


def check_template(key: str, template: str, known: set[str]) -> set[str]:
    """The names in a path's braces, all of them known.

    Raises:
        ConfigError: one is not, or the braces do not match.
    """
    allowed = " and ".join(f"{{{name}}}" for name in sorted(known, reverse=True))
    try:
        found = fields_of(template)
    except ValueError as error:
        raise ConfigError(f"{key} = {template!r}: {error}; it may say {allowed}") from None
    if strange := sorted(found - known):
        hint = did_you_mean(strange[0], known)
        raise ConfigError(f"{key} = {template!r}: nothing is known of {{{strange[0]}}}.{hint} It may say {allowed}")
    return found


def check_train_data(config: RunConfig, trainer: TrainerSpec, settings: Settings) -> None:
    """See that the trainer writes what it trains on, each share to a file of its own.

    Raises:
        ConfigError: it does not, or several would write one file.
    """
    template = config.debug.save_debug_train_data
    if template is None:
        return
    if config.debug.debug_rollout_only:
        raise ConfigError("save_debug_train_data has no effect here: debug_rollout_only starts no trainer")
    if not trainer.keeps_train_data:
        raise ConfigError(f"save_debug_train_data has no effect on trainer {trainer.name!r}: choose another")
    found = check_template("save_debug_train_data", template, {"rollout_id", "rank"})
    shares = len(set(trainer.share_of_ranks(settings)))
    if "rank" not in found and shares > 1:
        raise ConfigError(
            f"save_debug_train_data = {template!r}: {shares} ranks of trainer {trainer.name!r} would write one file: "
            "put {rank} into its name"
        )


# Inert keys: a key that was set and can change nothing is refused, because its author believes it does.

_EVAL_KEYS = (
    "eval_interval",
    "skip_eval_before_train",
    "n_samples_per_eval_prompt",
    "eval_input_key",
    "eval_label_key",
    "eval_temperature",
    "eval_top_p",
    "eval_top_k",
    "eval_max_response_len",
    "eval_min_new_tokens",
    "alarm_hacking",
)


def refuse_inert(config: RunConfig) -> None:
    """Refuse keys that were set and have no effect, and combinations that contradict each other.

    Raises:
        ConfigError: naming each key and what would give it effect.
    """
    problems: list[str] = []
    given = _set_keys(config)

    def needs(key: str, condition: bool, remedy: str) -> None:
        if key in given and not condition:
            problems.append(f"{key} has no effect here: {remedy}")

    rollout, data = config.rollout, config.data
    for key in _EVAL_KEYS:
        needs(key, bool(config.evaluation.eval_prompt_data), "give eval_prompt_data, or leave it out")
    if config.evaluation.eval_prompt_data and config.evaluation.eval_interval is None:
        problems.append("eval_prompt_data has no effect here: give eval_interval, the rollouts between evaluations")
    if "hacking" in config.alarms.stop_on_alarms and not config.evaluation.eval_prompt_data:
        problems.append("stop_on_alarms has hacking, which evaluations show: give eval_prompt_data, or leave it out")
    problems += _best_problems(config)
    problems += _hf_problems(config)
    needs(
        "apply_chat_template_kwargs",
        data.apply_chat_template,
        "set apply_chat_template = true, or leave it out",
    )
    cuts = rollout.rollout_top_p < 1 or rollout.rollout_top_k > 0 or rollout.rollout_min_p > 0
    needs("accept_biased_sampling", cuts, "nothing cuts off the tail of a distribution; leave it out")
    needs("max_bad_row_rate", data.bad_rows == "skip", 'set bad_rows = "skip", or leave it out')
    filtering = bool(config.roles["group_filter"].use)
    streams = rollout.rollout_policy == "continuous" or rollout.partial_rollout
    over_samples = filtering or (rollout.partial_rollout and rollout.rollout_policy == "sync")
    needs(
        "over_sampling_batch_size",
        over_samples,
        'choose a group filter ([group_filter] use = "nonzero_std"), or set partial_rollout = true with '
        'rollout_policy = "sync"',
    )
    needs("max_staleness", streams, 'set rollout_policy = "continuous", or partial_rollout = true')
    needs("mask_offpolicy_in_partial_rollout", rollout.partial_rollout, "set partial_rollout = true")
    needs("partial_rollout", rollout.rollout_policy != "async", 'with "async", the weights wait for a whole rollout')
    if rollout.partial_rollout and rollout.rollout_policy == "sync":
        problems += _partial_in_sync(rollout)
    problems += _older_than_allowed(rollout) if streams else ()
    needs("max_filter_waves", filtering, 'choose a group filter ([group_filter] use = "nonzero_std")')
    problems += _schedule_problems(config.optim, given)
    if config.optim.constant_loss_length is not None and config.optim.calculate_per_token_loss:
        problems.append("calculate_per_token_loss and constant_loss_length both say what divides the loss: give one")
    if rollout.num_rollout is not None and rollout.num_epoch is not None:
        problems.append("num_rollout and num_epoch both say how long the run is: give one")
    if rollout.num_rollout is None and rollout.num_epoch is None:
        problems.append("how long is the run? give num_rollout (rollouts) or num_epoch (passes over the prompts)")
    if config.finetunes:
        problems += _inert_in_finetuning(config, given)
    elif not config.roles["reward"].use and not config.roles["group_reward"].use:
        problems.append(
            'no reward is chosen: write [reward] use = "math", or pass --reward math; '
            'or, to finetune on responses that are given, [loss] use = "sft_loss"; where the generator gives rewards '
            'itself, as agents do, [reward] use = "environment"'
        )
    problems += companion_problems(config, given)
    problems += _debug_problems(config)
    if config.optim.num_steps_per_rollout > rollout.rollout_batch_size:
        problems.append(
            f"num_steps_per_rollout = {config.optim.num_steps_per_rollout} is more than "
            f"rollout_batch_size = {rollout.rollout_batch_size} groups"
        )
    if problems:
        raise ConfigError("\n".join(problems))


def _schedule_problems(optim: OptimArgs, given: Set[str]) -> Iterator[str]:
    style = optim.lr_decay_style
    if "min_lr" in given and style == "constant":
        yield 'min_lr has no effect here: set lr_decay_style = "linear" or "cosine"'
    if style != "constant" and optim.min_lr > optim.lr:
        yield f"min_lr = {optim.min_lr} is above lr = {optim.lr}, where the decay begins"
    if "lr_warmup_fraction" in given and "lr_warmup_iters" in given:
        yield "lr_warmup_fraction and lr_warmup_iters both say how long the warm-up is: give one"
    ends = style not in ("constant", "inverse-square-root")
    if "lr_decay_iters" in given and not ends and "lr_warmup_fraction" not in given:
        yield f'lr_decay_iters has no effect here: lr_decay_style = "{style}" does not end; cosine, linear and WSD do'
    for key in ("lr_wsd_decay_iters", "lr_wsd_decay_style"):
        if key in given and style != "WSD":
            yield f'{key} has no effect here: set lr_decay_style = "WSD"'
    if style == "WSD" and optim.lr_wsd_decay_iters is None:
        yield 'lr_decay_style = "WSD" stays at lr until its decay: give lr_wsd_decay_iters, the steps of that'


def _best_problems(config: RunConfig) -> Iterator[str]:
    wanted, sets = config.run.save_best, config.evaluation.eval_prompt_data
    if wanted is None:
        return
    if config.finetunes:
        yield "save_best has no effect here: finetuning is judged by its loss, not by rewards"
    elif config.debug.debug_rollout_only:
        yield "save_best has no effect here: with debug_rollout_only the model stays as it is"
    elif wanted not in sets:
        yield f"save_best = {wanted!r} names no evaluation set.{did_you_mean(wanted, sets)} eval_prompt_data has: " + (
            ", ".join(sets) or "none"
        )


def _hf_problems(config: RunConfig) -> Iterator[str]:
    run = config.run
    if run.save_hf is None:
        return
    if config.debug.debug_rollout_only:
        yield "save_hf has no effect here: with debug_rollout_only the model stays as it is"
    if not run.checkpoint_hf:
        yield (
            "save_hf and checkpoint_hf = false: the model is linked from the checkpoint's, and takes no more room "
            "while both are there; leave checkpoint_hf out"
        )
    try:
        check_template("save_hf", run.save_hf, {"rollout_id"})
    except ConfigError as error:
        yield str(error)


def unread_in_finetuning(given: Collection[str]) -> Iterator[str]:
    """A sentence for each key among these that says how to generate, which a finetuning does not do."""
    used = {"rollout_batch_size", "num_rollout", "num_epoch", "eval_interval", "skip_eval_before_train"}
    used |= {"eval_prompt_data", "eval_input_key", "eval_label_key", "rollout_max_context_len"}
    unread = {
        "served_models",
        "metadata_key",
        "multimodal_keys",
        "rollout_max_prompt_len",
        "final_assistant_message",
    }
    keys = [*RolloutArgs.model_fields, *EvalArgs.model_fields, *AlarmArgs.model_fields]
    for key in [*(key for key in keys if key not in used), *unread]:
        if key in given:
            yield f"{key} has no effect here: with sft_loss and no reward nothing is generated"


def _inert_in_finetuning(config: RunConfig, given: Set[str]) -> Iterator[str]:
    yield from unread_in_finetuning(given)
    for role in ("group_filter", "sample_filter", "correction"):
        if config.roles[role].use:
            yield f"{role} has no effect here: with sft_loss and no reward nothing is generated"


def _debug_problems(config: RunConfig) -> Iterator[str]:
    debug = config.debug
    if debug.load_debug_rollout_data is None:
        if debug.load_debug_rollout_data_subsample < 1.0:
            yield "load_debug_rollout_data_subsample has no effect here: give load_debug_rollout_data"
        if debug.debug_train_only:
            yield "debug_train_only trains on kept samples: give load_debug_rollout_data, the run folder that has them"
        return
    if debug.debug_rollout_only:
        yield "debug_rollout_only starts no trainer, load_debug_rollout_data only a trainer: give one of them"
    if debug.load_debug_rollout_data.resolve() == config.run.save.resolve():
        yield f"load_debug_rollout_data = {debug.load_debug_rollout_data} is the run's own folder: give another save"


def _older_than_allowed(rollout: RolloutArgs) -> Iterator[str]:
    """Whether weights that are published less often grow older than groups may be."""
    behind, most = rollout.update_weights_interval - 1, _staleness(rollout)
    if behind > most:
        yield (
            f"update_weights_interval = {behind + 1} lets weights be {behind} versions behind, and max_staleness = "
            f"{most}: give at least that"
        )


def _staleness(rollout: RolloutArgs) -> int:
    return 1 if rollout.max_staleness is None else rollout.max_staleness


def _partial_in_sync(rollout: RolloutArgs) -> list[str]:
    """What keeps partial rollouts from having an effect between training steps."""
    batch, staleness = rollout.rollout_batch_size, _staleness(rollout)
    given, most = rollout.over_sampling_batch_size or batch, batch * (staleness + 1)
    if given <= batch:
        least = f"above rollout_batch_size = {batch}"
        return [f"partial_rollout has no effect here: give an over_sampling_batch_size {least}"]
    if given > most:
        why = f"with max_staleness = {staleness} at most {most} groups can be trained in time"
        return [f"over_sampling_batch_size = {given} has no effect here: {why}"]
    return []


def _set_keys(config: RunConfig) -> frozenset[str]:
    """Keys whose value is not their default."""
    return frozenset[str]().union(*(given_in(getattr(config, name)) for name in FAMILIES))


# From the keys of a run file to a `RunConfig`, checked as far as it goes without looking at files.


def parse_config(values: Mapping[str, Json], catalog: Catalog | None = None) -> RunConfig:
    """Check and sort the keys of a run file.

    Args:
        values: the keys.
        catalog: what is offered, for the keys that choices have; by default what `[plugins]` says is loaded.

    Raises:
        ConfigError: unknown, missing, mistyped, out-of-range or inert keys; all of them in one message.
        PluginError: a choice declares keys that it cannot have, or a plugin that is asked for cannot be loaded.
        UnknownName: there is no reward, and the loss that may need none is not offered.
    """
    problems: list[str] = []
    plugins = PluginSet()
    try:
        plugins = parse_plugins(values.get(TABLE, {}))
    except ConfigError as error:
        problems.append(str(error))
    catalog = catalog or Catalog.discover(plugins)
    values = TakenNames(catalog).place(values).values
    flat_keys = FlatKeys(catalog)
    placed = flat_keys.place(values)
    flat = placed.values
    try:
        flat = place_workers(flat, ClusterArgs.model_validate(_keys_of("cluster", flat)), flat_keys)
    except ConfigError as error:
        problems.append(str(error))
    except ValidationError:  # said below, with every other family's
        pass
    known = (*FAMILY_OF_KEY, *SELECTABLE, TABLE)
    names = (*known, *CHOOSES, *flat_keys.owners)
    problems += [unknown_key(key, values.get(key), names, catalog) for key in flat if key not in known]
    parsed: dict[str, object] = {}
    for name, family in FAMILIES.items():
        try:
            parsed[name] = family.model_validate(_keys_of(name, flat))
        except ValidationError as error:
            problems += explain(error, family)
    roles: dict[str, RoleTable] = {}
    for role in SELECTABLE:
        try:
            roles[role] = parse_role_table(role, flat.get(role, {}))
        except ConfigError as error:
            problems.append(str(error))
    problems += placed.problems
    if problems:
        raise ConfigError("\n".join(problems))
    scored = roles["reward"].use or roles["group_reward"].use or flat.get("load_debug_rollout_data")
    if not scored:
        for name in roles["loss"].use.keys() - DEFAULT_USE["loss"]:
            catalog.find(LossSpec, name)
    finetunes = not scored and _needs_no_reward(flat, flat_keys)
    config = RunConfig(**parsed, roles=roles, plugins=plugins, finetunes=finetunes)  # type: ignore[arg-type]  # each family was validated by its own class
    refuse_inert(config)
    return config


def _keys_of(name: str, flat: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in flat.items() if FAMILY_OF_KEY.get(key) == name}


def _needs_no_reward(flat: Mapping[str, Json], flat_keys: FlatKeys) -> bool:
    """Whether the loss reads no advantages, which are all that rewards are for."""
    losses = [each.spec for (role, _), each in flat_keys.chosen(flat).items() if role == "loss"]
    return any(isinstance(spec, LossSpec) and not spec.uses_advantages for spec in losses)
