"""What pytest is given with `--slime-plugin NAME`: a test for each check.

Example:

    pytest --slime-plugin slime-reward-math
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest import SkipTest

import pytest

from slime_testing.contract import CheckResult, CheckStatus, ContractViolation
from slime_testing.report import check_plugin, is_open

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


def undecided(skipped: Iterable[pytest.TestReport]) -> Iterator[str]:
    """A line for each check that was skipped and that a green session leaves open."""
    from slime_testing.report import ALL_CHECKS

    for report in skipped:
        identity, detail = str(dict(report.user_properties)[PROPERTY]), _detail(report)
        if identity in ALL_CHECKS and is_open(identity, detail):
            yield f"not decided: {report.nodeid.rpartition('::')[0]} {identity}: {detail}"


def _detail(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(getattr(report.longrepr, "reprcrash", None) or report.longrepr or "")
