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

from slime_core.catalog import ALL_INSTALLED, Candidate, did_you_mean, installed_candidates, is_plugin_module
from slime_core.catalog._candidates import project_candidates
from slime_core.errors import UnknownName
from slime_core.hookspecs import HOOK_OF_EVENT
from slime_core.roles import SPECS, PluginSet
from slime_core.sample import Json
from slime_core.testing.contract import CheckResult, CheckStatus, Contract
from slime_core.testing.package import PluginPackageContract
from slime_core.testing.registry import CONTRACTS
from slime_core.testing.role import catalog_of
from slime_core.testing.run_hooks import RunHooksContract

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
    candidate, plugins = _find(name, plugins)
    package = _package(candidate, plugins)
    subjects = [SubjectReport("package", PluginPackageContract.__name__, package.report())]
    if package.result("PKG-002").status is CheckStatus.PASSED:
        subjects += [
            SubjectReport(title, contract.__bases__[0].__name__, contract.report())
            for title, contract in _contracts(candidate, plugins)
        ]
    return PluginReport(candidate.plugin, candidate.version, tuple(subjects), time.process_time() - started)


def _find(name: str, plugins: PluginSet) -> tuple[Candidate, PluginSet]:
    """The plugin, from metadata alone, and the plugin set with which it is loaded."""
    if is_plugin_module(name):
        (candidate,) = project_candidates((name,), plugins.root)
        return candidate, dataclasses.replace(plugins, modules=tuple(dict.fromkeys((*plugins.modules, name))))
    installed = installed_candidates()
    for candidate in installed:
        if name in (candidate.plugin, candidate.name):
            return candidate, plugins
    known = [candidate.plugin for candidate in installed]
    raise UnknownName(f"no plugin {name!r} is installed.{did_you_mean(name, known)} Installed: {', '.join(known)}.")


def _package(candidate: Candidate, plugins: PluginSet) -> type[PluginPackageContract]:
    place = {"dist": candidate.dist} if candidate.dist else {"module": candidate.name}
    return type("Package", (PluginPackageContract,), {"plugins": plugins, "automatic": True, **place})


def _contracts(candidate: Candidate, plugins: PluginSet) -> Iterator[tuple[str, type[Contract]]]:
    """What judges what the plugin offers: a class for each choice, and one for its run hooks."""
    catalog, shared = catalog_of(plugins), {"plugins": plugins, "automatic": True}
    for role in SPECS:
        for registered in catalog.choices(role).values():
            if registered.plugin == candidate.plugin and role in CONTRACTS:
                name = f"{role} {registered.spec.name}"
                yield name, type("Choice", (CONTRACTS[role],), {"choice": registered.qualified, **shared})
    if any(each.plugin == candidate.plugin for hook in HOOK_OF_EVENT.values() for each in catalog.listeners(hook)):
        yield "run hooks", type("Hooks", (RunHooksContract,), {"plugin": candidate.plugin, **shared})
