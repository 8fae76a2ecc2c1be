"""Mutants of what `mutmut run` leaves out: constants, class bodies, and functions below a decorator. Or of whole files.

mutmut swaps functions for their mutants while a test runs, which works neither for a bound of a pydantic field nor for
a property. Here its operators change the whole file instead, and a forked process imports that and runs the tests:

    for mutant in mutants_of(Path("plugins/slime-train/slime_train/settings.py")):
        status = exit_status(mutant, ["tests/train"])           # 0: it survived
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

import libcst as cst
import pytest
from mutants_processes import in_a_process
from mutmut.mutation.mutators import mutation_operators

OPTIONS = [
    *("-x", "-q", "--tb=no", "-o", "timeout=0", "-p", "no:cacheprovider", "--hypothesis-profile=mutants"),
    "--assert=plain",  # pytest would import slime_core, whose plugin it loads, past `get_code`
]
SECONDS = 300
"""After this long a mutant's tests are stopped: it loops, and is killed."""
TEXTS = {"description"}
"""Arguments that are texts for people."""
NO_MATTER = {"strict"}
"""Arguments that a sample leaves as they are: `zip` with `strict` says what is so."""
CALLS = {"assert_never", "cast", "isinstance", "len"}
"""Calls that a sample leaves as they are: the first two do nothing, and mutmut leaves the others."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file."""

    path: Path
    """Of the file, from the root of the project."""
    line: int
    """The first that it changes."""
    was: str
    """The changed lines."""
    now: str
    """What they became."""
    source: str
    """The whole file, changed."""


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file that mutmut itself does not make."""
    before = path.read_text("utf-8")
    module = cst.parse_module(before)
    for node, changed in _changes(_outside(module), TEXTS):
        yield _mutant(path, before, module.deep_replace(node, changed).code)


def sample_of(path: Path, seed: int, count: int) -> list[Mutant]:
    """So many mutants of a whole file, or all, if it has fewer. Each is drawn by a digest of what it changes."""
    before = path.read_text("utf-8")
    module = cst.parse_module(before)

    def digest(change: tuple[cst.CSTNode, cst.CSTNode]) -> bytes:
        was, now = (module.code_for_node(each) for each in change)
        return sha256(f"{seed} {path} {was} {now}".encode()).digest()

    drawn = sorted(_changes(_everywhere(module), TEXTS | NO_MATTER), key=digest)[:count]
    return [_mutant(path, before, module.deep_replace(node, changed).code) for node, changed in drawn]


def exit_status(mutant: Mutant | None, tests: Sequence[str]) -> int:
    """How pytest ends on these tests with the mutant in place, in a process of its own; negative where stopped."""

    def work() -> int:
        if mutant is not None:
            put_in_place(mutant)
        return int(pytest.main([*OPTIONS, *tests]))

    return in_a_process(work, SECONDS)


def _changes(nodes: Iterator[cst.CSTNode], fixed: AbstractSet[str]) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
    """What mutmut's operators make of each node; arguments of these names are left as they are."""
    for node in nodes:
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                for changed in operator(node):
                    if _values(changed, fixed) == _values(node, fixed):
                        yield node, changed


def _outside(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Nodes of code that no function mutant covers; annotations, imports and texts are left as they are."""
    match node:
        case cst.FunctionDef() if all(_is_plain(each) for each in node.decorators):
            return
        case cst.Annotation() | cst.Decorator() | cst.Import() | cst.ImportFrom() | cst.Raise():
            return
        case cst.Arg(keyword=cst.Name(value=name)) if name in TEXTS:
            return
    yield node
    for child in node.children:
        yield from _outside(child)


def _everywhere(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Nodes of a file, but those that no test should see: also what `raise` says, and texts for people."""
    match node:
        case cst.Annotation() | cst.Decorator() | cst.Import() | cst.ImportFrom() | cst.Raise():
            return
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value="__all__"))]):
            return
        case cst.SimpleString(value=text) if " " in text:
            return
        case cst.Arg(keyword=cst.Name(value=name)) if name in TEXTS | NO_MATTER:
            return
        case cst.Call(func=cst.Name(value=name)) if name in CALLS:
            pass
        case _:
            yield node
    for child in node.children:
        yield from _everywhere(child)


def _values(node: cst.CSTNode, keywords: AbstractSet[str]) -> list[cst.BaseExpression]:
    """Those of arguments of a call that have these names."""
    arguments = node.args if isinstance(node, cst.Call) else ()
    return [each.value for each in arguments if each.keyword is not None and each.keyword.value in keywords]


def _is_plain(decorator: cst.Decorator) -> bool:
    """Whether mutmut looks below it."""
    return isinstance(decorator.decorator, cst.Name) and decorator.decorator.value in ("classmethod", "staticmethod")


def _mutant(path: Path, before: str, after: str) -> Mutant:
    """With the lines in which two texts of a file differ, from the first to the last."""
    one, other = before.splitlines(), after.splitlines()
    start = next(place for place, (was, now) in enumerate(zip(one, other, strict=False)) if was != now)
    stop = 0
    while stop < min(len(one), len(other)) - start - 1 and one[-1 - stop] == other[-1 - stop]:
        stop += 1
    was, now = (" ".join(line.strip() for line in text[start : len(text) - stop]) for text in (one, other))
    return Mutant(path, start + 1, was, now, after)


def put_in_place(mutant: Mutant) -> None:
    """Whoever imports the file from now on gets the mutant."""
    target, plain = mutant.path.resolve(), SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        if Path(self.path).resolve() == target:
            return compile(mutant.source, self.path, "exec", dont_inherit=True)
        return plain(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]
