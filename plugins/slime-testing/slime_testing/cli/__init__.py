"""The commands of slime-testing: `slime doctor`, `slime reward`, `slime plugins check` and `slime plugins new`."""

from functools import partial

from slime_core.catalog import Catalog
from slime_core.processes import Protection
from slime_core.roles import Setup

__all__ = ["SEED", "setup_of"]

SEED = 1234
"""Default seed of a run."""


def setup_of(catalog: Catalog, protection: Protection, seed: int = SEED) -> Setup:
    """The `setup` argument of factories. Its `make` builds other choices of the catalog, and isolates rewards."""

    def make(role: str, name: str, **settings: object) -> object:
        found = catalog.find(role, name)
        validated = found.spec.model.model_validate(settings)
        return protection.protect(found, validated, partial(found.spec.factory, validated, setup), name=name)

    setup = Setup(make, seed)
    return setup
