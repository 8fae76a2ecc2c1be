"""Resolves a configuration into a `Plan`: looks up each name, reads each setting, and checks that choices fit.

`describe_plan` returns the plan as plain data for `slime plan` and plan.json. `Installed` lets other packages check
the keys of a run file without its model directory and prompts.

Example:

    plan = resolve(parse_config(values), Catalog.discover())
    installed = Installed()
    installed.check(read_run_file(Path("run.toml")))         # ConfigError: "unknown key 'lrr'. Did you mean 'lr'?"
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict, TypeVar, get_args

from pydantic import SecretStr

from slime_core.catalog import Catalog, PluginState, part_of
from slime_core.catalog.checks import blaming
from slime_core.config.companions import TEACHES, check_companions, check_teacher, teaching, wanted_extras
from slime_core.config.family import Served, ServedPlan
from slime_core.config.fit import (
    check_estimation,
    check_interval,
    check_replay,
    check_scored,
    check_turns,
    name_transport,
)
from slime_core.config.keys import FAMILIES, RunConfig
from slime_core.config.model_dir import (
    check_companion_dirs,
    check_missing_model,
    check_model_dir,
    read_model_config,
    read_positions,
    refuse_quantized,
)
from slime_core.config.parsing import check_train_data, parse_config
from slime_core.config.plan import (
    Plan,
    check_media,
    check_outputs,
    check_rendered_once,
    choice,
    group_uses,
    worker_groups,
)
from slime_core.config.run_file import read_run_file, read_yaml, write_toml
from slime_core.config.settings import (
    DEFAULT_USE,
    OPTIONAL,
    Chosen,
    ChosenRoles,
    RoleTable,
    read_settings,
    show_settings,
)
from slime_core.errors import ConfigError, SlimeError, UnknownName, did_you_mean
from slime_core.roles import (
    SPECS,
    BatchTransformSpec,
    BufferFilterSpec,
    BufferSpec,
    CallSpec,
    DataSourceSpec,
    EngineSpec,
    EngineUse,
    GeneratorSpec,
    LauncherSpec,
    PluginSet,
    RewardSpec,
    Spec,
    TrainerSpec,
    TrainerUse,
    TransportSpec,
    describe_isolation,
)
from slime_core.sample import Json

__all__ = [
    "Installed",
    "read_run_file",
    "read_yaml",
    "write_toml",
]


# From a configuration to a `Plan`: every name is looked up, every setting read, and the choices are seen to fit.

SpecT = TypeVar("SpecT", bound=Spec[object])

MOST_SAMPLES = 10_000_000
"""Samples of one rollout."""


def resolve(config: RunConfig, catalog: Catalog) -> Plan:
    """Resolve every name and check every setting.

    Raises:
        UnknownName: a role has no choice of that name.
        ConfigError: settings are refused, or two choices do not fit each other; all problems in one message.
        ModelError: the model directory cannot be used.
    """
    roles, unused = resolve_choices(config, catalog)
    _check_parts(config)
    check_model_dir(config.run.hf_checkpoint)
    check_missing_model(config, roles.one(TrainerSpec))
    check_companion_dirs(config)
    check_outputs(config)
    _check_trained(config, roles.one(TrainerSpec))
    _check_use(config, roles.one(TrainerSpec))
    _check_size(config)
    if not config.finetunes:
        _check_lengths(config)
    want = wanted_extras(config, roles, catalog)
    served = _served_models(config, roles, catalog)
    check_teacher(config, roles, served, catalog)
    plan = Plan(config, catalog, roles, unused, want, served)
    _check_launcher(plan)
    if not config.finetunes:
        _check_engine(config, roles.one(EngineSpec))
    _check_eval_choices(plan)
    check_media(plan)
    return plan


def resolve_choices(config: RunConfig, catalog: Catalog) -> tuple[ChosenRoles, tuple[str, ...]]:
    """The choices of each role, which fit each other, and the sections that nothing chose; no file is looked at.

    Raises:
        UnknownName: a role has no choice of that name.
        ConfigError: settings are refused, or two choices do not fit each other; all problems in one message.
    """
    problems: list[str] = []
    chosen: dict[str, tuple[Chosen, ...]] = {}
    unused: list[str] = []
    for role, table in config.roles.items():
        chosen[role] = _choose(SPECS[role], table, catalog, problems)
        left = [name for name in table.sections if name not in table.use]
        unused += [f"{role}.{name}" for name in left]
        problems += _misspelt(role, left, catalog)
    if problems:
        raise ConfigError("\n".join(problems))
    chosen["transport"] = (agreed := _transport(config, ChosenRoles(chosen), catalog),)
    roles = ChosenRoles(chosen)
    _check_fit(config, roles, catalog)
    return roles, tuple(section for section in unused if section != f"transport.{agreed.reference}")


def _misspelt(role: str, sections: Sequence[str], catalog: Catalog) -> list[str]:
    """Sections that nothing chose and nobody offers, but nearly; those of plugins that are not here are left alone."""
    offered = {name for each in catalog.choices(role).values() for name in (each.spec.name, each.qualified)}
    return [
        f"[{role}.{name}]: nothing chooses {name!r}, and nobody offers it.{hint}"
        for name in sections
        if name not in offered and (hint := did_you_mean(name, offered))
    ]


def _transport(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> Chosen:
    """What the run file says, if it will do, or what trainer and engine agree on, with the settings of its section."""
    trainer, engine = _first(TrainerSpec, roles).spec, _first(EngineSpec, roles).spec
    forced = roles.maybe(TransportSpec)
    nodes = config.cluster.actor_num_nodes or 1
    name = name_transport(trainer, engine, catalog, forced, nodes)
    return forced or choice(TransportSpec, name, 1.0, config.roles["transport"], catalog)


def _first(spec: type[SpecT], roles: ChosenRoles) -> Chosen[SpecT]:
    if (first := roles.maybe(spec)) is None:
        raise ConfigError(f'{spec.role}.use is empty: this role needs a choice, [{spec.role}] use = "NAME"')
    return first


def _check_eval_choices(plan: Plan) -> None:
    """See that what evaluation sets name exists."""
    for key, own in plan.config.evaluation.eval_prompt_data.items():
        for role, name in ((RewardSpec, own.reward), (GeneratorSpec, own.generator)):
            if name is not None:
                try:
                    plan.choose(role, name)
                except UnknownName as error:
                    raise UnknownName(f"eval_prompt_data.{key}.{role.role}: {error}") from None


def _choose(role: type[SpecT], table: RoleTable, catalog: Catalog, problems: list[str]) -> tuple[Chosen[SpecT], ...]:
    chosen = []
    for name, weight in table.use.items():
        try:
            chosen.append(choice(role, name, weight, table, catalog))
        except ConfigError as error:
            problems.append(str(error))
    return tuple(chosen)


def _check_columns(transforms: Sequence[Chosen[BatchTransformSpec]]) -> None:
    """Refuse a column that two batch transforms make."""
    owners: dict[str, str] = {}
    for chosen in transforms:
        for column in chosen.spec.columns:
            if column in owners:
                raise ConfigError(
                    f"batch transforms {owners[column]!r} and {chosen.reference!r} both make the column {column!r}: "
                    "leave one of them out"
                )
            owners[column] = chosen.reference


def _check_fit(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> None:
    for role in roles:
        if role not in OPTIONAL:
            _first(SPECS[role], roles)
    _check_columns(roles.all(BatchTransformSpec))
    check_companions(config, roles, catalog)
    check_estimation(config, roles, catalog)
    check_scored(roles)
    check_rendered_once(config, roles)
    source, engine = roles.one(DataSourceSpec), roles.one(EngineSpec).spec
    if reads := source.spec.reads_prompt_data:
        if not config.data.prompt_data:
            raise ConfigError("prompt_data is required: a .jsonl or .parquet file, --prompt-data FILE")
    elif reads is False and config.data.prompt_data:
        raise ConfigError(f"prompt_data has no effect here: data source {source.reference!r} makes its own prompts")
    trainer = roles.one(TrainerSpec)
    spec = trainer.spec
    if config.optim.balance_by_flops and not any(spec.share_of_ranks(trainer.settings)):
        ranks = spec.world_size(trainer.settings)
        raise ConfigError(
            f"balance_by_flops has no effect here: trainer {trainer.reference!r} has one "
            + ("rank" if ranks == 1 else f"share of a step for all of its {ranks} ranks")
        )
    if not config.run.checkpoint_hf and not spec.loads_without_hf:
        raise ConfigError(
            f"checkpoint_hf = false: trainer {trainer.reference!r} continues from hf/ alone; leave it out, or choose "
            "another trainer"
        )
    if config.optim.reset_optimizer_states and not spec.resets_optimizer:
        raise ConfigError(
            f"reset_optimizer_states has no effect on trainer {trainer.reference!r}: leave it out, or choose another"
        )
    check_train_data(config, spec, trainer.settings)
    check_turns(config, engine, spec)
    check_interval(config, roles.one(TransportSpec).spec, engine)
    if config.run.bf16:
        check_bf16(config, engine, spec, catalog)
    check_replay(config, roles.one(BufferSpec))
    buffer, own_filter = roles.one(BufferSpec), roles.one(BufferFilterSpec)
    if not buffer.spec.uses_buffer_filter and own_filter.reference not in DEFAULT_USE["buffer_filter"]:
        raise ConfigError(
            f"buffer filter {own_filter.reference!r} has no effect here: buffer {buffer.reference!r} takes none"
        )


def check_bf16(config: RunConfig, engine: EngineSpec, trainer: TrainerSpec, catalog: Catalog) -> None:
    """See that the engine and the trainer, those of them that the run starts, can compute in bf16: both or neither.

    Raises:
        ConfigError: one cannot.
    """
    generates = not config.finetunes and config.debug.load_debug_rollout_data is None
    trains = not config.debug.debug_rollout_only
    parties: tuple[tuple[bool, EngineSpec | TrainerSpec], ...] = ((generates, engine), (trains, trainer))
    for used, able in parties:
        if used and not able.bf16:
            others = (each.spec for each in catalog.choices(type(able)).values())
            can = [f'[{able.role}] use = "{spec.name}"' for spec in others if spec.bf16]
            raise ConfigError(
                f"bf16 has no effect on {able.role} {able.name!r}: leave it out, or choose one that can, "
                f"{' or '.join(can) or 'which no installed one does'}"
            )


def _check_parts(config: RunConfig) -> None:
    """See that what some keys ask for is installed; errors as of `part_of`."""
    debug = config.debug
    if debug.load_debug_rollout_data is not None:
        part_of("train_only", "slime-train", "load_debug_rollout_data")
        part_of("stored", "slime-view", "load_debug_rollout_data")
    elif config.finetunes:
        part_of("finetune", "slime-train", "finetuning")
    elif debug.debug_rollout_only:
        part_of("rollout_only", "slime-train", "debug_rollout_only")
    if config.alarms.stop_on_alarms:
        part_of("alarms", "slime-view", "stop_on_alarms")


def _check_launcher(plan: Plan) -> None:
    """Have the launcher say whether it can start what the run asks for."""
    chosen = plan.roles.one(LauncherSpec)
    if (check := chosen.spec.check) is not None:
        check(chosen.settings, group_uses(plan))


def _check_engine(config: RunConfig, chosen: Chosen[EngineSpec]) -> None:
    """Have the engine say whether it can do what the run asks, if the run starts any."""
    check = chosen.spec.check
    if check is None or config.debug.load_debug_rollout_data is not None:
        return
    model, rollout = config.run.hf_checkpoint, config.rollout
    use = EngineUse(model, read_model_config(model), rollout.rollout_num_engines, rollout.sampling())
    check(chosen.settings, use)


def _served_models(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> ServedPlan:
    """What serves each model beside the policy, and that rewards ask for none but those.

    Raises:
        ConfigError: an engine is none, or cannot do it, or a reward asks for a model that is not there.
        ModelError: a model directory cannot be used.
    """
    given, served = config.served.served_models, dict[str, Served]()
    for name, args in given.items():
        key = f"served_models.{name}"
        reference = args.engine or roles.one(EngineSpec).reference
        try:
            registered = catalog.find(EngineSpec, reference)
        except UnknownName as error:
            raise UnknownName(f"{key}.engine: {error}") from None
        section = {**config.roles["engine"].sections.get(reference, {}), **args.settings}
        try:
            settings = read_settings("engine", reference, registered.spec, section)
            spec = registered.spec
            check_model_dir(args.hf_checkpoint, f"{key}.hf_checkpoint")
            if config.run.bf16 and not spec.bf16:
                raise ConfigError(f"engine {reference!r} cannot compute in bf16, as this run does: choose another")
            if spec.check is not None:
                use = EngineUse(args.hf_checkpoint, read_model_config(args.hf_checkpoint), args.engines)
                if name == config.distillation.opd_teacher_model:
                    use = replace(use, sampling=teaching(config), want=TEACHES)
                spec.check(settings, use)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from None
        served[name] = Served(args.hf_checkpoint, Chosen(reference, registered, settings, 1.0), args.engines)
    for chosen in roles.all(RewardSpec):
        for name in chosen.spec.models(chosen.settings):
            if name not in served:
                raise ConfigError(
                    f"reward {chosen.reference!r} asks the model {name!r}, which this run does not serve."
                    f"{did_you_mean(name, served)} Models: {', '.join(served) or 'none'}; add one by "
                    f"[served_models.{name}] hf_checkpoint = PATH"
                )
    return served


def _check_trained(config: RunConfig, trainer: Chosen[TrainerSpec]) -> None:
    """Ask the trainer whether it can train this model."""
    if config.debug.debug_rollout_only:
        return
    models = {
        "": config.run.hf_checkpoint,
        "ref_load": config.reference.ref_load,
        "opd_teacher_load": config.distillation.opd_teacher_load,
        "critic_load": config.critic.critic_load,
    }
    for key, directory in models.items():
        if directory is None:
            continue
        refuse_quantized(directory)
        model = read_model_config(directory)
        try:
            with blaming(f"check_model of trainer {trainer.reference!r}", trainer.plugin):
                beside = trainer.spec.check_companion if key else None
                (beside or trainer.spec.check_model)(trainer.settings, model)
        except ConfigError as error:
            raise ConfigError(f"{key} = {directory}: {error}" if key else str(error)) from None


def _check_use(config: RunConfig, trainer: Chosen[TrainerSpec]) -> None:
    """Have the trainer say whether it can do what the run asks, if the run starts any."""
    if config.debug.debug_rollout_only:
        return
    spec, nodes = trainer.spec, config.cluster.actor_num_nodes or 1
    if spec.check is not None:
        with blaming(f"check of trainer {trainer.reference!r}", trainer.plugin):
            on_gpus = spec.needs(trainer.settings).gpus > 0
            spec.check(trainer.settings, TrainerUse(config.run.bf16, nodes if on_gpus else 1))


def _check_size(config: RunConfig) -> None:
    """Refuse rollouts that no machine holds: more likely a slip of the finger than a wish."""
    rollout = config.rollout
    each = rollout.n_samples_per_prompt
    for key in ("rollout_batch_size", "over_sampling_batch_size"):
        if (groups := getattr(rollout, key) or 0) * each > MOST_SAMPLES:
            raise ConfigError(
                f"{key} = {groups} with n_samples_per_prompt = {each} is {groups * each:,} samples at a time; at most "
                f"{MOST_SAMPLES:,} are taken: give a smaller one"
            )


def _check_lengths(config: RunConfig) -> None:
    """Refuse a context that the model has not, and a response budget that leaves no room for a prompt in it."""
    positions = read_positions(config.run.hf_checkpoint)
    context = config.rollout.rollout_max_context_len
    if positions is not None and context is not None and context > positions:
        raise ConfigError(
            f"rollout_max_context_len = {context}: the model in {config.run.hf_checkpoint} has {positions} positions; "
            f"give at most {positions}, or leave it out"
        )
    if config.finetunes:  # nothing is generated
        return
    room = positions if context is None else context
    whose = (
        f"the model in {config.run.hf_checkpoint} has {positions} positions"
        if context is None
        else (f"the context has {context} tokens (rollout_max_context_len)")
    )
    budgets = {
        "rollout_max_response_len": config.rollout.rollout_max_response_len,
        "eval_max_response_len": config.evaluation.eval_max_response_len,
    }
    for name, own in config.evaluation.eval_prompt_data.items():
        budgets[f"eval_prompt_data.{name}.max_response_len"] = own.max_response_len
    for key, budget in budgets.items():
        if room is not None and budget is not None and budget >= room:
            raise ConfigError(f"{key} = {budget}: {whose}, prompt included; give {key} below {room}")


# A plan as plain data, for `slime plan` and plan.json.


class ChosenRow(TypedDict):
    """One choice."""

    role: str
    choice: str
    plugin: str
    version: str
    origin: str
    weight: float
    settings: dict[str, Json]
    isolation: str
    """Where its calls run and under which limits; empty for roles that are not isolated."""


class GroupRow(TypedDict):
    """A group of worker processes, and what all of them need together."""

    group: str
    workers: int
    cpus: float
    gpus: float
    memory: int | None
    """Bytes; None: it does not say."""
    custom: dict[str, float]


class PlanDescription(TypedDict):
    """A whole plan."""

    choices: list[ChosenRow]
    keys: dict[str, Json]
    groups: list[GroupRow]
    transport: str
    wants: list[str]
    """What is asked of the engine beyond tokens and log-probs, for the trainer."""
    architecture: str
    plugins: list[str]
    """Loaded, in the order of loading and of hook calls."""
    excluded: list[str]
    """Installed, and left out."""
    unused: list[str]


def describe_plan(plan: Plan) -> PlanDescription:
    """Everything that a plan resolved."""
    choices = [
        ChosenRow(
            role=role,
            choice=chosen.reference,
            plugin=chosen.registered.plugin,
            version=chosen.registered.version,
            origin=chosen.registered.origin,
            weight=chosen.weight,
            settings=show_settings(chosen.settings),
            isolation=describe_isolation(chosen.spec) if isinstance(chosen.spec, CallSpec) else "",
        )
        for role, several in plan.roles.items()
        for chosen in several
    ]
    keys: dict[str, Json] = {}
    for family in FAMILIES:
        keys.update(getattr(plan.config, family).model_dump(mode="json", exclude_none=True))
    return PlanDescription(
        choices=choices,
        keys=keys,
        groups=[
            GroupRow(
                group=group.name,
                workers=group.workers,
                cpus=group.needs.cpus,
                gpus=group.needs.gpus,
                memory=group.needs.memory,
                custom=dict(group.needs.custom),
            )
            for group in worker_groups(plan)
        ],
        transport=plan.roles.one(TransportSpec).reference,
        wants=sorted(extra.value for extra in plan.want),
        architecture=_architecture(plan),
        plugins=[f"{each.plugin} {each.version}".rstrip() for each in plan.catalog.loaded],
        excluded=[each.plugin for each in plan.catalog.statuses if each.state is PluginState.EXCLUDED],
        unused=list(plan.unused),
    )


def _architecture(plan: Plan) -> str:
    match plan.model_config():
        case {"architectures": [str(name), *_]} | {"model_type": str(name)}:
            return name
    return "unknown"


# What other packages ask about run files: read one, write one, and whether its keys would be accepted.


class Installed:
    """What the installed plugins would say of a run file."""

    def __init__(self) -> None:
        """Load the installed plugins.

        Raises:
            PluginError: one that is asked for cannot be loaded.
        """
        self._catalog = Catalog.discover()

    def check(self, values: Mapping[str, Json]) -> None:
        """See that keys are known, typed, in range and not inert, and that the choices fit each other.

        Raises:
            SlimeError: as `slime plan` would say it, before it looks at the model and the prompts.
        """
        config = parse_config(values, None if "plugins" in values else self._catalog)
        catalog = self._catalog if config.plugins == PluginSet() else Catalog.discover(config.plugins)
        resolve_choices(config, catalog)

    def is_secret(self, role: str, name: str, setting: str) -> bool:
        """Whether a choice has such a setting and reads it from the environment alone, as keys and tokens are."""
        try:
            field = self._catalog.find(role, name).spec.model.model_fields[setting]
        except (SlimeError, KeyError):
            return False
        return SecretStr in (field.annotation, *get_args(field.annotation))

    def refusal(self, role: str, name: str, setting: str, value: Json) -> str:
        """Why a choice has no such setting, in its own words; empty where it has one.

        Args:
            role: the role of the choice.
            name: its name.
            setting: a setting of its own, or one that it passes on to the software that is installed, with or without
                the prefix of its flags.
            value: what it would be set to.
        """
        try:
            spec = self._catalog.find(role, name).spec
            own = setting.removeprefix(spec.flat_prefix)
            if own in spec.model.model_fields:
                return ""
            section: dict[str, Json] = {own: value}
            read_settings(role, name, spec, section if spec.installed is None else {spec.installed.key: section})
        except SlimeError as error:
            return str(error)
        return ""
