"""The public API as text: every public name, with its signature, fields and methods.

The committed copy, docs/api.txt, turns a change of the API into a diff. Sources are parsed, not imported.

    .venv/bin/python tools/api_snapshot.py            print it
    .venv/bin/python tools/api_snapshot.py --check    exit 1 with the difference to docs/api.txt
    .venv/bin/python tools/api_snapshot.py --write    write docs/api.txt
"""

import argparse
import ast
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parent.parent
SNAPSHOT = ROOT / "docs" / "api.txt"
PUBLIC: dict[str, tuple[str, ...]] = {
    "slime_core": (),
    "slime_core.cli": (),
    "slime_core.config": ("Installed", "read_run_file", "refuse_unfit", "write_toml"),
    "slime_core.data": (
        "Finder",
        "HfTokenizer",
        "Renderer",
        "check_template_kwargs",
        "token_texts",
        "with_bos",
    ),
    "slime_core.errors": (),
    "slime_core.events": (),
    "slime_core.hookspecs": (),
    "slime_core.outputs": (),
    "slime_core.processes": (
        "CommandError",
        "CommandResult",
        "GroupOfWorkers",
        "GroupWorker",
        "Host",
        "Reply",
        "command",
        "find_project_files",
        "free_port",
        "make_reply",
        "own_cores",
    ),
    "slime_core.roles": (),
    "slime_core.rollout": ("MAIN", "execution_rewards", "executions", "main_of"),
    "slime_core.run": ("Session", "open_session"),
    "slime_core.sample": (),
    "slime_core.score": (),
    "slime_core.seeds": (),
    "slime_core.telemetry": ("MetricsLog", "MetricsRow", "run_folder_errors"),
    "slime_testing": (),
    "slime_testing.fake_engine": (),
    "slime_train": (),
    "slime_view.run_reader": (),
    "slime_view.samples": (),
    "slime_view.transcripts": (),
}
"""Public modules with their public names; without names, all that the module exports.

Everything else is private. docs/compatibility.md has the same list, and first-party plugins import nothing else.
"""


def main() -> int:
    """Print, check or write the snapshot, and return the exit status."""
    parser = argparse.ArgumentParser(description="the public API as text")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="compare with docs/api.txt")
    mode.add_argument("--write", action="store_true", help="write docs/api.txt")
    chosen = parser.parse_args()
    text = snapshot()
    if chosen.check:
        return check(text)
    if chosen.write:
        SNAPSHOT.write_text(text, "utf-8")
    else:
        print(text, end="")
    return 0


def check(text: str) -> int:
    """Print how `text` differs from the committed snapshot; 1 if it does."""
    committed = SNAPSHOT.read_text("utf-8") if SNAPSHOT.exists() else ""
    difference = difflib.unified_diff(
        committed.splitlines(), text.splitlines(), "docs/api.txt", "the sources", lineterm="", n=2
    )
    lines = list(difference)
    if lines:
        print("\n".join(lines))
        print("The public API changed. If that is wanted: `make api`, and a changelog fragment.")
    return 1 if lines else 0


def root_of(name: str) -> str:
    """The package that a module is in: `slime_core` of `slime_core.run`."""
    return name.partition(".")[0]


def folder_of(package: str, repository: Path = ROOT) -> Path:
    """The folder that holds a first-party package."""
    return repository if package == "slime_core" else repository / "plugins" / package.replace("_", "-")


def snapshot() -> str:
    """The whole text: first the public names of each module, then every public object once."""
    roots = sorted({root_of(name) for name in PUBLIC})
    loader = griffe.GriffeLoader(search_paths=[folder_of(root) for root in roots], allow_inspection=False)
    for root in roots:
        loader.load(root, try_relative_path=False)
    objects: dict[str, griffe.Object] = {}
    lines: list[str] = []
    for name, chosen in PUBLIC.items():
        module = loader.modules_collection[name]
        listed = exports_of(module)
        if not listed or not listed.issuperset(chosen):
            missing = ", ".join(sorted({*chosen} - listed)) or "none is there"
            raise SystemExit(f"{name}: a public module exports its public names; missing: {missing}")
        lines += ["", f"[{name}]"]
        for export in sorted(chosen or listed):
            exported = module.get_member(export)
            target = exported.final_target if exported.is_alias else exported
            objects[target.path] = target
            lines.append(export if target.path == f"{name}.{export}" else f"{export} = {target.path}")
    for _, target in sorted(objects.items()):
        lines += ["", *described(target)]
    return "\n".join(lines[1:]) + "\n"


def exports_of(module: griffe.Object | griffe.Alias) -> set[str]:
    """What a module lists in `__all__`; without a list, what it imports as `Sample as Sample` or by `import *`."""
    if module.exports is not None:
        return {str(item) for item in module.exports}
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.source)):
        if isinstance(node, ast.ImportFrom):
            found |= {each.name for each in node.names if each.asname == each.name}
            if node.module and node.names[0].name == "*":
                members = module.modules_collection[node.module].members.items()
                found |= {name for name, each in members if not (each.is_alias or name.startswith("_"))}
    return found


def described(item: griffe.Object) -> Iterator[str]:
    """The lines about one exported object."""
    if isinstance(item, griffe.Class):
        yield from class_lines(item)
    elif isinstance(item, griffe.Function):
        yield from function_lines(item, item.path)
    elif isinstance(item, griffe.Attribute):
        yield attribute_line(item, item.path)
    else:
        yield f"{item.kind.value} {item.path}"


def class_lines(item: griffe.Class) -> Iterator[str]:
    """The class, then its public members in alphabetical order; fields of a dataclass in their own."""
    yield from (f"@{decorator.value}" for decorator in item.decorators)
    bases = ", ".join(str(base) for base in item.bases)
    yield f"class {item.path}({bases})" if bases else f"class {item.path}"
    members = [member for member in item.members.values() if is_public(member)]
    if "dataclass" in item.labels:  # the fields below say the same
        members = [member for member in members if member.name != "__init__"]
    fields = [member for member in members if isinstance(member, griffe.Attribute)]
    yield from (f"    {attribute_line(field, field.name)}" for field in fields)
    for member in sorted(members, key=lambda member: member.name):
        if isinstance(member, griffe.Function):
            yield from (f"    {line}" for line in function_lines(member, member.name))


def is_public(member: griffe.Object | griffe.Alias) -> bool:
    """Whether a user may touch it: no underscore, or one of the methods Python calls by itself."""
    return not member.name.startswith("_") or member.name in {"__init__", "__call__", "__iter__", "__len__"}


def function_lines(item: griffe.Function, name: str) -> Iterator[str]:
    """The decorators and the signature of a function."""
    yield from (f"@{decorator.value}" for decorator in item.decorators)
    prefix = "async def" if "async" in item.labels else "def"
    yield f"{prefix} {item.signature(name=name)}"


def attribute_line(item: griffe.Attribute, name: str) -> str:
    """The attribute with its annotation and value; a property is one too."""
    on_class = item.annotation is not None and item.labels == {"class-attribute"}
    kind = "property " if "property" in item.labels else "classvar " if on_class else ""
    annotation = f": {item.annotation}" if item.annotation is not None else ""
    value = f" = {item.value}" if item.value is not None else ""
    return f"{kind}{name}{annotation}{value}"


if __name__ == "__main__":
    sys.exit(main())
