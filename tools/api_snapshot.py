"""The public API as text: every name in `__all__` of the public modules, with signature, fields and methods.

The committed copy, docs/api.txt, turns a change of the API into a diff. Sources are parsed, not imported.

    .venv/bin/python tools/api_snapshot.py            print it
    .venv/bin/python tools/api_snapshot.py --check    exit 1 with the difference to docs/api.txt
    .venv/bin/python tools/api_snapshot.py --write    write docs/api.txt
"""

import argparse
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parent.parent
SNAPSHOT = ROOT / "docs" / "api.txt"
PUBLIC = (
    "slime_core",
    "slime_core.cli",
    "slime_core.config.asking",
    "slime_core.data.rendering",
    "slime_core.data.tokenizer",
    "slime_core.errors",
    "slime_core.events",
    "slime_core.hookspecs",
    "slime_core.isolation.program",
    "slime_core.nofollow",
    "slime_core.outputs",
    "slime_core.processes",
    "slime_core.roles",
    "slime_core.rollout.executions",
    "slime_core.run.looking",
    "slime_core.run.open",
    "slime_core.run.serving",
    "slime_core.sample",
    "slime_core.score",
    "slime_core.seeds",
    "slime_core.telemetry.samples",
    "slime_core.telemetry.transcripts",
    "slime_core.terminal",
    "slime_core.testing",
    "slime_core.testing.fake_engine",
    "slime_core.train",
)
"""Everything else is private; docs/compatibility.md has the same list, and first-party plugins import from no other."""


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


def snapshot() -> str:
    """The whole text: first what each module exports, then every exported object once."""
    core = griffe.load("slime_core", search_paths=[ROOT], allow_inspection=False)
    objects: dict[str, griffe.Object] = {}
    lines: list[str] = []
    for name in PUBLIC:
        module = core if name == "slime_core" else core[name.removeprefix("slime_core.")]
        if not module.exports:
            raise SystemExit(f"{name}: a public module lists its names in __all__; none is there")
        lines += ["", f"[{name}]"]
        for export in sorted(str(item) for item in module.exports):
            exported = module.get_member(export)
            target = exported.final_target if exported.is_alias else exported
            objects[target.path] = target
            lines.append(export if target.path == f"{name}.{export}" else f"{export} = {target.path}")
    for _, target in sorted(objects.items()):
        lines += ["", *described(target)]
    return "\n".join(lines[1:]) + "\n"


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
