"""House rules that are read from files: no program has to run. `make lint` runs this check.

    .venv/bin/python tools/check_house.py

Prints a line per finding, and exits 1 if there is one. The packages are `slime_core` and every `plugins/*/slime_*`.
ruff checks style, import-linter the layers, and `check_sizes.py` the sizes.
"""

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DEPENDENCIES = {"click", "pluggy", "pydantic", "typing-extensions"}
"""All that the core may require."""
SERIES = "slime-core>=0.1,<0.2"
"""What a plugin requires; `make release` updates it."""

WITHOUT_VENDORS = ("slime_core/catalog", "slime_core/config")
VENDORS = re.compile(r"(?i)sglang|megatron|\bray\b|vllm|\btrl\b|\bverl\b|openrlhf|\bpeft\b|wandb")

BARE_IGNORE = re.compile(r"type: ignore(\[[^]]*\])?\s*(# noqa.*)?$")
BARE_IGNORES = {
    "slime_engine_sglang": "calls functions of torch that have no types",
    "slime_launcher_ray": "decorates actors with Ray, which ships no usable types",
    "slime_trainer_megatron": "calls and patches megatron-core, which ships no usable types",
}
"""Packages whose `type: ignore` comments need no reason of their own, with the reason for all of them."""

CIRCLES = {
    "slime_engine_sglang": "each transport imports its sender inside a function, because torch loads slowly",
    "slime_train": "a weight channel imports its ends inside methods, because torch loads slowly",
    "slime_local": "decoders import the model's class only for mypy",
}
"""Packages whose own modules may import each other in a circle, with the reason."""

EXPORTS = "exports(__name__)"
"""The only call that may compute `__all__`: slime_core/lazy.py."""

FRAGMENT = re.compile(r"README\.md|\+[a-z0-9-]+\.(added|changed|fixed|removed)\.md")
SLOW = "tests/slow.txt"


@dataclass(frozen=True, slots=True)
class Module:
    """A module of a package."""

    name: str
    """Dotted, as an import has it."""
    place: str
    """Its path from the root."""
    source: str
    tree: ast.Module


def main(argv: Sequence[str] | None = None) -> int:
    """Print what breaks a rule and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="(this checkout)")
    found = list(findings(parser.parse_args(argv).root))
    print("\n".join(found) or "no house rule is broken")
    return 1 if found else 0


def findings(root: Path) -> Iterator[str]:
    """Every broken rule of a checkout, a line each."""
    statements = {}
    for module in read_modules(root):
        yield from docstring(module)
        yield from computed_all(module)
        yield from bare_ignores(module)
        yield from vendors(module)
        statements[module.name] = list(imports(module))
    yield from circles(statements)
    yield from projects(root)
    yield from rooms(root)
    yield from fragments(root)
    yield from slow_files(root)


def read_modules(root: Path) -> Iterator[Module]:
    """Every module of the packages."""
    for package in (root / "slime_core", *sorted(root.glob("plugins/*/slime_*"))):
        for path in sorted(package.rglob("*.py")):
            source = path.read_text("utf-8")
            name = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
            yield Module(name, str(path.relative_to(root)), source, ast.parse(source, str(path)))


def docstring(module: Module) -> Iterator[str]:
    """A module without a docstring. D100 of ruff reads only public modules."""
    if not ast.get_docstring(module.tree):
        yield f"{module.place}:1: no docstring at the top: say what the module is"


def computed_all(module: Module) -> Iterator[str]:
    """An `__all__` that ruff cannot check: RUF022 (sorted) and RUF068 (repeats) read a list that is written out.

    `exports` may compute one, because it reads imports, which ruff checks too.
    """
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Assign) or ast.unparse(node.value) == EXPORTS:
            continue
        if "__all__" in {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}:
            names = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
            if not all(isinstance(name, ast.Constant) for name in names):
                yield f"{module.place}:{node.lineno}: __all__ is computed: write its names out, for ruff to check"


def bare_ignores(module: Module) -> Iterator[str]:
    """Comments that silence mypy and give no reason."""
    if module.name.partition(".")[0] in BARE_IGNORES:
        return
    for number, line in enumerate(module.source.splitlines(), 1):
        if found := BARE_IGNORE.search(line):
            yield f"{module.place}:{number}: {found[0].strip()}: add why, as a second comment on the line"


def vendors(module: Module) -> Iterator[str]:
    """Names of vendors in the rooms that choose plugins."""
    if module.place.startswith(tuple(f"{room}/" for room in WITHOUT_VENDORS)):
        for number, line in enumerate(module.source.splitlines(), 1):
            if found := VENDORS.search(line):
                yield f"{module.place}:{number}: names {found[0]}: not in {' or '.join(WITHOUT_VENDORS)}"


def imports(module: Module) -> Iterator[tuple[str, list[str]]]:
    """Each import statement, inside functions and for mypy too: the module, and the names imported from it."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, [each.name for each in node.names]
        elif isinstance(node, ast.Import):
            yield from ((each.name, []) for each in node.names)


