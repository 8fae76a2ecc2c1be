"""The public surface is one list: what the guide promises, what is recorded, and what our own plugins import."""

import ast
import importlib
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

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


def test_our_plugins_and_examples_import_public_names_alone() -> None:
    sources = {path: path.read_text("utf-8") for path in ours()}
    assert sources
    wrong = [f"{path.relative_to(ROOT)}: {each}" for path, source in sources.items() for each in private(source)]
    assert not wrong, "\n".join(wrong)


def test_a_new_plugin_of_any_kind_imports_public_names_alone() -> None:
    wrong = [
        f"{kind}: {path}: {each}"
        for kind in KINDS
        for path, text in render(Names.parse(kind, "mine"), License.MIT).items()
        if path.endswith(".py")
        for each in private(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_pages_show_public_names_alone() -> None:
    statement = re.compile(r"^\s*(from slime_core\S* import .*|import slime_core\S*)$", re.MULTILINE)
    wrong = [
        f"{path.relative_to(ROOT)}: {each}"
        for path in PAGES
        for line in statement.findall(path.read_text("utf-8"))
        for each in private(line.partition("#")[0])
    ]
    assert not wrong, "\n".join(wrong)


def test_a_private_name_is_noticed() -> None:
    source = (
        "import slime_core.run.loop\nfrom slime_core import Sample, _lazy\nfrom slime_core.catalog import Catalog\n"
    )
    assert private(source) == ["slime_core.run.loop: *", "slime_core: _lazy", "slime_core.catalog: Catalog"]
