"""A plan as plain data, for `slime plan` and plan.json."""

from typing import TypedDict

from slime_core.config.families import FAMILIES
from slime_core.config.plan import Plan
from slime_core.sample import Json


class ChoiceRow(TypedDict):
    """One choice."""

    role: str
    choice: str
    plugin: str
    version: str
    origin: str
    weight: float
    settings: dict[str, Json]


class PlanDescription(TypedDict):
    """A whole plan."""

    choices: list[ChoiceRow]
    keys: dict[str, Json]
    transport: str
    architecture: str
    unused: list[str]


def describe_plan(plan: Plan) -> PlanDescription:
    """Everything that a plan resolved."""
    choices = [
        ChoiceRow(
            role=role,
            choice=chosen.reference,
            plugin=chosen.registered.plugin,
            version=chosen.registered.version,
            origin=chosen.registered.origin,
            weight=chosen.weight,
            settings=chosen.settings.model_dump(mode="json"),
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
        transport=plan.transport.value,
        architecture=_architecture(plan),
        unused=list(plan.unused),
    )


def _architecture(plan: Plan) -> str:
    match plan.model_config():
        case {"architectures": [str(name), *_]} | {"model_type": str(name)}:
            return name
    return "unknown"
