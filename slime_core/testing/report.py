"""check_plugin: every contract that applies to a plugin, run without pytest and without a line of its author's.

Example:

    report = check_plugin("slime-reward-math")      # or "reward-math", or "./my_plugin.py"
    for subject in report.subjects:
        print(subject.title, [result for result in subject.results if result.status is CheckStatus.FAILED])
"""

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass

from slime_core.catalog import Catalog, PluginStatus, did_you_mean
from slime_core.errors import UnknownName
from slime_core.roles import SPECS, PluginSet
from slime_core.sample import Json
from slime_core.testing.contract import CheckResult, CheckStatus, Contract
from slime_core.testing.package import PluginPackageContract
from slime_core.testing.registry import CONTRACTS
from slime_core.testing.role import catalog_of

ALL_INSTALLED = PluginSet()
BUDGET_S = 5.0
"""CPU seconds that the kit may take for one plugin of ordinary size; a report over it says so."""


@dataclass(frozen=True, slots=True)
class SubjectReport:
    """One contract's checks of one thing that the plugin offers."""

    title: str
    """What was judged: "package", "reward math"."""
    contract: str
    """The contract's name."""
    results: tuple[CheckResult, ...]
    """What each check found, by number."""


@dataclass(frozen=True, slots=True)
class PluginReport:
    """What the kit found about one plugin."""

    plugin: str
    """The plugin."""
    version: str
    """Its version; empty for a module of the project."""
    subjects: tuple[SubjectReport, ...]
    """The package first, then what it offers."""
    cpu_s: float
    """CPU seconds that it took."""

    @property
    def results(self) -> tuple[CheckResult, ...]:
        """All results, of all subjects."""
        return tuple(result for subject in self.subjects for result in subject.results)

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(result.status is not CheckStatus.FAILED for result in self.results)

    def to_dict(self) -> dict[str, Json]:
        """Plain JSON, for `--json`."""
        subjects: list[Json] = [
            {
                "title": subject.title,
                "contract": subject.contract,
                "checks": [result_to_dict(result) for result in subject.results],
            }
            for subject in self.subjects
        ]
        return {
            "plugin": self.plugin,
            "version": self.version,
            "passed": self.passed,
            "cpu_s": round(self.cpu_s, 3),
            "subjects": subjects,
        }


def result_to_dict(result: CheckResult) -> dict[str, Json]:
    """One result as plain JSON."""
    return {
        "identity": result.identity,
        "since": result.since,
        "status": result.status.value,
        "detail": result.detail,
        "advice": result.advice,
    }


def check_plugin(name: str, plugins: PluginSet = ALL_INSTALLED) -> PluginReport:
    """Run every contract that applies to a plugin, with what the kit can supply itself.

    Args:
        name: its distribution or entry point, or a module of the project, `./my_plugin.py` or dotted.
        plugins: which plugins are loaded besides.

    Raises:
        UnknownName: no such plugin is installed, and it is no file or module.
    """
    started = time.process_time()
    status, plugins = _find(name, plugins)
    catalog = catalog_of(plugins)
    subjects = tuple(
        SubjectReport(title, contract.__bases__[0].__name__, contract.report())
        for title, contract in _contracts(status, catalog, plugins)
    )
    return PluginReport(status.plugin, status.version, subjects, time.process_time() - started)


def _find(name: str, plugins: PluginSet) -> tuple[PluginStatus, PluginSet]:
    """What discovery says of the plugin, and the plugin set with which it does."""
    statuses = catalog_of(plugins).statuses
    for status in statuses:
        if name in (status.plugin, status.name, status.origin):
            return status, plugins
    if name.endswith(".py") or ("." in name and "/" not in name):
        return _find(name, dataclasses.replace(plugins, modules=(*plugins.modules, name)))
    known = [status.plugin for status in statuses]
    raise UnknownName(f"no plugin {name!r} is installed.{did_you_mean(name, known)} Installed: {', '.join(known)}.")


def _contracts(status: PluginStatus, catalog: Catalog, plugins: PluginSet) -> Iterator[tuple[str, type[Contract]]]:
    """What judges the plugin: a class for the package and one for each choice that it offers."""
    yield "package", type("Package", (PluginPackageContract,), {"dist": status.dist, "automatic": True})
    for role in SPECS:
        for registered in catalog.choices(role).values():
            if registered.plugin == status.plugin and role in CONTRACTS:
                values = {"choice": registered.qualified, "plugins": plugins, "automatic": True}
                yield f"{role} {registered.spec.name}", type("Choice", (CONTRACTS[role],), values)
