"""slime_api: provides the slime modules that functions import, so that they load without slime.

`from slime.utils.types import Sample` then imports from `slime_compat.slime_api.functions`. An installed slime takes
precedence. The import of any other module fails with a list of the available modules.
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_PACKAGES = ("slime", "slime.utils", "slime.rollout", "slime.rollout.filter_hub")
_MODULES = {
    "slime.utils.types": "functions",
    "slime.utils.http_utils": "functions",
    "slime.rollout.sglang_rollout": "functions",
    "slime.rollout.data_source": "data_source",
    "slime.rollout.filter_hub.base_types": "functions",
}


def offer_slime() -> None:
    """Make the modules importable as `slime.…` if slime is not installed."""
    if "slime" not in sys.modules and importlib.util.find_spec("slime") is None:
        sys.meta_path.append(_SlimeFinder())


class _SlimeFinder(MetaPathFinder, Loader):
    """Finds `slime.…` in this package."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in _PACKAGES:
            return ModuleSpec(name, self, is_package=True)
        if name in _MODULES:
            return ModuleSpec(name, self)
        if name.startswith("slime."):
            listed = ", ".join(_MODULES)
            raise ModuleNotFoundError(
                f"slime is not installed, and slime-compat has no {name}. It has {listed}. Install slime, or remove "
                "the import",
                name=name,
            )
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        if spec.name in _MODULES:
            return importlib.import_module(f"{__name__}.{_MODULES[spec.name]}")
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module was executed when it was imported under its real name."""
