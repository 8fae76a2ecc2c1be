"""The public surface is one list: what the guide promises, what is recorded, and what our own plugins import."""

import ast
import importlib
import re
import runpy
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

from slime_testing.scaffold import KINDS, License, Names, render

ROOT = Path(__file__).resolve().parent.parent
PUBLIC: dict[str, tuple[str, ...]] = runpy.run_path(str(ROOT / "tools" / "api_snapshot.py"))["PUBLIC"]
PACKAGES = {module.partition(".")[0] for module in PUBLIC}
PAGES = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("plugins/*/*.md"), *ROOT.glob("examples/*/*.md")]
REACH_INTO_THE_CORE = (
    ROOT / "plugins" / "slime-local" / "tests",
    ROOT / "plugins" / "slime-engine-sglang" / "tests" / "test_router.py",
    ROOT / "plugins" / "slime-engine-sglang" / "tests" / "test_routers.py",
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

BUILT_ON_THE_INSIDE = {
    "slime_local": {"slime_core"},
    "slime_simulate": {"slime_core"},
    "slime_testing": {"slime_core", "slime_train"},
    "slime_train": {"slime_core"},
    "slime_view": {"slime_core"},
}
"""Packages that were parts of the core, or run parts of it, with the packages whose inner modules they may import."""


def ours() -> list[Path]:
    """Modules of first-party plugins, of their tests, and of the examples."""
    found = (path for folder in ("plugins", "examples") for path in sorted((ROOT / folder).rglob("*.py")))
    return [path for path in found if not any(path.is_relative_to(each) for each in REACH_INTO_THE_CORE)]


def watched_in(path: Path) -> set[str]:
    """The packages whose private names a file of ours must not import."""
    folder, name = path.relative_to(ROOT).parts[:2]
    if folder != "plugins":
        return PACKAGES
    package = name.replace("-", "_")
    inside = set[str]() if "tests" in path.parts else BUILT_ON_THE_INSIDE.get(package, set())
    return PACKAGES - {package} - inside


def imported(source: str) -> Iterator[tuple[str, str]]:
    """Module and name of every import from a package with public names; an imported module stands for all of it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES:
            yield from ((node.module or "", each.name) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((each.name, "*") for each in node.names if each.name.partition(".")[0] in PACKAGES)


def private(source: str, watched: AbstractSet[str] = PACKAGES) -> list[str]:
    """What a source imports from the watched packages and must not."""
    found = [
        f"{module}: {name}"
        for module, name in imported(source)
        if module.partition(".")[0] in watched
        if module not in PUBLIC or name not in (PUBLIC[module] or ("*", *importlib.import_module(module).__all__))
    ]
    return [each for each in found if each not in OF_A_PLUGIN]


def test_the_guide_promises_what_is_recorded() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text("utf-8")
    promised: dict[str, tuple[str, ...]] = {}
    for row in re.findall(r"^\| (`slime_.*?) \|", page.partition("## Modules that moved")[0], re.MULTILINE):
        words = re.findall(r"`([\w.]+)`", row)
        modules = [word for word in words if word.partition(".")[0] in PACKAGES]
        names = tuple(sorted({*words} - {*modules}))
        promised |= dict.fromkeys(modules, names)
    assert promised == {module: tuple(sorted(names)) for module, names in PUBLIC.items()}


def test_our_plugins_and_examples_import_public_names_alone() -> None:
    sources = {path: path.read_text("utf-8") for path in ours()}
    assert sources
    wrong = [
        f"{path.relative_to(ROOT)}: {each}"
        for path, source in sources.items()
        for each in private(source, watched_in(path))
    ]
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
    packages = "|".join(sorted(PACKAGES))
    statement = re.compile(rf"^\s*(from (?:{packages})\b\S* import .*|import (?:{packages})\b\S*)$", re.MULTILINE)
    wrong = [
        f"{path.relative_to(ROOT)}: {each}"
        for path in PAGES
        for line in statement.findall(path.read_text("utf-8"))
        for each in private(line.partition("#")[0])
    ]
    assert not wrong, "\n".join(wrong)


def test_a_private_name_is_noticed() -> None:
    source = (
        "import slime_core.run.loop\nfrom slime_core import Sample, lazy\nfrom slime_core.catalog import Catalog\n"
        "from slime_core.run import Session, RunFolder\nimport slime_core.run\nfrom slime_train.losses import Loss\n"
    )
    assert private(source) == [
        "slime_core.run.loop: *",
        "slime_core: lazy",
        "slime_core.catalog: Catalog",
        "slime_core.run: RunFolder",
        "slime_core.run: *",
        "slime_train.losses: Loss",
    ]
