"""PluginPackageContract: the requirements on every plugin as a whole, PKG-001 to PKG-015.

class TestPackage(PluginPackageContract):
    dist = "slime-reward-math"
"""

import dataclasses
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
from functools import cached_property
from pathlib import Path
from typing import ClassVar, TypedDict, get_args
from unittest import SkipTest

from pydantic import SecretBytes, SecretStr, ValidationError

from slime_core.catalog import ALL_INSTALLED, PluginState, RegisteredChoice, owner_package
from slime_core.config import FAMILY_OF_KEY, ROLE_OF_ALIAS, FlatKeys, key_faults
from slime_core.errors import PluginError, did_you_mean
from slime_core.roles import SELECTABLE, SPECS, PluginSet
from slime_testing.by_role import CONTRACTS, load_contract, offered_contracts
from slime_testing.contract import Contract, check, require
from slime_testing.role import catalog_of

CORE = "slime-core"
IMPORT_S = 2.0
"""CPU seconds that importing a plugin may take, without the import of slime-core."""
HANG_S = 20.0
"""Seconds after which an import that does not end is abandoned."""
_SECRET = re.compile(
    r"(^|_)(passwords?|passwd|passphrase|secrets?|credentials?|apikey|bearer"
    r"|(api|access|auth|private|secret|signing|encryption|account|license)_?keys?)($|_)"
    r"|^key$|(^|_)tokens?$"
)
_HARMLESS = re.compile(r"^(eos|bos|pad|unk|stop|start|end|sep|cls|mask|special|think|think_end|max|min|num|n)_")


class Probed(TypedDict):
    """Report of a fresh process that imported the plugin."""

    heavy: list[str]
    printed: str
    effects: list[str]
    cpu_s: float
    error: str


