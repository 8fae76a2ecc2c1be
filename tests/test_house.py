"""The house rules a machine can check: layers, imports, sizes, docstrings, `__all__`, the public API."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection
from pathlib import Path

import pytest

import slime_core

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = [ROOT / "slime_core", *sorted(ROOT.glob("plugins/*/slime_*"))]
MODULES = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
HEAVY = ("jinja2", "matplotlib", "numpy", "pyarrow", "ray", "sglang", "tensorboard", "torch", "transformers")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def module_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_layers_import_downwards_only() -> None:
    result = run(str(Path(sys.executable).with_name("lint-imports")), "--no-cache")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    "statement",
    [
        "import slime_core",
        "import slime_core.hookspecs, slime_core.roles",
        "import slime_core.builtin",
        "from slime_core.cli.main import run_cli; run_cli(['--help'])",
        "from slime_core.cli.main import run_cli; run_cli(['plugins', 'list'])",
        "from slime_core.cli.main import run_cli; run_cli(['plugins', 'show', 'slime-core'])",
        "from slime_core.cli.main import run_cli; run_cli(['plugins', 'check', 'slime-reward-math'])",
        "from slime_core.cli.main import run_cli; run_cli(['train', '--help'])",
        "from slime_core.cli.main import run_cli; run_cli(['doctor'])",
    ],
)
def test_the_front_door_imports_nothing_heavy(statement: str) -> None:
    result = run(sys.executable, "-c", f"{statement}\nimport sys\nprint('modules:', *sys.modules)")
    assert result.returncode == 0, result.stderr
    assert not set(HEAVY) & set(result.stdout.rpartition("modules:")[2].split())


@pytest.mark.parametrize("room", ["catalog", "config"])
def test_what_chooses_names_no_vendor(room: str) -> None:
    vendors = re.compile(r"(?i)sglang|megatron|\bray\b|vllm|\btrl\b|\bverl\b|openrlhf|\bpeft\b|wandb")
    named = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in sorted((ROOT / "slime_core" / room).rglob("*.py"))
        for found in [vendors.search(path.read_text("utf-8"))]
        if found
    ]
    assert named == []


def test_the_core_depends_on_a_few_small_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {requirement.split(">=")[0] for requirement in project["dependencies"]}
    assert names == {"click", "pluggy", "pydantic", "rich", "typing-extensions"}


def test_every_plugin_requires_this_series_of_the_core() -> None:
    """The public index has an unrelated slime-core 0.0.1, which an unbounded requirement would accept."""
    paths = sorted(ROOT.glob("plugins/*/pyproject.toml"))
    assert paths
    for path in paths:
        project = tomllib.loads(path.read_text("utf-8"))["project"]
        assert "slime-core>=0.1,<0.2" in project["dependencies"], path


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_a_module_opens_with_a_docstring(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text("utf-8")))


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_all_is_sorted_and_without_repeats(path: Path) -> None:
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and "__all__" in {ast.unparse(target) for target in node.targets}:
            names = ast.literal_eval(node.value)
            assert list(names) == sorted(set(names), key=_isort_style)


def _isort_style(name: str) -> tuple[int, str]:
    """CONSTANTS, then Classes, then functions: the order ruff's RUF022 writes."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


@pytest.mark.parametrize("path", sorted((ROOT / "slime_core").rglob("*.py")), ids=module_id)
def test_what_mypy_is_told_to_pass_over_says_why(path: Path) -> None:
    bare = re.compile(r"type: ignore(\[[^]]*\])?\s*(# noqa.*)?$", re.MULTILINE)
    assert [match[0] for match in bare.finditer(path.read_text("utf-8"))] == []


def test_the_map_names_every_room() -> None:
    """CONTRIBUTING's map of slime_core, and pyproject's layers, have every module and package at its top."""
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    [drawn] = re.findall(r"^slime_core/\n((?:  .*\n)+)", page, re.MULTILINE)
    named = {name for line in drawn.splitlines() for name in re.findall(r"^  [\w. /]*?(?=  |$)", line)[0].split()}
    there = {path.name for path in (ROOT / "slime_core").glob("[!_]*.py")}
    there |= {f"{path.parent.name}/" for path in (ROOT / "slime_core").glob("*/__init__.py")}
    assert named == there | {"_lazy.py", "_numbers.py", "__main__.py"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Whatever imports are counted: those in functions, and those for mypy alone, too."""
    files = {_dotted(path): path for path in (ROOT / "slime_core").rglob("*.py")}
    left = {name: _imported(path, files) - {name} for name, path in files.items()}
    while free := [name for name, needed in left.items() if not needed]:
        left = {name: needed - set(free) for name, needed in left.items() if name not in free}
    assert left == {}, "these, or what they need, are in a circle"


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path, files: Collection[str]) -> set[str]:
    """The modules of the core that are named by a module's imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{each.name}" for each in node.names}
            names |= (inner & set(files)) or {node.module}
        elif isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
    return names & set(files)


def test_modules_and_functions_are_small_enough_to_read() -> None:
    result = run(sys.executable, "tools/check_sizes.py")
    assert result.returncode == 0, result.stdout


def test_the_public_api_is_the_committed_one() -> None:
    result = run(sys.executable, "tools/api_snapshot.py", "--check")
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_version_is_one() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert version == slime_core.__version__


def test_changelog_fragments_are_named_so_that_a_release_finds_them() -> None:
    pattern = re.compile(r"README\.md|\+[a-z0-9-]+\.(added|changed|fixed|removed)\.md")
    names = [path.name for path in (ROOT / "changelog").iterdir()]
    assert [name for name in names if not pattern.fullmatch(name)] == []


def test_what_make_quick_leaves_out_exists() -> None:
    listed = [line for line in (ROOT / "tests/slow.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    assert listed == sorted(set(listed))
    assert [name for name in listed if not (ROOT / name).is_file()] == []
