"""Resolves a configuration into a `Plan`: looks up each name, reads each setting, and checks that choices fit.

`Installed` lets other packages check the keys of a run file without its model directory and prompts.

Example:

    plan = resolve(parse_config(values), Catalog.discover())
    installed = Installed()
    installed.check(read_run_file(Path("run.toml")))         # ConfigError: "unknown key 'lrr'. Did you mean 'lr'?"
"""

from collections.abc import Mapping

from slime_core.catalog import Catalog, find_part
from slime_core.catalog.checks import plugin_errors
from slime_core.config.companions import check_models, plan_served
from slime_core.config.fit import check_fit, name_transport, wanted_extras
from slime_core.config.keys import RunConfig
from slime_core.config.model_dir import read_model_config, read_positions
from slime_core.config.parsing import parse_config
from slime_core.config.plan import Plan, check_media, check_outputs, choice, group_uses
from slime_core.config.settings import OPTIONAL, ChosenRoles, ResolvedChoice, read_settings
from slime_core.errors import ConfigError, SlimeError, UnknownName, did_you_mean
from slime_core.roles import (
    SPECS,
    EngineSpec,
    EngineUse,
    GeneratorSpec,
    LauncherSpec,
    PluginSet,
    RewardSpec,
    TrainerSpec,
    TrainerUse,
    TransportSpec,
)
from slime_core.sample import Json

# From a configuration to a `Plan`: look up every name, read every setting, and check that the choices fit.

MAX_SAMPLES = 10_000_000
"""Limit of samples in one rollout."""


def resolve(config: RunConfig, catalog: Catalog) -> Plan:
    """Resolve every name and check every setting, file and combination. Raises SlimeError: one is not valid."""
    roles, unused = resolve_choices(config, catalog)
    model, rollout, trainer = config.run.hf_checkpoint, config.rollout, roles.one(TrainerSpec)
    _check_parts(config)
    check_models(config, trainer)
    check_outputs(config)
    if trainer.spec.check is not None and not config.debug.debug_rollout_only:
        with plugin_errors(f"check of trainer {trainer.reference!r}", trainer.plugin):
            nodes = config.cluster.actor_num_nodes or 1 if trainer.spec.needs(trainer.settings).gpus > 0 else 1
            trainer.spec.check(trainer.settings, TrainerUse(config.run.bf16, nodes))
    _check_sizes(config)
    want = wanted_extras(config, roles, catalog)
    plan = Plan(config, catalog, roles, unused, want, plan_served(config, roles, catalog))
    launcher, engine = roles.one(LauncherSpec), roles.one(EngineSpec)
    if (check := launcher.spec.check) is not None:
        check(launcher.settings, group_uses(plan))
    if config.generates and (fits := engine.spec.check) is not None:
        use = EngineUse(model, read_model_config(model), rollout.rollout_num_engines, rollout.sampling())
        fits(engine.settings, use)
    for key, own in config.evaluation.eval_prompt_data.items():
        for role, name in ((RewardSpec, own.reward), (GeneratorSpec, own.generator)):
            try:
                if name is not None:
                    plan.choose(role, name)
            except UnknownName as error:
                raise UnknownName(f"eval_prompt_data.{key}.{role.role}: {error}") from None
    check_media(plan)
    return plan


