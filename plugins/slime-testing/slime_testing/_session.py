"""What pytest is given with `--slime-plugin NAME` and `--slime-report FILE`: a test for each check, and a JSON report.

Example:

    pytest --slime-plugin slime-reward-math --slime-report report.json
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest import SkipTest

import pytest

from slime_core.sample import Json
from slime_testing.contract import CheckResult, CheckStatus, ContractViolation
from slime_testing.report import check_plugin, is_open, result_to_dict

PROPERTY = "slime_check"
"""The property of a test by which the report knows it."""


class PluginCollector(pytest.Collector):
    """The checks of one installed plugin."""

    def collect(self) -> Iterator["CheckItem"]:
        """Judge the plugin, and yield a test for each result."""
        for subject in check_plugin(self.name).subjects:
            for result in subject.results:
                yield CheckItem.from_parent(self, name=f"{subject.title}::{result.identity}", result=result)


class CheckItem(pytest.Item):
    """A pytest item for a check whose result is already known."""

    def __init__(self, *, result: CheckResult, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]  # pytest's own: name and parent
        self.result = result
        self.user_properties.append((PROPERTY, result.identity))

    def runtest(self) -> None:
        """Say what was found."""
        if self.result.status is CheckStatus.SKIPPED:
            raise SkipTest(self.result.detail)
        if self.result.status is CheckStatus.FAILED:
            raise Found(self.result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        """The detail and the advice, without a traceback: it would show the kit's own lines."""
        return str(excinfo.value)

    def reportinfo(self) -> tuple[Path, None, str]:
        """What the summary shows."""
        return self.path, None, self.nodeid


class Found(ContractViolation):
    """Raised by a `CheckItem` whose result is a failure."""

    def __init__(self, result: CheckResult) -> None:
        AssertionError.__init__(self, f"{result.identity}: {result.detail}\n{result.advice}")
        self.detail = result.detail


def plugin_items(session: pytest.Session, names: Iterable[str]) -> Iterator[pytest.Item]:
    """The tests of the plugins that the command line names."""
    for name in names:
        yield from session.genitems(PluginCollector.from_parent(session, name=name, nodeid=f"slime-plugin[{name}]"))


class Report:
    """Collects the results of contracts in a session and writes them as JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checks: list[Json] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome of a check; a test that is not a check is not in the report."""
        from slime_testing.registry import ALL_CHECKS

        identity = dict(report.user_properties).get(PROPERTY)
        if not isinstance(identity, str) or not (report.when == "call" or report.outcome != "passed"):
            return
        info = ALL_CHECKS.get(identity)
        result = CheckResult(
            identity,
            info.since if info else "",
            _status(report),
            str(getattr(report, "wasxfail", "")) or _detail(report),
            info.advice if info else "",
        )
        self._checks.append({"test": report.nodeid, **result_to_dict(result)})

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        self._path.write_text(json.dumps({"checks": self._checks}, indent=2) + "\n", encoding="utf-8")


def undecided(skipped: Iterable[pytest.TestReport]) -> Iterator[str]:
    """A line for each check that was skipped and that a green session leaves open."""
    from slime_testing.registry import ALL_CHECKS

    for report in skipped:
        identity, detail = str(dict(report.user_properties)[PROPERTY]), _detail(report)
        if identity in ALL_CHECKS and is_open(identity, detail):
            yield f"not decided: {report.nodeid.rpartition('::')[0]} {identity}: {detail}"


def _status(report: pytest.TestReport) -> CheckStatus:
    if hasattr(report, "wasxfail"):
        return CheckStatus.XFAILED if report.outcome == "skipped" else CheckStatus.FAILED
    return {"passed": CheckStatus.PASSED, "skipped": CheckStatus.SKIPPED}.get(report.outcome, CheckStatus.FAILED)


def _detail(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(getattr(report.longrepr, "reprcrash", None) or report.longrepr or "")
