"""Advantage estimators, a file each: its settings, its formula, and the spec that offers it.

Every module here that does not begin with an underscore has a `SPEC`; none imports torch before its formula is asked
for, so that plugins are listed without it.

Example:

    names = [spec.name for spec in estimators()]        # gdpo, grpo, ppo, ...
"""

import importlib
import pkgutil
from collections.abc import Iterator

from slime_core.roles import AdvantageSpec


def estimators() -> Iterator[AdvantageSpec]:
    """Specs of all estimators, sorted by file name."""
    for name in sorted(each.name for each in pkgutil.iter_modules(__path__)):
        if not name.startswith("_"):
            spec: AdvantageSpec = importlib.import_module(f"{__name__}.{name}").SPEC
            yield spec
