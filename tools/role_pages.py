"""The reference pages of roles and hooks, written from the sources: exact signatures, every field, dates and promises.

A page a role under docs/reference/roles/, the table of all in roles.md, every hook and its event in hooks.md.

    .venv/bin/python tools/role_pages.py            exit 1 with the names of the pages that differ
    .venv/bin/python tools/role_pages.py --write    write them
"""

import argparse
import dataclasses
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import griffe

from slime_core.events import Event, RankEvent
from slime_core.hookspecs import (
    HOOK_OF_EVENT,
    HOOK_OF_RANK_EVENT,
    NAMES_HOOK,
    PROVIDER_OF_ROLE,
)
from slime_core.roles import SPECS, Spec
from slime_testing import CONTRACTS

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
EXAMPLES = Path(__file__).resolve().with_name("role_examples.md")
KINDS = {
    "I/O, in the driver, `async def`": (
        "data_source",
        "generator",
        "reward",
        "group_reward",
        "engine",
        "transport",
        "launcher",
        "tracker",
    ),
    "decision, in the driver, a plain function": (
        "group_filter",
        "sample_filter",
        "buffer",
        "buffer_filter",
        "reward_shaper",
        "batch_transform",
    ),
    "tensors, in the trainer's ranks, a plain function": ("advantage", "loss", "correction", "trainer"),
    "`slime doctor`": ("check",),
}
KIND_OF_ROLE = {role: kind for kind, roles in KINDS.items() for role in roles}
_STARS = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
_TITLE = re.compile(r"(?<=\n\n)(?:# .*\n)+(?=\n)")
_EXAMPLE = re.compile(r"^## (\w+)\n\n((?:(?!## ).*\n)+)", re.MULTILINE)
EXAMPLE_OF_ROLE: dict[str, str] = dict(_EXAMPLE.findall(EXAMPLES.read_text("utf-8")))
CORE = griffe.load("slime_core", search_paths=[ROOT], allow_inspection=False)


def main() -> int:
    """Check or write the pages, and return the exit status."""
    parser = argparse.ArgumentParser(description="the reference pages of roles and hooks")
    parser.add_argument("--write", action="store_true", help="write them")
    write = parser.parse_args().write
    stale = []
    for path, text in pages().items():
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(str(path.relative_to(ROOT)))
            if write:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
    if stale and not write:
        print(f"not as the sources say: {', '.join(stale)}\nRun `make reference`.")
    return 1 if stale and not write else 0


def pages() -> dict[Path, str]:
    """Every page by its path."""
    made = {REFERENCE / "roles" / f"{role}.md": role_page(spec) for role, spec in SPECS.items()}
    made[REFERENCE / "roles.md"] = roles_page()
    made[REFERENCE / "hooks.md"] = hooks_page()
    return made


def roles_page() -> str:
    """All roles in a table."""
    rows = [
        f"| [{role}](roles/{role}.md) | `{PROVIDER_OF_ROLE[role]}` | {KIND_OF_ROLE[role]} | {_several(spec)} "
        f"| {spec.added} | {spec.stability.value} |"
        for role, spec in SPECS.items()
    ]
    return "\n".join(
        [
            "# Roles",
            "",
            "What a plugin can be, in the order in which a sample meets them. Every role is a protocol and the frozen",
            "spec that offers it; a run file's table of the same name selects. *Stable* and *provisional*: see",
            "[What may change](../compatibility.md).",
            "",
            "| role | hook | kind | several at once | added | promise |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            *_class(
                CORE["roles.spec.Spec"], "Fields of every spec. A role's page lists the fields that its spec adds."
            ),
        ]
    )


def _several(spec: type[Spec[object]]) -> str:
    return ("all that are installed" if not spec.selectable else "yes") if spec.many else "no"


def role_page(spec: type[Spec[object]]) -> str:
    """One role: the classes of its part of a module, with the spec's inherited fields."""
    role = spec.role
    module = CORE[spec.__module__.removeprefix("slime_core.")]
    part = Part.of(module, module[spec.__name__].lineno or 0)
    for other in SPECS.values():
        if other is not spec and other.__module__ == spec.__module__ and module[other.__name__].lineno in part.lines:
            raise ValueError(f"{spec.__module__}: write `# Title` alone between {spec.__name__} and {other.__name__}")
    lines = [f"# {role.replace('_', ' ').capitalize()}", "", *_introduction(spec, module, part), *_facts(spec)]
    lines += [f"## `{spec.__name__}`", "", *_prose(module[spec.__name__]), *_fields(spec)]
    for name, member in module.members.items():
        shown = isinstance(member, griffe.Class) and name != spec.__name__ and not name.startswith("_")
        if shown and (member.lineno or 0) in part.lines:
            lines += _class(member)
    return "\n".join(lines).rstrip() + "\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A part of a module: a comment that stands alone opens each. A module without such comments is one part."""

    title: str
    """The comment; empty without one."""
    lines: range
    """The numbers of its lines."""

    @classmethod
    def of(cls, module: griffe.Module, line: int) -> "Part":
        """The part that holds a line of the module."""
        source = module.source
        found = [
            (source.count("\n", 0, match.start()) + 1, " ".join(match[0].replace("# ", "").split()))
            for match in _TITLE.finditer(source)
        ]
        bounds = [*found, (source.count("\n") + 2, "")]
        for (start, title), (stop, _) in itertools.pairwise([(1, ""), *bounds]):
            if start <= line < stop:
                return cls(title, range(start, stop))
        raise ValueError(f"{module.path} has no line {line}")


