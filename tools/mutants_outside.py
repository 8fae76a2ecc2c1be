"""Mutants of what `mutmut run` leaves out: constants, class bodies, and functions below a decorator.

mutmut swaps functions for their mutants while a test runs, which works neither for a bound of a pydantic field nor for
a property. Here its operators change the whole file instead, and a forked process imports that and runs the tests:

    for mutant in mutants_of(Path("slime_core/train/settings.py")):
        status = exit_status(mutant, ["tests/train"])           # 0: it survived
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

import libcst as cst
import pytest
from mutmut.mutation.mutators import mutation_operators

OPTIONS = [
    *("-x", "-q", "--tb=no", "-o", "timeout=0", "-p", "no:cacheprovider", "--hypothesis-profile=mutants"),
    "--assert=plain",  # pytest would import slime_core, whose plugin it loads, past `get_code`
]
SECONDS = 300
"""After this long a mutant's tests are stopped: it loops, and is killed."""
TEXTS = {"description"}
"""Arguments that are texts for people."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file."""

    path: Path
    """Of the file, from the root of the project."""
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
    for node in _outside(module):
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                for changed in operator(node):
                    if _texts(changed) != _texts(node):
                        continue
                    source = module.deep_replace(node, changed).code
                    yield Mutant(path, *_difference(before, source), source)


def exit_status(mutant: Mutant | None, tests: Sequence[str]) -> int:
    """How pytest ends on these tests with the mutant in place, in a process of its own; negative where stopped."""
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        signal.alarm(SECONDS)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        if mutant is not None:
            _put_in_place(mutant)
        os._exit(int(pytest.main([*OPTIONS, *tests])))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


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


def _texts(node: cst.CSTNode) -> list[cst.BaseExpression]:
    """Texts for people among the arguments of a call."""
    arguments = node.args if isinstance(node, cst.Call) else ()
    return [each.value for each in arguments if each.keyword is not None and each.keyword.value in TEXTS]


def _is_plain(decorator: cst.Decorator) -> bool:
    """Whether mutmut looks below it."""
    return isinstance(decorator.decorator, cst.Name) and decorator.decorator.value in ("classmethod", "staticmethod")


def _difference(before: str, after: str) -> tuple[str, str]:
    """The lines in which two texts differ, from the first to the last."""
    one, other = before.splitlines(), after.splitlines()
    start = next(place for place, (was, now) in enumerate(zip(one, other, strict=False)) if was != now)
    stop = 0
    while stop < min(len(one), len(other)) - start - 1 and one[-1 - stop] == other[-1 - stop]:
        stop += 1
    return tuple(" ".join(line.strip() for line in text[start : len(text) - stop]) for text in (one, other))  # type: ignore[return-value]


def _put_in_place(mutant: Mutant) -> None:
    """Whoever imports the file from now on gets the mutant."""
    target, plain = mutant.path.resolve(), SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        if Path(self.path).resolve() == target:
            return compile(mutant.source, self.path, "exec", dont_inherit=True)
        return plain(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]
