"""Plan: a configuration with every name resolved, every setting typed and every file seen, before anything starts.

Example:

    plan = resolve(config, Catalog.discover())
    plan.roles.one(EngineSpec).settings       # validated
"""

from dataclasses import dataclass, field
from typing import TypeVar

from slime_core.catalog import Catalog
from slime_core.config.chosen import Chosen, ChosenRoles
from slime_core.config.model_dir import read_model_config
from slime_core.config.role_table import RoleTable
from slime_core.config.run_config import RunConfig
from slime_core.config.served import ServedPlan
from slime_core.config.settings import read_settings
from slime_core.roles import (
    Extra,
    Spec,
)
from slime_core.sample import Json

SpecT = TypeVar("SpecT", bound=Spec[object])


@dataclass(frozen=True, slots=True)
class Plan:
    """A configuration whose names, settings and files are all known to be good."""

    config: RunConfig
    """The configuration."""
    catalog: Catalog
    """Where the choices come from."""
    roles: ChosenRoles
    """The choices of each role; of transports the one that is agreed, where the run file says none."""
    unused: tuple[str, ...]
    """Sections of the run file that nothing selected."""
    want: frozenset[Extra] = frozenset()
    """What training wants of the engine's answers beyond tokens and log-probs."""
    served: ServedPlan = field(default_factory=dict)
    """Models that are served beside the policy, by name."""

    def model_config(self) -> dict[str, Json]:
        """The model's config.json."""
        return read_model_config(self.config.run.hf_checkpoint)

    def choose(self, role: type[SpecT], name: str) -> Chosen[SpecT]:
        """What an evaluation set or a row of data names, with the settings of its section and weight 1.

        Raises:
            UnknownName: nobody offers it.
            ConfigError: its settings are refused, or several plugins offer it.
        """
        return choice(role, name, 1.0, self.config.roles[role.role], self.catalog)


def choice(role: type[SpecT], name: str, weight: float, table: RoleTable, catalog: Catalog) -> Chosen[SpecT]:
    """What somebody offers under a name, with its settings of the role's table; errors as in `Plan.choose`."""
    registered = catalog.find(role, name)
    settings = read_settings(role.role, name, registered.spec, table.sections.get(name, {}))
    return Chosen(name, registered, settings, weight)
