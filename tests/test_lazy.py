"""Packages that import what they export when it is asked for."""

import importlib
import pkgutil
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from slime_core._lazy import from_package

LAZY = (
    "slime_core",
    "slime_core.catalog",
    "slime_core.config",
    "slime_core.data",
    "slime_core.isolation",
    "slime_core.processes",
    "slime_core.roles",
    "slime_core.testing",
    "slime_core.train",
)


@pytest.mark.parametrize("package", LAZY)
def test_every_exported_name_is_there(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", LAZY)
def test_its_table_has_the_exported_names_and_no_others(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables: dict[str, Mapping[str, str]] = {}
    monkeypatch.setattr(sys.modules[from_package.__module__], "exports", tables.__setitem__)
    path = importlib.import_module(package).__file__
    assert path is not None
    names = runpy.run_path(path, run_name=package)
    assert sorted(" ".join(tables[package].values()).split()) == sorted(names["__all__"])


@pytest.mark.parametrize("package", LAZY)
def test_no_exported_name_is_that_of_a_module(package: str) -> None:
    """Whoever imports that module first would find it in place of what is exported."""
    module = importlib.import_module(package)
    modules = {each.name for each in pkgutil.iter_modules(module.__path__)}
    assert not modules & set(module.__all__)


@pytest.mark.parametrize("package", LAZY)
def test_what_is_not_there_is_an_error(package: str) -> None:
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018  # the access is what is tested


@pytest.mark.parametrize("package", LAZY)
def test_importing_it_imports_none_of_its_modules(package: str) -> None:
    code = f"import {package}, sys; print(*(name for name in sys.modules if name.startswith('slime_core.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {from_package.__module__, package}


def test_listing_plugins_needs_neither_roles_nor_pydantic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code = "import sys; from slime_core.cli.main import run_cli; run_cli(['plugins', 'list']); print(*sys.modules)"
    for _ in range(2):  # the second time from the cache
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.splitlines()[-1].split())
    assert "slime_core.catalog.listing" in modules
    assert not modules & {"pydantic", "pluggy", "rich", "slime_core.hookspecs", "slime_core.roles.reward"}


def test_what_a_package_brings_that_is_not_installed_is_said_with_what_to_install() -> None:
    with pytest.raises(ImportError, match=r"comes with slime-compat, which is not installed: .*plugins/slime-compat"):
        from_package("slime.no-such-group", "SlimeRunner", "slime-compat")