def _introduction(spec: type[Spec[object]], module: griffe.Module, part: Part) -> Iterator[str]:
    """The module's docstring if the module holds one role; otherwise the title of the part, and its example."""
    if sum(each.__module__ == spec.__module__ for each in SPECS.values()) == 1:
        yield from _prose(module)
    else:
        yield from (part.title, "")
        if spec.role in EXAMPLE_OF_ROLE:
            yield from (EXAMPLE_OF_ROLE[spec.role].rstrip(), "")


def _facts(spec: type[Spec[object]]) -> Iterator[str]:
    role = spec.role
    if spec.selectable:
        flag = f"--{role.replace('_', '-')}"
        yield f'Select one with `[{role}] use = "NAME"` or `{flag} NAME`; its settings are in `[{role}.NAME]`.'
    if role in CONTRACTS:
        contract = CONTRACTS[role].__name__
        yield f"The contract is [`{contract}`](../checks.md#{contract.lower()})."
    yield from ("See [Roles](../roles.md) for hook, kind and promise, and for the fields of every spec.", "")


def _fields(spec: type[Spec[object]]) -> Iterator[str]:
    """The fields that a spec adds to those of `Spec`, wherever they are declared, with their defaults."""
    bases = [base for base in spec.__mro__ if issubclass(base, Spec) and base is not Spec]
    rows = [
        row
        for base in reversed(bases)
        for name, row in _attribute_rows(CORE[base.__module__.removeprefix("slime_core.")][base.__name__])
        if name in spec.__dataclass_fields__
    ]
    if rows:
        yield from ("| field | |", "|---|---|", *rows, "")


def _class(member: griffe.Class, text: str = "") -> Iterator[str]:
    yield from (f"## `{member.name}`", "", *((text, "") if text else _prose(member)))
    rows = [row for _, row in _attribute_rows(member)]
    if rows:
        yield from ("| field | |", "|---|---|", *rows, "")
    for method in member.functions.values():
        if method.name in ("__call__", "__len__") or not method.name.startswith("_"):
            yield from (f"### `{signature(member.name, method)}`", "", *_prose(method))


def _attribute_rows(member: griffe.Class) -> Iterator[tuple[str, str]]:
    """The documented attributes that a class itself declares: name and table row."""
    for name, attribute in member.members.items():
        if isinstance(attribute, griffe.Attribute) and attribute.docstring is not None:
            kind = f": {attribute.annotation}".replace('"', "") if attribute.annotation else ""
            value = str(attribute.value or "")
            default = f" = {value}" if value and not value.startswith(("field(", "lambda")) else ""
            shown = f"{name}{kind}{default}".replace("|", "\\|")
            told = " ".join(attribute.docstring.value.split()).replace("|", "\\|")
            yield name, f"| `{shown}` | {told} |"


def signature(owner: str, method: griffe.Function) -> str:
    """A method as it is called: `async Reward.__call__(sample: Sample, ctx: RewardContext) -> Verdict`."""
    parameters = []
    for each in method.parameters:
        if each.name in ("self", "cls"):
            continue
        star = _STARS.get(each.kind, "") if each.kind else ""
        default = f" = {each.default}" if each.default is not None and not star else ""
        parameters.append(f"{star}{each.name}{f': {each.annotation}' if each.annotation else ''}{default}")
    before = "async " if "async" in method.labels else ""
    after = f" -> {method.returns}" if method.returns else ""
    return f"{before}{owner}.{method.name}({', '.join(parameters)}){after}".replace('"', "")


def _prose(documented: griffe.Object) -> Iterator[str]:
    """A docstring as Markdown: its indented example is a code block, `Raises:` a list."""
    text = documented.docstring.value if documented.docstring else ""
    head, marker, example = text.partition("\n\nExample:\n\n")
    head, raises, errors = head.partition("\n\nRaises:\n")
    yield from (head.strip(), "")
    if raises:
        yield from (f"Raises {' '.join(errors.split())}", "")
    if marker:
        yield from ("```python", *textwrap.dedent(example).strip().splitlines(), "```", "")


def hooks_page() -> str:
    """Every hook with its exact signature, and the event that it is told."""
    lines = ["# Hooks", "", *_prose(CORE["hookspecs"])]
    for title, base, hooks in (("Run hooks", Event, HOOK_OF_EVENT), ("Rank hooks", RankEvent, HOOK_OF_RANK_EVENT)):
        lines += [f"## {title}", "", *_event(CORE[f"events.{base.__name__}"])]
        for event, hook in hooks.items():
            lines += [f"### `{hook}(event: {event.__name__})`", "", *_event(CORE[f"events.{event.__name__}"])]
    lines += ["## Provider hooks", "", f"[Roles](roles.md) lists them; `{NAMES_HOOK}` yields `ForeignName`.", ""]
    lines += _class(CORE["roles.watching.ForeignName"])
    return "\n".join(lines).rstrip() + "\n"


def _event(member: griffe.Class) -> Iterator[str]:
    yield from (*_prose(member), "| field | |", "|---|---|", *(row for _, row in _attribute_rows(member)), "")


if __name__ == "__main__":
    sys.exit(main())
