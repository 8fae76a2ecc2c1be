"""check_plugin: runs all contracts that apply to a plugin, without pytest and without code of its author.

Example:

    report = check_plugin("slime-reward-math")      # or "reward-math", or "./my_plugin.py"
    for subject in report.subjects:
        print(subject.title, [result for result in subject.results if result.status is CheckStatus.FAILED])
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import MappingProxyType

from slime_core.catalog import ALL_INSTALLED
from slime_core.errors import PluginError
from slime_core.processes.limits import end_descendants
from slime_core.roles import PluginSet
from slime_core.sample import Json
from slime_testing.by_role import CONTRACTS
from slime_testing.check_process import find_plugin
from slime_testing.contract import NOT_RUN, CheckInfo, CheckResult, CheckStatus, Contract
from slime_testing.observers import RunHooksContract
from slime_testing.package import PluginPackageContract

PLUGIN_CONTRACTS: tuple[type[Contract], ...] = (PluginPackageContract, RunHooksContract)
"""Contracts of a plugin as a whole."""


def _collected() -> dict[str, CheckInfo]:
    """All checks by number.

    Raises:
        ValueError: two contracts use the same number.
    """
    found: dict[str, CheckInfo] = {}
    for contract in (*PLUGIN_CONTRACTS, *CONTRACTS.values()):
        for identity, info in contract.checks().items():
            if identity in found:
                owner = found[identity].method
                raise ValueError(f"{contract.__name__}.{info.method}: {identity} is already the number of {owner}")
            found[identity] = info
    return found


ALL_CHECKS: Mapping[str, CheckInfo] = MappingProxyType(_collected())
"""Every check of every contract, by number."""


START_LIMIT_S = 90.0
"""Seconds within which the kit's process must import the plugin and start its first check."""
LIMIT_S = 90.0
"""Seconds, multiplied by its contract's `patience`, after which a check's process is killed."""
MOST_ENDS = 3
"""Number of processes that a subject may crash or hang before its remaining checks are skipped."""
OUTPUT_LINES = 4
"""Last lines of a process's output that a report contains."""


@dataclass(frozen=True, slots=True)
class SubjectReport:
    """Results of one contract for one subject: the package, one of its choices or its run hooks."""

    title: str
    """Name of the subject: "package", "reward math"."""
    contract: str
    """Name of the contract."""
    results: tuple[CheckResult, ...]
    """Results of the checks, by number."""


@dataclass(frozen=True, slots=True)
class PluginReport:
    """The kit's results for one plugin."""

    plugin: str
    """Name of the plugin."""
    version: str
    """Version of the plugin; empty for a module of the project."""
    subjects: tuple[SubjectReport, ...]
    """The package first, then its choices."""
    cpu_s: float
    """CPU seconds of all checks."""

    @property
    def results(self) -> tuple[CheckResult, ...]:
        """Results of all subjects."""
        return tuple(result for subject in self.subjects for result in subject.results)

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(result.status is not CheckStatus.FAILED for result in self.results)

    @property
    def undecided(self) -> tuple[tuple[str, CheckResult], ...]:
        """Skipped checks that are decisive, or need settings, samples or a library; each with its subject's title."""
        return tuple(
            (subject.title, result)
            for subject in self.subjects
            for result in subject.results
            if result.status is CheckStatus.SKIPPED and is_open(result.identity, result.detail)
        )

    def to_dict(self) -> dict[str, Json]:
        """The report as plain JSON, for `--json`."""
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
            "undecided": [{"title": title, **result_to_dict(result)} for title, result in self.undecided],
            "subjects": subjects,
        }


def is_open(identity: str, detail: str) -> bool:
    """Whether a check that was skipped for this reason belongs to `PluginReport.undecided`."""
    return detail.removeprefix(NOT_RUN).startswith("needs ") or ALL_CHECKS[identity].decisive


def result_to_dict(result: CheckResult) -> dict[str, Json]:
    """One result as plain JSON."""
    return {
        "identity": result.identity,
        "status": result.status.value,
        "detail": result.detail,
        "advice": result.advice,
    }