class PluginPackageContract(Contract):
    """Inherit and name the distribution."""

    dist: ClassVar[str] = ""
    """The installed distribution's name."""
    module: ClassVar[str] = ""
    """For a plugin inside a project: its module, `./my_plugin.py` or dotted."""
    plugins: ClassVar[PluginSet] = ALL_INSTALLED
    """Plugins in the catalog."""

    @check("PKG-001")
    def test_the_entry_point_is_named_after_the_distribution(self) -> None:
        """`slime-reward-math` has the entry point `reward-math`: pip and slime then show the same name."""
        self._require_packaged()
        names = [each.name for each in self._entry_points()]
        expected = self.dist.removeprefix("slime-")
        require(self.dist.startswith("slime-"), f"distribution {self.dist!r}: call it slime-ROLE-NAME")
        require(names == [expected], f"entry points of group slime.plugins: {names}; expected [{expected!r}]")

    @check("PKG-002", needs=("PKG-009",))
    def test_the_catalog_loads_it(self) -> None:
        """The status names the fault: an import error, a misspelt hook, another SLIME_API, a name in use."""
        statuses = [each for each in catalog_of(self._loaded_with()).statuses if each.plugin == self._name()]
        require(statuses, f"no plugin {self._name()!r} was found")
        failed = [str(each) for each in statuses if each.state is not PluginState.LOADED]
        require(not failed, "; ".join(failed))

    @check("PKG-003", needs=("PKG-002", "PKG-008"))
    def test_importing_it_is_light_and_silent(self) -> None:
        """Every command imports every plugin: import heavy libraries in the factory, and cause no warnings."""
        found = self._probed
        require(not found["error"], f"importing it with -W error failed: {found['error']}")
        require(not found["heavy"], f"importing it imports {', '.join(found['heavy'])}")
        require(not found["printed"], f"importing it printed {found['printed'][:80]!r}")

    @check("PKG-004")
    def test_it_bounds_the_core_version(self) -> None:
        """Require `slime-core>=0.1,<0.2`: the next series may change the plugin API, and PyPI has another 0.0.1."""
        self._require_packaged()
        needs = importlib.metadata.requires(self.dist) or []
        core = [
            each
            for each in needs
            if each.replace(" ", "").startswith(("slime-core>", "slime-core<", "slime-core~", "slime-core=="))
        ]
        bounded = any("==" in each or (">" in each and "<" in each) for each in core)
        require(bounded, f"requirements are {needs}; expected slime-core with a lower and an upper bound")

    @check("PKG-005", needs=("PKG-002",))
    def test_every_choice_has_a_summary(self) -> None:
        """`slime plugins list --load` shows one line per choice: give the spec a `summary`."""
        for registered in self._choices():
            spec = registered.spec
            require(spec.summary and "\n" not in spec.summary, f"{spec.role} {spec.name!r} has no one-line summary")

    @check("PKG-006", needs=("PKG-002",))
    def test_settings_have_defaults_and_a_schema(self) -> None:
        """Each setting has a plain type and a default; a required one has a description of its value."""
        for registered in self._choices():
            model = registered.spec.model
            json.dumps(model.model_json_schema())
            required = {key: info for key, info in model.model_fields.items() if info.is_required()}
            silent = [key for key, info in required.items() if not info.description]
            require(not silent, f"{registered.qualified}: {', '.join(silent)} must be given, and nothing says what")
            if not required:
                model()
            if registered.spec.is_late:
                found: object = getattr(sys.modules.get(model.__module__), model.__qualname__, None)
                told = f"{registered.qualified}: {model.__module__} has no {model.__qualname__}"
                require(found is model, f"{told}, by which another process finds the settings")

    @check("PKG-007", needs=("PKG-002",))
    def test_the_readme_names_every_choice(self) -> None:
        """The package index shows the README: describe each choice there (`readme` in pyproject.toml)."""
        self._require_packaged()
        readme = str(importlib.metadata.metadata(self.dist).json.get("description", ""))
        missing = [each.spec.name for each in self._choices() if each.spec.name not in readme]
        require(not missing, f"the README does not name {', '.join(missing)}")

    @check("PKG-008", needs=("PKG-009",))
    def test_importing_it_has_no_side_effects(self) -> None:
        """Every command and worker imports the plugin: write, connect, start and change nothing before a factory runs.

        Side effects of importing another package count too: import it in the factory.
        """
        effects = self._probed["effects"]
        require(not effects, f"importing it {'; it '.join(effects)}")

    @check("PKG-009")
    def test_importing_it_is_fast(self) -> None:
        """`slime --help` and every worker wait for the import: move slow work into the factory."""
        cpu_s = self._probed["cpu_s"]
        require(cpu_s < HANG_S, f"importing it had not ended after {HANG_S:g} s")
        require(cpu_s < IMPORT_S, f"importing it took {cpu_s:.1f} s of CPU; {IMPORT_S:g} s are too long already")

    @check("PKG-010", needs=("PKG-002",))
    def test_secrets_have_a_secret_type(self) -> None:
        """Settings are printed and saved: make keys, tokens and passwords a `pydantic.SecretStr` (`$env:NAME`)."""
        for registered in self._choices():
            for key, info in registered.spec.model.model_fields.items():
                types = {info.annotation, *get_args(info.annotation)}
                named = _SECRET.search(key) and not _HARMLESS.match(key)
                require(
                    not (named and str in types and not types & {SecretStr, SecretBytes}),
                    f"{registered.qualified}: {key!r} is named like a secret and typed str, so it would be printed",
                )

    @check("PKG-011", needs=("PKG-002",))
    def test_unknown_settings_are_rejected(self) -> None:
        """A typo in a run file must be an error: inherit `slime_core.Settings`, and do not change `extra`."""
        for registered in self._choices():
            try:
                registered.spec.model.model_validate({"slime_kit_unknown": 1})
            except ValidationError as error:
                refused = any(each["type"] == "extra_forbidden" for each in error.errors())
            else:
                refused = False
            require(refused, f"{registered.qualified}: settings take a key that no field has")

    @check("PKG-012", needs=("PKG-002",))
    def test_it_lists_the_same_choices_every_time(self) -> None:
        """Driver and workers list the choices separately and must agree: yield the same specs at every call."""
        once, again = ([(each.qualified, each.spec.role) for each in self._choices()] for _ in range(2))
        require(once == again, f"asked twice, it offers {once}, then {again}")

    @check("PKG-013", needs=("PKG-002",))
    def test_its_keys_do_not_conflict(self) -> None:
        """A flat key is a setting of the choice, and not a run-wide key; a foreign name is not a key of slime."""
        for registered in self._choices():
            missing = [key for key in registered.spec.flat_names if key not in registered.spec.model.model_fields]
            require(not missing, f"{registered.qualified}: {', '.join(missing)} is declared as a key, and no setting")
            for fault in key_faults(registered):
                require(False, fault)
        catalog = catalog_of(self._loaded_with())
        flat_keys = FlatKeys(catalog)
        for name in catalog.foreign_names:
            ours = name.name in (*FAMILY_OF_KEY, *ROLE_OF_ALIAS, *SELECTABLE) or flat_keys.owners_of(name.name)
            require(not ours, f"{name.name} is a name from elsewhere, and a key of ours: it would never be told")

    @check("PKG-014", needs=("PKG-002",))
    def test_its_names_do_not_conflict(self) -> None:
        """Two choices of one name force `PLUGIN/NAME` in every run file: use no name that comes with slime.

        Give a choice that wraps or replaces another one a different name, such as `math_strict`.
        """
        catalog = catalog_of(self._loaded_with())
        for registered in self._choices():
            role, name = registered.spec.role, registered.spec.name
            of_core = any(each.spec.name == name and each.dist == CORE for each in catalog.choices(role).values())
            owner = CORE if of_core else owner_package(role, name) or registered.dist
            require(owner == registered.dist, f"{role} {name!r} is the name of a choice of {owner}; take another one")

    @check("PKG-015", needs=("PKG-002",))
    def test_its_contracts_belong_to_its_choices(self) -> None:
        """An entry of the group `slime.contracts` is named ROLE.NAME, and is a subclass of the role's contract.

        The kit judges the choice with this contract. If the entry is invalid, the kit lacks the author's settings.
        """
        roles = {f"{each.spec.role}.{each.spec.name}": each.spec.role for each in self._choices()}
        for name, entry in (offered_contracts(self.dist) if self.dist else {}).items():
            hint = f"{did_you_mean(name, roles)} Choices of this plugin: {', '.join(roles)}"
            require(name in roles, f"{name} = {entry.value} is for no choice.{hint}")
            require(roles[name] in CONTRACTS, f"{name} = {entry.value}: the role {roles[name]} has no contract")
            try:
                load_contract(entry, CONTRACTS[roles[name]])
            except PluginError as error:
                raise AssertionError(str(error)) from None

    @cached_property
    def _probed(self) -> Probed:
        if type(self) not in _PROBED:
            _PROBED[type(self)] = _probe_in_a_process(self._modules())
        return _PROBED[type(self)]

    def _modules(self) -> list[str]:
        return [each.module for each in self._entry_points()] if self.dist else [_absolute(self.module)]

    def _name(self) -> str:
        return self.dist or self.module

    def _loaded_with(self) -> PluginSet:
        if not self.module or self.module in self.plugins.modules:
            return self.plugins
        return dataclasses.replace(self.plugins, modules=(*self.plugins.modules, self.module))

    def _require_packaged(self) -> None:
        if not self.dist:
            raise SkipTest("it is a module of a project, not a package")
        if self.dist == CORE:
            raise SkipTest("it is the core's own plugin")

    def _entry_points(self) -> list[importlib.metadata.EntryPoint]:
        found = importlib.metadata.distribution(self.dist).entry_points
        return [each for each in found if each.group == "slime.plugins"]

    def _choices(self) -> list[RegisteredChoice]:
        catalog = catalog_of(self._loaded_with())
        return [each for role in SPECS for each in catalog.choices(role).values() if each.plugin == self._name()]


_PROBED: dict[type[PluginPackageContract], Probed] = {}


def _probe_in_a_process(modules: list[str]) -> Probed:
    command = [sys.executable, "-W", "error", "-B", "-m", "slime_testing._probe", *modules]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(Path.cwd())])}
    with tempfile.TemporaryDirectory(prefix="slime-kit-") as folder:
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=HANG_S
            )
        except subprocess.TimeoutExpired:
            return Probed(heavy=[], printed="", effects=[], cpu_s=HANG_S, error="")
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        what = f"ended the process with exit status {done.returncode}: {done.stderr.strip()[-300:]}"
        return Probed(heavy=[], printed="", effects=[what], cpu_s=0.0, error=what)
    found: Probed = json.loads(lines[-1])
    return found


def _absolute(module: str) -> str:
    return str(Path(module).resolve()) if module.endswith(".py") else module
