"""Workers load what the driver has loaded, in its order and versions, or say who they are."""

import importlib
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slime_core.catalog import Catalog, discover_in_worker
from slime_core.errors import PluginError
from slime_core.roles import PluginSet
from slime_testing import write_distribution
from tests.catalog.sources import reward_plugin

Install = Callable[..., None]
SOURCE = reward_plugin()


@pytest.fixture(autouse=True)
def clean_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def loaded(catalog: Catalog) -> list[str]:
    return [status.plugin for status in catalog.statuses if not status.failed and status.state.value == "loaded"]


def test_a_worker_loads_what_the_driver_loaded_in_its_order(
    install_plugin: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("aaa", "zzz"):
        install_plugin(f"slime-{name}", {f"{name}.py": SOURCE}, entry_points={name: name})
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "mine.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path / "project")
    driver = Catalog.discover(PluginSet(require=("zzz",), without=("slime-reward-math",), modules=("./mine.py",)))
    monkeypatch.chdir(tmp_path)
    worker = discover_in_worker(driver.plugin_set, "trainer 0")
    assert loaded(worker) == loaded(driver)
    assert loaded(worker)[:3] == ["slime-core", "slime-zzz", "slime-aaa"]
    assert loaded(worker)[-1] == "./mine.py"
    assert "slime-reward-math" not in loaded(worker)
    assert worker.find("reward", "./mine.py/one").plugin == "./mine.py"


def test_another_version_names_the_worker(install_plugin: Install, tmp_path: Path) -> None:
    install_plugin("slime-zzz", {"zzz.py": SOURCE}, entry_points={"zzz": "zzz"})
    driver = Catalog.discover()
    expected = replace(driver.plugin_set, expected={**driver.plugin_set.expected, "slime-zzz": "2.0"})
    with pytest.raises(PluginError) as caught:
        discover_in_worker(expected, "trainer 3")
    assert f"trainer 3 on {socket.gethostname()} (process {os.getpid()}): the plugins differ" in str(caught.value)
    assert "slime-zzz: 2.0 there, 1.0 here" in str(caught.value)


def test_a_plugin_that_is_missing_names_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_distribution(tmp_path, "slime-zzz", {"zzz.py": SOURCE}, entry_points={"zzz": "zzz"})
    monkeypatch.syspath_prepend(tmp_path)
    driver = Catalog.discover()
    sys.path.remove(str(tmp_path))
    importlib.invalidate_caches()
    with pytest.raises(PluginError, match=r"trainer 1 on .*: no plugin 'slime-zzz'"):
        discover_in_worker(driver.plugin_set, "trainer 1")


def test_a_plugin_that_was_broken_in_the_driver_is_not_tried_in_a_worker(
    install_plugin: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_plugin("slime-zzz", {"zzz.py": "1 / 0"}, entry_points={"zzz": "zzz"})
    monkeypatch.delenv("SLIME_PLUGINS_STRICT", raising=False)
    with pytest.warns(UserWarning, match="slime-zzz"):
        driver = Catalog.discover()
    assert loaded(discover_in_worker(driver.plugin_set, "trainer 0")) == loaded(driver)