def check_plugin(name: str, plugins: PluginSet = ALL_INSTALLED) -> PluginReport:
    """Run all contracts that apply to a plugin, with the kit's own samples, in a separate process.

    Args:
        name: the plugin's distribution or entry point, or a module, `./my_plugin.py` or dotted.
        plugins: the other plugins to load.

    Raises:
        UnknownName: no such plugin is installed, and the name is not a file or module.
        PluginError: no check could run.
    """
    candidate, _ = find_plugin(name, plugins)
    with tempfile.TemporaryDirectory(prefix="slime-kit-") as folder:
        output = Path(folder) / "checks.jsonl"
        output.touch()
        _run_checks(name, plugins, output)
        lines = _lines(output)
    results: dict[tuple[str, str], dict[str, CheckResult]] = {}
    for line in lines:
        if line.get("status") and line["identity"]:
            results.setdefault((line["title"], line["contract"]), {})[line["identity"]] = _result(line)
    usage = {line["pid"]: float(line["cpu_s"]) for line in lines if "pid" in line}  # last value of each process
    subjects = tuple(
        SubjectReport(*key, tuple(each[identity] for identity in sorted(each))) for key, each in results.items()
    )
    return PluginReport(candidate.plugin, candidate.version, subjects, sum(usage.values()))


def _run_checks(name: str, plugins: PluginSet, output: Path) -> None:
    """Run the checks in a process. If a check ends it, the next process continues with the next check.

    Raises:
        PluginError: no check could run.
    """
    ends: Counter[str] = Counter()
    while ended := _run(name, plugins, output):
        lines = _lines(output)
        if not lines or "status" in lines[-1]:
            raise PluginError(f"no check of plugin {name} could run: {ended}")
        line = lines[-1]
        added = [{**line, "status": "failed", "detail": ended}]
        ends[line["title"]] += 1
        if ends[line["title"]] >= MOST_ENDS:
            reason = f"checks of {line['title']} ended {MOST_ENDS} processes, the last in {line['identity']}: {ended}"
            added.append({**line, "identity": "", "status": "skipped", "detail": reason.partition("\n")[0]})
        with output.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(each) + "\n" for each in added)


def _lines(output: Path) -> list[dict[str, str]]:
    whole, _, half = output.read_text("utf-8").rpartition("\n")
    if half:
        output.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]


def _run(name: str, plugins: PluginSet, output: Path) -> str:
    pickled = bytes(ForkingPickler.dumps(replace(plugins, root=plugins.root or Path.cwd()))).hex()
    command = [sys.executable, "-P", "-m", "slime_testing.check_process", name, pickled, str(output)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    errors = output.with_name("errors.txt")
    with errors.open("w") as stderr:
        process = subprocess.Popen(command, env=environment, stdout=stderr, stderr=stderr)
        size, limit_s, began = output.stat().st_size, START_LIMIT_S, time.monotonic()
        try:
            while process.poll() is None:
                time.sleep(0.02)
                if (now := output.stat().st_size) > size:
                    size, limit_s, began = now, _limit_s(output), time.monotonic()
                elif time.monotonic() > began + limit_s:
                    return f"it did not return within {limit_s:g} s, and its process was killed"
        finally:
            end_descendants(process.pid)
            process.kill()
            process.wait()
    if process.returncode == 0:
        return ""
    text = "\n".join(errors.read_text("utf-8", "replace").strip().splitlines()[-OUTPUT_LINES:])
    return f"it ended the process with exit status {process.returncode}{': ' if text else ''}{text}"


def _limit_s(output: Path) -> float:
    with contextlib.suppress(ValueError):  # the line is incomplete
        return LIMIT_S * float(json.loads(output.read_text("utf-8").splitlines()[-1]).get("patience", 1.0))
    return LIMIT_S


def _result(line: Mapping[str, str]) -> CheckResult:
    info = ALL_CHECKS[line["identity"]]
    return CheckResult(info.identity, CheckStatus(line["status"]), line["detail"], info.advice)
