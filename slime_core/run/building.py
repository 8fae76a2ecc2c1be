"""build: one choice of a plan through its factory, whose errors and products are blamed on its plugin.

Example:

    generator = build(plan.roles.one(GeneratorSpec), setup)
"""

from typing import TypeVar

from slime_core.catalog.checks import blaming
from slime_core.catalog.used import Used
from slime_core.config import Chosen
from slime_core.errors import ContractError
from slime_core.roles import (
    BatchTransform,
    Buffer,
    BufferFilter,
    DataSource,
    Engine,
    Generator,
    GroupFilter,
    GroupReward,
    Launcher,
    Reward,
    RewardShaper,
    SampleFilter,
    Setup,
    Spec,
    Tracker,
    Transport,
)

PartT = TypeVar("PartT")

PROTOCOLS: dict[str, type] = {
    "data_source": DataSource,
    "generator": Generator,
    "reward": Reward,
    "group_reward": GroupReward,
    "group_filter": GroupFilter,
    "sample_filter": SampleFilter,
    "buffer": Buffer,
    "buffer_filter": BufferFilter,
    "reward_shaper": RewardShaper,
    "batch_transform": BatchTransform,
    "engine": Engine,
    "launcher": Launcher,
    "transport": Transport,
    "tracker": Tracker,
}
"""What the factory of a role must make, as far as its methods tell."""


def build(chosen: Chosen[Spec[PartT]], setup: Setup) -> PartT:
    """What a choice's factory makes.

    Raises:
        PluginError: the factory raised, or made something else than its role needs.
    """
    spec = chosen.spec
    with blaming(f"the factory of {spec.role} {chosen.reference!r}", chosen.plugin):
        made = spec.factory(chosen.settings, setup)
    needed = PROTOCOLS.get(spec.role)
    if needed is not None and not isinstance(made, needed):
        raise ContractError(
            f"the factory of {spec.role} {chosen.reference!r} of plugin {chosen.plugin} made "
            f"{type(made).__name__} {made!r:.80}; expected a {needed.__name__} (slime_core.roles)"
        )
    return made


def build_used(chosen: Chosen[Spec[PartT]], setup: Setup) -> Used[PartT]:
    """The same, with the names that error texts and metrics call it by."""
    return Used(chosen.reference, chosen.plugin, build(chosen, setup))
