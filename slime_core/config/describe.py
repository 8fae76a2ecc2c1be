"""A plan as plain data, for `slime plan` and plan.json."""

from typing import TypedDict

from slime_core.catalog import PluginState
from slime_core.config.families import FAMILIES
from slime_core.config.groups import worker_groups
from slime_core.config.plan import Plan
from slime_core.config.settings import show_settings
from slime_core.roles import CallSpec, TransportSpec, describe_isolation
from slime_core.sample import Json


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