def resolve_choices(config: RunConfig, catalog: Catalog) -> tuple[ChosenRoles, tuple[str, ...]]:
    """Return the checked choices of each role, and the names of unused sections. Opens no file."""
    problems: list[str] = []
    chosen: dict[str, tuple[ResolvedChoice, ...]] = {}
    unused: list[str] = []
    for role, table in config.roles.items():
        found = []
        for name, weight in table.use.items():
            try:
                found.append(choice(SPECS[role], name, weight, table, catalog))
            except ConfigError as error:
                problems.append(str(error))
        chosen[role] = tuple(found)
        offered = {name for each in catalog.choices(role).values() for name in (each.spec.name, each.qualified)}
        for name in [name for name in table.sections if name not in table.use]:
            unused.append(f"{role}.{name}")
            # A section of a plugin that is not installed is allowed; a near match is reported as a typo.
            if name not in offered and (hint := did_you_mean(name, offered)):
                problems.append(f"[{role}.{name}]: nothing chooses {name!r}, and no plugin offers it.{hint}")
    problems += [
        f'{role}.use is empty: this role needs a choice, [{role}] use = "NAME"'
        for role, table in config.roles.items()
        if role not in OPTIONAL and not table.use
    ]
    if problems:
        raise ConfigError("\n".join(problems))
    roles = ChosenRoles(chosen)
    # The run file's transport if trainer and engine support it, otherwise their first common one.
    trainer, engine, required = roles.one(TrainerSpec).spec, roles.one(EngineSpec).spec, roles.maybe(TransportSpec)
    name = name_transport(trainer, engine, catalog, required, config.cluster.actor_num_nodes or 1)
    agreed = required or choice(TransportSpec, name, 1.0, config.roles["transport"], catalog)
    roles = ChosenRoles({**chosen, "transport": (agreed,)})
    check_fit(config, roles, catalog)
    return roles, tuple(section for section in unused if section != f"transport.{agreed.reference}")


def _check_parts(config: RunConfig) -> None:
    debug = config.debug
    if debug.load_debug_rollout_data is not None:
        find_part("train_only", "slime-train", "load_debug_rollout_data")
        find_part("stored", "slime-view", "load_debug_rollout_data")
    elif config.finetunes:
        find_part("finetune", "slime-train", "finetuning")
    elif debug.debug_rollout_only:
        find_part("rollout_only", "slime-train", "debug_rollout_only")
    if config.alarms.stop_on_alarms:
        find_part("alarms", "slime-view", "stop_on_alarms")


def _check_sizes(config: RunConfig) -> None:
    rollout, model, each = config.rollout, config.run.hf_checkpoint, config.rollout.n_samples_per_prompt
    for key in ("rollout_batch_size", "over_sampling_batch_size"):
        if (groups := getattr(rollout, key) or 0) * each > MAX_SAMPLES:
            given = f"{key} = {groups} with n_samples_per_prompt = {each} is {groups * each:,} samples at a time"
            raise ConfigError(f"{given}; at most {MAX_SAMPLES:,} are allowed")
    positions, room = read_positions(model), rollout.rollout_max_context_len
    if config.finetunes or (positions is None and room is None):
        return
    if positions is not None and room is not None and room > positions:
        raise ConfigError(f"rollout_max_context_len = {room}: the model in {model} has only {positions} positions")
    whose = f"the context has {room} tokens (rollout_max_context_len)"
    if room is None:
        room, whose = positions or 0, f"the model in {model} has {positions} positions"
    budgets = {
        "rollout_max_response_len": rollout.rollout_max_response_len,
        "eval_max_response_len": config.evaluation.eval_max_response_len,
    }
    for name, own in config.evaluation.eval_prompt_data.items():
        budgets[f"eval_prompt_data.{name}.max_response_len"] = own.max_response_len
    for key, budget in budgets.items():
        if budget is not None and budget >= room:
            raise ConfigError(f"{key} = {budget}: {whose}, prompt included; give {key} below {room}")


# For other packages: checks of a run file's keys and of single settings.


class Installed:
    """Checks of run files against the installed plugins."""

    def __init__(self) -> None:
        """Load the installed plugins. Raises PluginError: a required plugin cannot be loaded."""
        self._catalog = Catalog.discover()

    def check(self, values: Mapping[str, Json]) -> None:
        """Check that keys are known, typed, in range and not inert, and that the choices fit each other.

        Raises:
            SlimeError: the error of `slime plan`, except those about the model and the prompts.
        """
        config = parse_config(values, None if "plugins" in values else self._catalog)
        catalog = self._catalog if config.plugins == PluginSet() else Catalog.discover(config.plugins)
        resolve_choices(config, catalog)

    def refusal(self, role: str, name: str, setting: str, value: Json) -> str:
        """Return the error for an unknown or invalid setting, or "".

        Args:
            role: the role of the choice.
            name: its name.
            setting: the choice's setting, or one that it passes on to installed software, with or without the prefix of
                its flags.
            value: the setting's value.
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