def circles(statements: Mapping[str, Sequence[tuple[str, list[str]]]]) -> Iterator[str]:
    """Modules that import each other; `statements` holds the import statements of each module."""
    left = {
        name: {
            other
            for source, names in found
            for other in ({f"{source}.{each}" for each in names} & statements.keys() or {source} & statements.keys())
            if other != name and not _may_circle(name, other)
        }
        for name, found in statements.items()
    }
    before = len(left) + 1
    while len(left) < before:
        before = len(left)
        needed = set().union(*left.values())
        left = {name: there for name, those in left.items() if (there := those & left.keys()) and name in needed}
    yield from (f"{name}: in a circle of imports, through {', '.join(sorted(left[name]))}" for name in sorted(left))


def _may_circle(name: str, other: str) -> bool:
    package = name.partition(".")[0]
    return package in CIRCLES and package == other.partition(".")[0]


def projects(root: Path) -> Iterator[str]:
    """Versions that differ, dependencies that the core should not have, plugins that accept any core."""
    core = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    version = core["version"]
    if f'\n__version__ = "{version}"\n' not in (root / "slime_core/__init__.py").read_text("utf-8"):
        yield f"slime_core/__init__.py: __version__ is not {version}, the version of pyproject.toml"
    names = {requirement.split(">=")[0] for requirement in core["dependencies"]}
    for name in sorted(names ^ DEPENDENCIES):
        change = "requires another package" if name in names else "no longer requires"
        yield f"pyproject.toml: {change} {name}: the core depends on {', '.join(sorted(DEPENDENCIES))}"
    plugins = sorted(root.glob("plugins/*/pyproject.toml"))
    if not plugins:
        yield "plugins: holds no pyproject.toml"
    for path in plugins:
        plugin = tomllib.loads(path.read_text("utf-8"))["project"]
        place = path.relative_to(root)
        if plugin["version"] != version:
            yield f"{place}: version {plugin['version']} is not {version}, the core's"
        # The public index has an unrelated slime-core 0.0.1, which an unbounded requirement would accept.
        if not {SERIES, f"slime-core=={version}"} & set(plugin["dependencies"]):
            yield f"{place}: does not require {SERIES}"


def rooms(root: Path) -> Iterator[str]:
    """Modules and packages at the top of slime_core that CONTRIBUTING's map lacks, and the reverse."""
    page = (root / "CONTRIBUTING.md").read_text("utf-8")
    drawn = "".join(re.findall(r"^slime_core/\n((?:  .*\n)+)", page, re.MULTILINE))
    named = {name for line in drawn.splitlines() for name in re.findall(r"^  [\w. /]*?(?=  |$)", line)[0].split()}
    there = {path.name for path in (root / "slime_core").glob("*.py")} - {"__init__.py"}
    there |= {f"{path.parent.name}/" for path in (root / "slime_core").glob("*/__init__.py")}
    yield from (f"CONTRIBUTING.md: the map of slime_core lacks {name}" for name in sorted(there - named))
    yield from (f"CONTRIBUTING.md: the map names {name}, which slime_core lacks" for name in sorted(named - there))


def fragments(root: Path) -> Iterator[str]:
    """Changelog files that a release would not find by their names."""
    for path in sorted((root / "changelog").iterdir()):
        if not FRAGMENT.fullmatch(path.name):
            yield f"changelog/{path.name}: no fragment: expected +short-name.added.md (changed, fixed, removed)"


def slow_files(root: Path) -> Iterator[str]:
    """Faults in the list of test files that `make quick` leaves out."""
    listed = [line for line in (root / SLOW).read_text("utf-8").splitlines() if not line.startswith("#")]
    if listed != sorted(set(listed)):
        yield f"{SLOW}: sort the list and remove repeats"
    yield from (f"{SLOW}: {name} does not exist" for name in listed if not (root / name).is_file())


if __name__ == "__main__":
    sys.exit(main())
