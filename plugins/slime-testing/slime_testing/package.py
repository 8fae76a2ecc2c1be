"""PluginPackageContract: the requirements on the package of every plugin, PKG-001 to PKG-015.

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
"""Seconds after which a hanging import is killed."""
_SECRET = re.compile(
    r"(^|_)(passwords?|passwd|passphrase|secrets?|credentials?|apikey|bearer"
    r"|(api|access|auth|private|secret|signing|encryption|account|license)_?keys?)($|_)"
    r"|^key$|(^|_)tokens?$"
)
_HARMLESS = re.compile(r"^(eos|bos|pad|unk|stop|start|end|sep|cls|mask|special|think|think_end|max|min|num|n)_")


class Probed(TypedDict):
    """What a new process reports after importing the plugin."""

    heavy: list[str]
    printed: str
    effects: list[str]
    cpu_s: float
    error: str


class PluginPackageContract(Contract):
    """Contract of a plugin's package: inherit it and set `dist`."""

    dist: ClassVar[str] = ""
    """Name of the installed distribution."""
    module: ClassVar[str] = ""
    """For a plugin without a distribution: its module, `./my_plugin.py` or dotted."""
    plugins: ClassVar[PluginSet] = ALL_INSTALLED
    """Plugins to load."""

    @check("PKG-001")
    def test_the_entry_point_is_named_after_the_distribution(self) -> None:
        """Name the entry point like the distribution without `slime-`: `reward-math` of `slime-reward-math`."""
        self._require_packaged()
        names = [each.name for each in self._entry_points()]
        expected = self.dist.removeprefix("slime-")
        require(self.dist.startswith("slime-"), f"the distribution is named {self.dist!r}; expected slime-ROLE-NAME")
        require(names == [expected], f"entry points of group slime.plugins are {names}; expected [{expected!r}]")

    @check("PKG-002", needs=("PKG-009",))
    def test_the_catalog_loads_it(self) -> None:
        """Fix the error in the message, such as an import error, a misspelt hook, or another `SLIME_API`."""
        statuses = [each for each in catalog_of(self._loaded_with()).statuses if each.plugin == self._name()]
        require(statuses, f"the catalog contains no plugin {self._name()!r}")
        failed = [str(each) for each in statuses if each.state is not PluginState.LOADED]
        require(not failed, "; ".join(failed))

    @check("PKG-003", needs=("PKG-002", "PKG-008"))
    def test_importing_it_is_light_and_silent(self) -> None:
        """Every command imports every plugin. Import heavy libraries in the factory; print nothing, and do not warn."""
        found = self._probed
        require(not found["error"], f"the import failed with warnings as errors (-W error): {found['error']}")
        heavy = ", ".join(found["heavy"])
        require(not heavy, f"the import loads {heavy}; import it in the factory")
        require(not found["printed"], f"the import printed {found['printed'][:80]!r}")

    @check("PKG-004")
    def test_it_bounds_the_core_version(self) -> None:
        """Require `slime-core>=0.1,<0.2`: the next minor release may change the API, and PyPI has another 0.0.1."""
        self._require_packaged()
        needs = importlib.metadata.requires(self.dist) or []
        core = [
            each
            for each in needs
            if each.replace(" ", "").startswith(("slime-core>", "slime-core<", "slime-core~", "slime-core=="))
        ]
        bounded = any("==" in each or (">" in each and "<" in each) for each in core)
        require(bounded, f"requirements are {needs}; expected a lower and an upper bound of slime-core")

    @check("PKG-005", needs=("PKG-002",))
    def test_every_choice_has_a_summary(self) -> None:
        """`slime plugins list --load` shows one line per choice. Set `summary` of the spec to one line."""
        for registered in self._choices():
            spec = registered.spec
            require(spec.summary and "\n" not in spec.summary, f"{spec.role} {spec.name!r} has no one-line summary")

    @check("PKG-006", needs=("PKG-002",))
    def test_settings_have_defaults_and_a_schema(self) -> None:
        """Each setting has a type with a JSON Schema, and a default. A setting without a default has a description."""
        for registered in self._choices():
            model = registered.spec.model
            json.dumps(model.model_json_schema())
            required = {key: info for key, info in model.model_fields.items() if info.is_required()}
            undescribed = ", ".join(key for key, info in required.items() if not info.description)
            require(not undescribed, f"{registered.qualified}: required setting {undescribed} has no description")
            if not required:
                model()
            if registered.spec.is_late:
                found: object = getattr(sys.modules.get(model.__module__), model.__qualname__, None)
                missing = f"{registered.qualified}: module {model.__module__} has no attribute {model.__qualname__}"
                require(found is model, f"{missing}; other processes find the settings class by this name")

    @check("PKG-007", needs=("PKG-002",))
    def test_the_readme_names_every_choice(self) -> None:
        """Package indexes show the README. Describe each choice there, and set `readme` in pyproject.toml."""
        self._require_packaged()
        readme = str(importlib.metadata.metadata(self.dist).json.get("description", ""))
        missing = [each.spec.name for each in self._choices() if each.spec.name not in readme]
        require(not missing, f"the README does not mention {', '.join(missing)}")

    @check("PKG-008", needs=("PKG-009",))
    def test_importing_it_has_no_side_effects(self) -> None:
        """Every command and worker imports the plugin. Write, connect, start and change nothing before a factory runs.

        Side effects of packages that the plugin imports count too. Import such packages in the factory.
        """
        effects = self._probed["effects"]
        require(not effects, f"the import {'; it '.join(effects)}")

    @check("PKG-009")
    def test_importing_it_is_fast(self) -> None:
        """`slime --help` and every worker wait for the import. Do slow work in the factory."""
        cpu_s = self._probed["cpu_s"]
        require(cpu_s < HANG_S, f"the import did not end within {HANG_S:g} s")
        require(cpu_s < IMPORT_S, f"the import took {cpu_s:.1f} s of CPU time; the limit is {IMPORT_S:g} s")

    @check("PKG-010", needs=("PKG-002",))
    def test_secrets_have_a_secret_type(self) -> None:
        """Settings are printed and saved. Use `pydantic.SecretStr` for keys, tokens and passwords."""
        for registered in self._choices():
            for key, info in registered.spec.model.model_fields.items():
                types = {info.annotation, *get_args(info.annotation)}
                named = _SECRET.search(key) and not _HARMLESS.match(key)
                require(
                    not (named and str in types and not types & {SecretStr, SecretBytes}),
                    f"{registered.qualified}: {key!r} is named like a secret, but has type str; use pydantic.SecretStr",
                )

    @check("PKG-011", needs=("PKG-002",))
    def test_unknown_settings_are_rejected(self) -> None:
        """A misspelt setting in a run file must be an error. Inherit `slime_core.Settings`, and do not set `extra`."""
        for registered in self._choices():
            try:
                registered.spec.model.model_validate({"slime_kit_unknown": 1})
            except ValidationError as error:
                refused = any(each["type"] == "extra_forbidden" for each in error.errors())
            else:
                refused = False
            require(refused, f"{registered.qualified}: settings accept an unknown key; expected a ValidationError")

    @check("PKG-012", needs=("PKG-002",))
    def test_it_lists_the_same_choices_every_time(self) -> None:
        """Driver and workers load the plugin separately, and must agree. Yield the same specs in every call."""
        first, second = ([(each.qualified, each.spec.role) for each in self._choices()] for _ in range(2))
        require(first == second, f"it offers {first} in the first call, and {second} in the second")

    @check("PKG-013", needs=("PKG-002",))
    def test_its_keys_do_not_conflict(self) -> None:
        """A flat key is a setting of its choice, and not a run-wide key. A foreign name is not a key of slime."""
        for registered in self._choices():
            fields = registered.spec.model.model_fields
            missing = ", ".join(key for key in registered.spec.flat_names if key not in fields)
            require(not missing, f"{registered.qualified}: flat key {missing} is not a setting of this choice")
            for fault in key_faults(registered):
                require(False, fault)
        catalog = catalog_of(self._loaded_with())
        flat_keys = FlatKeys(catalog)
        for name in catalog.foreign_names:
            ours = name.name in (*FAMILY_OF_KEY, *ROLE_OF_ALIAS, *SELECTABLE) or flat_keys.owners_of(name.name)
            require(
                not ours, f"foreign name {name.name} is a key of slime, so its hint would never be shown; remove it"
            )

    @check("PKG-014", needs=("PKG-002",))
    def test_its_names_do_not_conflict(self) -> None:
        """If two choices have the same name, every run file must write `PLUGIN/NAME`. Use no name of a slime package.

        If a choice wraps or replaces another one, use a different name, such as `math_strict`.
        """
        catalog = catalog_of(self._loaded_with())
        for registered in self._choices():
            role, name = registered.spec.role, registered.spec.name
            of_core = any(each.spec.name == name and each.dist == CORE for each in catalog.choices(role).values())
            owner = CORE if of_core else owner_package(role, name) or registered.dist
            require(owner == registered.dist, f"{owner} already has a {role} {name!r}; use another name")

    @check("PKG-015", needs=("PKG-002",))
    def test_its_contracts_belong_to_its_choices(self) -> None:
        """An entry point of the group `slime.contracts` is named ROLE.NAME, for a choice of this plugin.

        It refers to a subclass of the role's contract, with which `slime plugins check` checks the choice.
        """
        roles = {f"{each.spec.role}.{each.spec.name}": each.spec.role for each in self._choices()}
        for name, entry in (offered_contracts(self.dist) if self.dist else {}).items():
            hint = f"{did_you_mean(name, roles)} Choices of this plugin: {', '.join(roles)}"
            require(name in roles, f"entry point {name} = {entry.value} is not named after a choice.{hint}")
            require(roles[name] in CONTRACTS, f"entry point {name} = {entry.value}: role {roles[name]} has no contract")
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
            raise SkipTest("it is a module, not a package")
        if self.dist == CORE:
            raise SkipTest("it is slime-core itself")

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
        effect = f"ended the process with exit status {done.returncode}: {done.stderr.strip()[-300:]}"
        return Probed(heavy=[], printed="", effects=[effect], cpu_s=0.0, error=effect)
    found: Probed = json.loads(lines[-1])
    return found


def _absolute(module: str) -> str:
    return str(Path(module).resolve()) if module.endswith(".py") else module
