"""The core's checks, each on a situation that it is there for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slime_core import __version__
from slime_core.roles import Health
from slime_testing.doctor import (
    core_distribution,
    cpus,
    duplicates,
    plugins,
    requirements,
    room,
    shared_memory,
)
from tests.tables import table

Install = Callable[..., None]
CORE = f"slime-core=={__version__}"
GOOD = 'SLIME_API = "1"\n'


def test_the_core_that_is_installed_is_this_one() -> None:
    finding = core_distribution()
    assert finding.health is Health.OK, finding.text


def test_the_other_project_called_slime_core_is_told_apart(install_plugin: Install) -> None:
    install_plugin("slime-core", {}, entry_points={}, version="0.0.1", requires=())
    finding = core_distribution()
    assert finding.health is Health.ERROR
    assert "another project of that name: 0.0.1 in " in finding.text
    assert finding.advice.startswith("pip uninstall slime-core, then")


def test_old_metadata_of_a_moved_version_is_named(install_plugin: Install) -> None:
    install_plugin("slime-core", {}, entry_points={"builtin": "slime_core.builtin"}, version="0.0.9", requires=())
    finding = core_distribution()
    assert finding.health is Health.WARNING
    assert "its metadata says 0.0.9" in finding.text


def test_a_plugin_that_is_installed_twice_is_named_with_both_places(install_plugin: Install, tmp_path: Path) -> None:
    for version in ("1.0", "1.1"):
        install_plugin("slime-twice", {"twice.py": GOOD}, entry_points={"twice": "twice"}, version=version)
    finding = duplicates()
    assert finding.health is Health.WARNING
    for version in ("1.0", "1.1"):
        assert f"{version} in {tmp_path / 'site' / f'slime_twice-{version}.dist-info'}" in finding.text
    assert finding.advice.startswith("pip uninstall slime-twice")


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


def test_missing_and_old_requirements_are_named_with_the_lines_to_type(install_plugin: Install) -> None:
    needs = ("slime-nowhere<3,>=2.0", "slime-aged>=1.10", "else>=9; extra == 'docs'", "slime-trainer-none", "click")
    install_plugin("slime-hungry", {"slime_hungry.py": ""}, entry_points={"hungry": "slime_hungry"}, requires=needs)
    install_plugin("slime-aged", {}, entry_points={}, version="1.9+cpu")
    finding = requirements()
    assert finding.health is Health.WARNING
    assert finding.text == (
        "slime-hungry needs slime-nowhere>=2.0, which is not installed; "
        "slime-hungry needs slime-aged>=1.10, and there is 1.9+cpu; "
        "slime-hungry needs slime-trainer-none, which is not installed"
    )
    assert (
        finding.advice == f"pip install 'slime-nowhere>=2.0' {CORE}; pip install 'slime-aged>=1.10' {CORE}; "
        f"pip install 'slime-trainer-none' {CORE}"
    )


def test_a_package_of_ours_is_never_asked_of_an_index(install_plugin: Install) -> None:
    install_plugin(
        "slime-asks", {"slime_asks.py": ""}, entry_points={"asks": "slime_asks"}, requires=("slime-local>=9",)
    )
    finding = requirements()
    assert "checkout of slime-core: pip install -e . -e ./plugins/" in finding.advice
    assert finding.advice.endswith(" -e ./plugins/slime-local")


@pytest.mark.parametrize("version", ["1.10", "1.10.0+cpu", "1.10rc1", "2"])  # each in its own folder
def test_versions_that_are_enough(install_plugin: Install, version: str) -> None:
    install_plugin("slime-asks", {"slime_asks.py": ""}, entry_points={"asks": "slime_asks"}, requires=("aged>=1.10.0",))
    install_plugin("aged", {}, entry_points={}, version=version)
    assert requirements().health is Health.OK


@table(
    "quota, health",
    [("max 100000", Health.OK), ("10000000 100000", Health.OK), ("50000 100000", Health.WARNING), ("?", Health.OK)],
)
def test_a_smaller_share_of_the_cores_is_named(tmp_path: Path, quota: str, health: Health) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(f"{quota}\n")
    finding = cpus(file)
    assert finding.health is health
    assert ("allows 0.5" in finding.text) == (health is Health.WARNING)


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
    assert "read-only" in room().text
