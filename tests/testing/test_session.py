"""The report of the kit, on installed plugins and on a file of a project."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slime_testing import CheckStatus, PluginManager, check_plugin

BAD = """
import time
from slime_core import RewardSpec, Score, hookimpl

SLIME_API = "1"


async def blocks(sample, ctx):
    time.sleep(0.3)
    return Score(1.0)


@hookimpl
def slime_rewards():
    yield RewardSpec.from_function("blocks", blocks, summary="blocks")
"""


def test_a_plugin_is_judged_whole() -> None:
    report = check_plugin("slime-generator-calculator")
    assert report.passed
    assert [subject.title for subject in report.subjects][:2] == ["package", "generator calculator"]
    assert report.cpu_s > 0
    assert json.loads(json.dumps(report.to_dict()))["subjects"][0]["contract"] == "PluginPackageContract"


@pytest.mark.parametrize(
    ("body", "identity", "detail"),
    [
        ("import ctypes; ctypes.string_at(0)", "REW-007", "it ended the process with exit status -"),
        ("raise SystemExit(0)", "REW-002", "it raised SystemExit: 0"),
    ],
)
def test_a_plugin_that_ends_the_process_is_a_result(tmp_path: Path, body: str, identity: str, detail: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(BAD.replace("time.sleep(0.3)", body))
    (failed,) = (each for each in check_plugin(str(path)).results if each.status is CheckStatus.FAILED)
    assert failed.identity == identity
    assert detail in failed.detail


def test_what_a_plugin_starts_ends_when_it_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    starts = "import subprocess, threading; threading.Thread(target=time.sleep, args=(600,)).start(); "
    seconds = f"4711.{os.getpid()}"  # so that no other run of this test is meant
    starts += f"subprocess.Popen(['sleep', '{seconds}'], start_new_session=True)"
    path.write_text(BAD.replace("time.sleep(0.3)", starts))
    failed = {each.identity for each in check_plugin(str(path)).results if each.status is CheckStatus.FAILED}
    assert failed == {"REW-015"}
    assert f"sleep\0{seconds}\0" not in list(command_lines())


def command_lines() -> Iterator[str]:
    """Of all processes; one may end while it is looked at."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_text(errors="replace")


def test_nothing_is_judged_of_a_plugin_that_does_not_load(install_plugin: Callable[..., None]) -> None:
    install_plugin("slime-reward-gone", {"gone.py": "import not_there"}, entry_points={"reward-gone": "gone"})
    report = check_plugin("slime-reward-gone")
    assert [subject.title for subject in report.subjects] == ["package"]
    assert "No module named 'not_there'" in {each.identity: each.detail for each in report.results}["PKG-002"]


def test_a_manager_finds_what_is_added_and_nothing_else(slime_plugins: PluginManager, tmp_path: Path) -> None:
    assert [each.dist for each in slime_plugins.catalog.loaded] == ["slime-core", "slime-train"]
    path = tmp_path / "bad.py"
    path.write_text(BAD)
    catalog = slime_plugins.add(str(path)).from_installed("slime-reward-math").catalog
    offered = {each.spec.name: each.plugin for each in catalog.choices("reward").values()}
    assert offered.pop("blocks") != "slime-reward-math"
    assert set(offered.values()) == {"slime-core", "slime-reward-math", "slime-train"}
