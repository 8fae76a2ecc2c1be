"""A setup for commands that build a choice without a run."""

from slime_core.catalog import Catalog
from slime_core.roles import Setup

SEED = 1234
"""The seed of a run that is given none."""


def setup_of(catalog: Catalog, seed: int = SEED) -> Setup:
    """What factories are given; `make` builds other choices of the same catalog."""

    def make(role: str, name: str, **settings: object) -> object:
        spec = catalog.find(role, name).spec
        return spec.factory(spec.settings.model_validate(settings), setup)

    setup = Setup(make, seed)
    return setup
