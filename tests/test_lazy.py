"""Packages that import what they export when it is asked for."""

import ast
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from slime_core.lazy import from_package
from tests.tables import table

LAZY = (
    "slime_core",
    "slime_core.catalog",
    "slime_core.config",
    "slime_core.data",
    "slime_core.processes",
    "slime_core.roles",
    "slime_testing",
    "slime_train",
)


@table("package", LAZY)
def test_it_exports_each_name_of_its_import_block_from_there(package: str) -> None:
    module = importlib.import_module(package)
    block = next(node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.If))
    imports = [(node.module, each) for node in block.body if isinstance(node, ast.ImportFrom) for each in node.names]
    assert all(each.name in ("*", each.asname) for _, each in imports)
    imported = [(home, each.name) for home, each in imports if each.name != "*"]
    imported += [(home, name) for home, each in imports if each.name == "*" for name in defined(str(home))]
    assert sorted(name for _, name in imported) == module.__all__
    for home, name in imported:
        assert getattr(module, name) is getattr(importlib.import_module(str(home)), name)


def defined(home: str) -> set[str]:
    """The public names that a module defines itself."""
    found: set[str] = set()
    for node in ast.parse(inspect.getsource(importlib.import_module(home))).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id for each in targets if isinstance(each, ast.Name)}
    return {name for name in found if not name.startswith("_")}


def test_a_long_import_in_parentheses_is_an_export_and_one_for_types_alone_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lazy_rooms").mkdir()
    (tmp_path / "lazy_rooms" / "__init__.py").write_text(
        "from slime_core.lazy import exports\n\n"
        "if False:\n"
        "    from json import (\n        dumps as dumps,\n    )\n"
        "    from json import loads\n"
        "    from lazy_rooms.cellar import *\n"
        "    from re import compile as compiled\n"
        "    from sys import version as version\n"
        "else:\n    __getattr__, __all__ = exports(__name__)\n"
    )
    (tmp_path / "lazy_rooms" / "cellar.py").write_text("from re import compile\nWINE: str = 'red'\n_DUST = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("lazy_rooms")
    assert module.__all__ == ["WINE", "dumps", "version"]
    assert (module.WINE, module.dumps, module.version) == ("red", json.dumps, sys.version)


@table("package", LAZY)
def test_no_exported_name_is_that_of_a_module_and_what_is_not_there_is_an_error(package: str) -> None:
    """The first import of such a module would put it in place of what is exported."""
    module = importlib.import_module(package)
    modules = {each.name for each in pkgutil.iter_modules(module.__path__)}
    assert not modules & set(module.__all__)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018  # the access is what is tested


@table("package", LAZY)
def test_importing_it_imports_none_of_its_modules(package: str) -> None:
    code = f"import {package}, sys; print(*(name for name in sys.modules if name.startswith('slime_core.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {from_package.__module__, package}


def test_listing_plugins_needs_neither_roles_nor_pydantic() -> None:
    code = "import sys; from slime_core.cli import run_cli; run_cli(['plugins', 'list']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.splitlines()[-1].split())
    assert "slime_core.catalog.discovery" in modules
    assert not modules & {"pydantic", "pluggy", "rich", "slime_core.hookspecs", "slime_core.roles.rewards"}


def test_what_a_package_brings_that_is_not_installed_is_said_with_what_to_install() -> None:
    with pytest.raises(ImportError, match=r"comes with slime-compat, which is not installed: .*plugins/slime-compat"):
        from_package("slime.no-such-group", "SlimeRunner", "slime-compat")
