"""Building what a run has chosen inside a rank: advantage, loss, correction, from plugins that were found again there.

Example:

    catalog = discover_in_worker(setup.plugins, "trainer 3")
    loss = build_in_rank(catalog, LossSpec, setup.loss, setup.seed)       # loss.part, loss.plugin
"""

from typing import TypeVar

from slime_core.catalog import Catalog
from slime_core.catalog.catalog import Used
from slime_core.catalog.checks import blaming
from slime_core.roles import Choice, Setup, Spec

PartT = TypeVar("PartT")


def build_in_rank(catalog: Catalog, of: type[Spec[PartT]], choice: Choice, seed: int) -> Used[PartT]:
    """What the factory of a chosen tensor role makes, and whose it is.

    Raises:
        PluginError: the choice is not there, or its factory raised.
    """
    spec = catalog.find(of, choice.name).spec

    def make(role: str, name: str, **settings: object) -> object:
        other = catalog.find(role, name).spec
        return other.factory(other.model.model_validate(settings), setup)

    setup = Setup(make, seed)
    with blaming(f"the factory of {choice.role} {choice.name!r}", choice.plugin):
        return Used(choice.name, choice.plugin, spec.factory(choice.settings, setup))
