"""The public surface is one list: what the guide promises, what is recorded, and what our own plugins import."""

import ast
import importlib
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime_core.scaffold import KINDS, License, Names, render

ROOT = Path(__file__).resolve().parent.parent
PUBLIC: tuple[str, ...] = runpy.run_path(str(ROOT / "tools" / "api_snapshot.py"))["PUBLIC"]
PAGES = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("plugins/*/*.md"), *ROOT.glob("examples/*/*.md")]
REACH_INTO_THE_CORE = (
    ROOT / "plugins" / "slime-local" / "tests",
    ROOT / "plugins" / "slime-engine-sglang" / "tests" / "test_router.py",
    ROOT / "plugins" / "slime-engine-sglang" / "tests" / "test_routers.py",
    ROOT / "plugins" / "slime-engine-sglang" / "tests" / "test_two_servers.py",
    ROOT / "plugins" / "slime-compat" / "tests" / "test_names.py",
    ROOT / "plugins" / "slime-compat" / "tests" / "test_flags.py",
    ROOT / "plugins" / "slime-compat" / "tests" / "test_source.py",
    ROOT / "plugins" / "slime-trainer-megatron" / "tests" / "test_device.py",
    ROOT / "plugins" / "slime-trainer-megatron" / "tests" / "test_layouts.py",
    ROOT / "plugins" / "slime-trainer-megatron" / "tests" / "test_rank.py",
    ROOT / "plugins" / "slime-view" / "tests",
)
"""Tests that compare a plugin with what the core does: its formulas, its processes, its keys, its pool, its prompts,
its files."""

OF_A_PLUGIN = {"slime_core: SlimeRunner"}
"""Names that a plugin gives the core, found when they are asked for."""


def ours() -> list[Path]:
    """Modules of first-party plugins, of their tests, and of the examples."""
    found = (path for folder in ("plugins", "examples") for path in sorted((ROOT / folder).rglob("*.py")))
    return [path for path in found if not any(path.is_relative_to(each) for each in REACH_INTO_THE_CORE)]


def imported(source: str) -> Iterator[tuple[str, str]]:
    """Module and name of every import from the core; an imported module stands for all of it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "slime_core":
            yield from ((node.module or "", each.name) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((each.name, "*") for each in node.names if each.name.partition(".")[0] == "slime_core")


def private(source: str) -> list[str]:
    """What a source imports from the core and must not."""
    found = [
        f"{module}: {name}"
        for module, name in imported(source)
        if module not in PUBLIC or name not in ("*", *importlib.import_module(module).__all__)
    ]
    return [each for each in found if each not in OF_A_PLUGIN]


def test_the_guide_promises_what_is_recorded() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text("utf-8")
    rows = re.findall(r"^\| (`slime_core.*?) \|", page, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`([\w.]+)`", row)) == sorted(PUBLIC)


@pytest.mark.parametrize("path", ours(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_plugin_of_ours_imports_public_names_alone(path: Path) -> None:
    assert private(path.read_text("utf-8")) == []


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_new_plugin_imports_public_names_alone(kind: str) -> None:
    for path, text in render(Names.parse(kind, "mine"), License.MIT).items():
        assert not path.endswith(".py") or private(text) == [], path


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_shows_public_names_alone(path: Path) -> None:
    lines = re.findall(
        r"^\s*(from slime_core\S* import .*|import slime_core\S*)$", path.read_text("utf-8"), re.MULTILINE
    )
    assert [wrong for line in lines for wrong in private(line.partition("#")[0])] == []


def test_a_private_name_is_noticed() -> None:
    source = (
        "import slime_core.run.loop\nfrom slime_core import Sample, _lazy\nfrom slime_core.catalog import Catalog\n"
    )
    assert private(source) == ["slime_core.run.loop: *", "slime_core: _lazy", "slime_core.catalog: Catalog"]
