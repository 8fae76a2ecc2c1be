"""RoleContract: the base of the contracts of one choice of a role, named for the catalog or given as a spec.

Example:

    class TestMath(RewardContract):
        choice = "slime-reward-math/math"        # or a RewardSpec, or "./my_rewards.py:math"
        settings = {"timeout_s": 5}
"""

import importlib.metadata
import inspect
import sys
import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Generic, TypeVar, cast

from slime_core.catalog import Catalog, PluginWarning
from slime_core.roles import PluginSet, Settings, Setup, Spec
from slime_core.testing.contract import Contract, require

SpecT = TypeVar("SpecT", bound=Spec[object])
SEED = 1
"""The seed of every run that the kit plays."""


class RoleContract(Contract, Generic[SpecT]):
    """What the contracts of all roles share."""

    kind: ClassVar[type[Spec[object]]]
    """The spec of the contract's role."""
    choice: ClassVar[str | Spec[object]]
    """The choice: a name for the catalog, or a spec."""
    settings: ClassVar[Mapping[str, object]] = {}
    """Its settings."""
    plugins: ClassVar[PluginSet] = PluginSet()
    """Which plugins the catalog is made of."""

    @cached_property
    def spec(self) -> SpecT:
        """The spec that `choice` means."""
        kind, choice = self.kind, self.choice
        found = catalog_of(self.plugins).find(kind.role, choice).spec if isinstance(choice, str) else choice
        require(isinstance(found, kind), f"choice is a {type(found).__name__}; expected a {kind.__name__}")
        return cast(SpecT, found)

    def validated(self) -> Settings:
        """The choice's settings, as a run file's section would be validated."""
        return self.spec.settings.model_validate(dict(self.settings))

    def make(self, role: str, name: str, **settings: object) -> object:
        """Build another choice, as `Setup.make` does in a run."""
        spec = catalog_of(self.plugins).find(role, name).spec
        return spec.factory(spec.settings.model_validate(settings), self.setup())

    def setup(self) -> Setup:
        """What most factories are given."""
        return Setup(self.make, seed=SEED)

    def declared_api(self) -> str:
        """SLIME_API of the module that defines the factory, of a package around it, or of its entry point's module."""
        return self.api or _declared(self.spec) or super().declared_api()


def catalog_of(plugins: PluginSet) -> Catalog:
    """The catalog, silent about other plugins that may be broken here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)
        return Catalog.discover(plugins, strict=False)


def _declared(spec: Spec[object]) -> str | None:
    home = str(getattr(inspect.unwrap(spec.factory), "__module__", None) or type(spec.factory).__module__)
    parts = home.split(".")
    names = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    names += [
        entry.module
        for entry in importlib.metadata.entry_points(group="slime.plugins")
        if entry.module.partition(".")[0] == parts[0]
    ]
    declared = (getattr(sys.modules.get(name), "SLIME_API", None) for name in names)
    return next((api for api in declared if isinstance(api, str) and api.isdecimal()), None)
