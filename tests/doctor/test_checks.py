"""The core's checks, each on a situation that it is there for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slime_core.roles import Health
from slime_testing.doctor import (
    core_distribution,
    cpus,
    plugins,
    room,
    shared_memory,
)
from tests.tables import table

Install = Callable[..., None]


def test_the_core_that_is_installed_is_this_one() -> None:
    finding = core_distribution()
    assert finding.health is Health.OK, finding.text


def test_the_other_project_called_slime_core_is_told_apart(install_plugin: Install) -> None:
    install_plugin("slime-core", {}, entry_points={}, version="0.0.1", requires=())
    finding = core_distribution()
    assert finding.health is Health.ERROR
    assert "another project of this name: 0.0.1 in " in finding.text
    assert finding.advice.startswith("pip uninstall slime-core, then")


def test_old_metadata_of_a_moved_version_is_named(install_plugin: Install) -> None:
    install_plugin("slime-core", {}, entry_points={"builtin": "slime_core.builtin"}, version="0.0.9", requires=())
    finding = core_distribution()
    assert finding.health is Health.WARNING
    assert "its metadata says 0.0.9" in finding.text


def test_a_broken_plugin_is_an_error_with_its_reason(install_plugin: Install) -> None:
    assert plugins().health is Health.OK
    install_plugin("slime-bad", {"slime_bad.py": "1/0"}, entry_points={"bad": "slime_bad"})
    finding = plugins()
    assert finding.health is Health.ERROR
    assert "ZeroDivisionError" in finding.text
    assert "pip uninstall slime-bad" in finding.advice


def test_another_plugin_api_is_an_error_with_the_line_to_type(install_plugin: Install) -> None:
    install_plugin("slime-old", {"slime_old.py": 'SLIME_API = "0"'}, entry_points={"old": "slime_old"})
    finding = plugins()
    assert finding.health is Health.ERROR
    assert "pip install --upgrade slime-old" in finding.text


@table(
    "quota, health",
    [("max 100000", Health.OK), ("10000000 100000", Health.OK), ("50000 100000", Health.WARNING), ("?", Health.OK)],
)
def test_a_smaller_share_of_the_cores_is_named(tmp_path: Path, quota: str, health: Health) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(f"{quota}\n")
    finding = cpus(file)
    assert finding.health is health
    assert ("limits the CPU time to 0.5" in finding.text) == (health is Health.WARNING)


def test_a_small_shared_memory_is_named(tiny_disk: Path) -> None:
    finding = shared_memory(tiny_disk)
    assert finding.health is Health.WARNING
    assert "2 MiB of 2 MiB free" in finding.text
    assert "--shm-size" in finding.advice


def test_little_room_is_named(tiny_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny_disk)
    finding = room()
    assert finding.health is Health.WARNING
    assert finding.text == f"0.0 GiB free in {tiny_disk}"


def test_a_read_only_folder_is_named(read_only_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(read_only_folder)
    assert "cannot write to" in room().text
