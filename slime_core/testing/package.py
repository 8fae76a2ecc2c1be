"""PluginPackageContract: what every installed plugin must keep, PKG-001 to PKG-007.

class TestPackage(PluginPackageContract):
    dist = "slime-reward-math"
"""

import importlib.metadata
import json
import subprocess
import sys
import warnings
from typing import ClassVar

from slime_core.catalog import Catalog, PluginState, PluginWarning, Registered
from slime_core.roles import SPECS
from slime_core.testing.contract import Contract, check, require

HEAVY = ("jax", "megatron", "numpy", "ray", "sglang", "tensorflow", "torch", "transformers", "vllm")
"""What listing plugins must not import."""


class PluginPackageContract(Contract):
    """Inherit and name the distribution."""

    dist: ClassVar[str]
    """The installed distribution's name."""

    @check("PKG-001")
    def test_the_entry_point_is_named_after_the_distribution(self) -> None:
        """`slime-reward-math` has the entry point `reward-math`: what pip shows and what slime shows agree."""
        names = [each.name for each in self._entry_points()]
        expected = self.dist.removeprefix("slime-")
        require(self.dist.startswith("slime-"), f"distribution {self.dist!r}: call it slime-ROLE-NAME")
        require(names == [expected], f"entry points of group slime.plugins: {names}; expected [{expected!r}]")

    @check("PKG-002")
    def test_the_catalog_loads_it(self) -> None:
        """The status says what is wrong: an import error, a misspelt hook, another SLIME_API, a spec of no role."""
        statuses = [each for each in _discover().statuses if each.dist == self.dist]
        require(statuses, f"no plugin of distribution {self.dist!r} was found")
        failed = [str(each) for each in statuses if each.state is not PluginState.LOADED]
        require(not failed, "; ".join(failed))

    @check("PKG-003")
    def test_importing_it_is_light_and_silent(self) -> None:
        """`slime plugins list` imports every plugin: import heavy libraries inside the factory, and warn of nothing."""
        modules = [each.value.partition(":")[0] for each in self._entry_points()]
        code = f"import sys, {', '.join(modules)}; print(*({set(HEAVY)!r} & set(sys.modules)))"
        done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
        require(done.returncode == 0, f"importing {', '.join(modules)} with -W error failed:\n{done.stderr}")
        require(not done.stdout.strip(), f"importing {', '.join(modules)} printed or imported: {done.stdout.strip()}")

    @check("PKG-004")
    def test_it_requires_a_bounded_core(self) -> None:
        """Write `slime-core>=0.1,<0.2`: the next series may change the plugin API, and the index has another 0.0.1."""
        needs = importlib.metadata.requires(self.dist) or []
        core = [
            each for each in needs if each.replace(" ", "").startswith(("slime-core>", "slime-core<", "slime-core~"))
        ]
        bounded = any(">" in each and "<" in each for each in core)
        require(bounded, f"requirements are {needs}; expected slime-core with a lower and an upper bound")

    @check("PKG-005")
    def test_every_choice_has_a_summary(self) -> None:
        """`slime plugins list` shows one line for each choice: give the spec a `summary`."""
        for registered in self._choices():
            spec = registered.spec
            require(spec.summary and "\n" not in spec.summary, f"{spec.role} {spec.name!r} has no one-line summary")

    @check("PKG-006")
    def test_settings_have_defaults_and_a_schema(self) -> None:
        """Each key has a plain type and a default; one that must be given has a description: what to give."""
        for registered in self._choices():
            model = registered.spec.settings
            json.dumps(model.model_json_schema())
            required = {key: info for key, info in model.model_fields.items() if info.is_required()}
            silent = [key for key, info in required.items() if not info.description]
            require(not silent, f"{registered.qualified}: {', '.join(silent)} must be given, and nothing says what")
            if not required:
                model()

    @check("PKG-007")
    def test_the_readme_names_every_choice(self) -> None:
        """The README is what the package index shows: say there what each choice does (`readme` in pyproject.toml)."""
        readme = str(importlib.metadata.metadata(self.dist).json.get("description", ""))
        missing = [each.spec.name for each in self._choices() if each.spec.name not in readme]
        require(not missing, f"the README does not name {', '.join(missing)}")

    def _entry_points(self) -> list[importlib.metadata.EntryPoint]:
        found = importlib.metadata.distribution(self.dist).entry_points
        return [each for each in found if each.group == "slime.plugins"]

    def _choices(self) -> list[Registered]:
        catalog = _discover()
        return [each for role in SPECS for each in catalog.choices(role).values() if each.dist == self.dist]


def _discover() -> Catalog:
    """The catalog, silent about other plugins that may be broken here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)
        return Catalog.discover(strict=False)
