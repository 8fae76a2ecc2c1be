"""pytest plugin of the kit: reports numbers of checks, and has fixtures for plugins' tests. Imports are lazy.

Example:

    def test_mine(slime_plugins):
        catalog = slime_plugins.add("./my_plugin.py").catalog
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from slime_core.sample import Group, Sample
    from slime_testing.distribution import PluginManager
    from slime_testing.fake_engine import FakeEngine


def pytest_itemcollected(item: pytest.Item) -> None:
    """Record the number of a check, and expect the failures in its contract's `xfail`."""
    info = getattr(getattr(item, "function", None), "check", None)
    if info is None:
        return
    item.user_properties.append(("slime_check", info.identity))
    excuses = getattr(getattr(item, "cls", None), "xfail", {})
    if info.identity in excuses:
        item.add_marker(pytest.mark.xfail(reason=excuses[info.identity], strict=True))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List skipped checks that leave the result open, which "passed" alone would hide."""
    # Modules that skip themselves are in this list too, and have no properties.
    all_skipped = terminalreporter.stats.get("skipped", ())
    skipped = [each for each in all_skipped if "slime_check" in dict(getattr(each, "user_properties", ()))]
    if skipped:
        from slime_testing.report import ALL_CHECKS, is_open

        for report in skipped:
            identity, detail = str(dict(report.user_properties)["slime_check"]), _detail(report)
            if identity in ALL_CHECKS and is_open(identity, detail):
                line = f"not decided: {report.nodeid.rpartition('::')[0]} {identity}: {detail}"
                terminalreporter.write_line(line, yellow=True)


def _detail(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(getattr(report.longrepr, "reprcrash", None) or report.longrepr or "")


@pytest.fixture
def make_sample() -> "Callable[..., Sample]":
    """`slime_testing.make_sample`: a finished sample."""
    from slime_testing.samples import make_sample

    return make_sample


@pytest.fixture
def make_group() -> "Callable[..., Group]":
    """`slime_testing.make_group`: a finished, frozen group."""
    from slime_testing.samples import make_group

    return make_group


@pytest.fixture
def slime_plugins() -> "PluginManager":
    """A catalog of only the core and the plugins that the test adds: `slime_plugins.add(my_plugin)`."""
    from slime_testing.distribution import PluginManager

    return PluginManager()


@pytest.fixture
def fake_engine() -> "Iterator[Callable[..., FakeEngine]]":
    """`fake_engine(Slow(0.5))` starts a `slime_testing.FakeEngine`; the test's end stops all of them."""
    from slime_testing.fake_engine import FakeEngine

    with contextlib.ExitStack() as started:
        yield lambda *script, **limits: started.enter_context(FakeEngine(*script, **limits))


@pytest.fixture
def install_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Write a distribution with `slime_testing.write_distribution`, and make it importable in this test.

    install_plugin("slime-reward-other", {"other.py": SOURCE}, entry_points={"reward-other": "other"})
    """
    from slime_testing.distribution import write_distribution

    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    loaded = set(sys.modules)
    yield functools.partial(write_distribution, folder)
    for name in set(sys.modules) - loaded:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
            del sys.modules[name]
