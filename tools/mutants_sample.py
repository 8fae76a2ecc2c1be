"""A seeded sample of the mutants of whole files, each run against the fastest tests that run its line.

Every draw is by a digest of the mutant itself: a changed line of a file leaves the rest of its sample as it is.

    for figures in sampled(["rollout/scheduler", "run/ledger"]):
        print(figures.file, figures.mutants, len(figures.survivors))
"""

import ast
import gc
import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
from mutants_outside import OPTIONS, Mutant, put_in_place, sample_of
from mutants_page import Figures, Survivor
from mutants_processes import each_in_a_process, in_a_process
from mutants_record import KEPT, Record, kept_of, recorded

SEED = 20
COUNT = 40
"""Mutants of a file; all where it has fewer."""
BUDGET, LEAST = 3.0, 3
"""Seconds that the tests of one mutant may take, as recorded; the first of them, so many, take what they take."""
WARM = (
    *("_hypothesis_pytestplugin", "_pytest.faulthandler", "_pytest.junitxml", "_pytest.unraisableexception", "pdb"),
    *("pyarrow.parquet", "pydantic", "pytest_timeout", "resource", "rich.console", "rich.live", "xdist.plugin"),
)
ALIVE = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def sampled(names: Sequence[str], count: int = COUNT) -> list[Figures]:
    """What came of the samples of these files, named by room and file; none of one that fails as it is."""
    record = recorded()
    _warm()
    made, lost, broken = Counter[str](), defaultdict[str, list[Survivor]](list), set[str]()
    for run, status in each_in_a_process(_runs(names, count, record), lambda run: 2 * run.limit + 10):
        survived = status in ALIVE
        if run.is_control and not survived:
            broken.add(run.name)
            print(f"{run.name}: fails as it is, and its mutants say nothing: {', '.join(run.tests)}", flush=True)
            continue
        run.kept.write_text(json.dumps(0 if survived else 1))
        if run.is_control:
            continue
        made[run.name] += 1
        if survived:
            lost[run.name].append(Survivor(f"{run.name}.py", run.mutant.was, run.mutant.now))
        said = f"{'survived' if survived else 'killed'}, {len(run.tests)} tests"
        print(f"{run.name}: {said}: {run.mutant.was}  ->  {run.mutant.now}", flush=True)
    return [Figures(f"{name}.py", made[name], lost[name]) for name in names if name not in broken]


def _runs(names: Sequence[str], count: int, record: Record) -> Iterator[tuple["_Run", Callable[[], int]]]:
    """A file as it is, which must survive, and its sample."""
    for name in names:
        path = Path(f"slime_core/{name}.py")
        drawn = sample_of(path, SEED, count)
        for mutant in [Mutant(each.path, each.line, "", "", path.read_text("utf-8")) for each in drawn[:1]] + drawn:
            tests = fastest_tests(record, mutant)
            kept = kept_of("\n".join([*tests, mutant.source]), _files(tests))
            limit = 30 + int(4 * sum(record.seconds[test] for test in tests))  # a busy machine is slower
            work = partial(json.loads, kept.read_text()) if kept.exists() else partial(_status, mutant, tests, limit)
            yield _Run(name, mutant, tests, limit, kept), work


@dataclass(frozen=True, slots=True)
class _Run:
    """Of tests against a mutant."""

    name: str
    mutant: Mutant
    tests: list[str]
    limit: int
    """Seconds after which it loops, and is killed."""
    kept: Path
    """Where what came of it is kept, while neither the code nor the tests change."""

    @property
    def is_control(self) -> bool:
        """Whether nothing was changed."""
        return self.mutant.was == self.mutant.now


def _warm() -> None:
    """Have what pytest imports, and nothing that a collection of garbage in a fork would look through."""
    for name in WARM:
        import_module(name)
    gc.collect()
    gc.freeze()


def fastest_tests(record: Record, mutant: Mutant) -> list[str]:
    """The fastest of those that run it, as many as the budget allows; first those of the file's own tests."""
    own = f"/test_{mutant.path.stem.lstrip('_')}.py::"
    lines = _lines(mutant)
    known = record.tests_of(mutant.path, lines)
    if lines[0] == 1:  # a test may read a constant and run nothing of the file
        known = list(dict.fromkeys([*(test for test in record.seconds if own in test), *known]))
    found, spent = list[str](), 0.0
    for test in sorted(known, key=lambda test: own not in test):
        spent += record.seconds[test]
        if len(found) >= LEAST and spent > BUDGET:
            break
        found.append(test)
    return found


def _lines(mutant: Mutant) -> Sequence[int]:
    """Where a test must have been to notice: the statement without its body; of what imports run, all around it."""
    tree = ast.parse(mutant.path.read_text("utf-8"))
    around = [each for each in ast.walk(tree) if isinstance(each, ast.stmt) and mutant.line in _span(each)]
    functions = [each for each in around if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    if not functions:
        return range(1, len(mutant.path.read_text("utf-8").splitlines()) + 1)
    inner = min(functions, key=lambda each: len(_span(each)))
    if mutant.line < inner.body[0].lineno:
        return _span(inner)
    statement = min(around, key=lambda each: len(_span(each)))
    body = getattr(statement, "body", [])
    return range(statement.lineno, max(statement.lineno + 1, body[0].lineno)) if body else _span(statement)


def _span(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _files(tests: Sequence[str]) -> list[Path]:
    """The files of these tests, each once."""
    return [Path(file) for file in dict.fromkeys(test.partition("::")[0] for test in tests)]


def _status(mutant: Mutant, tests: Sequence[str], limit: int) -> int:
    """How pytest ends on these tests, in their order, with the mutant in place; what fails must fail a second time."""
    if not tests:
        return pytest.ExitCode.NO_TESTS_COLLECTED
    first = in_a_process(partial(_run, mutant, tests), limit)
    return first if first in ALIVE else in_a_process(partial(_run, mutant, tests), limit)


def _run(mutant: Mutant, tests: Sequence[str]) -> int:
    put_in_place(mutant)
    if any("import gc\n" in path.read_text("utf-8") for path in _files(tests)):
        gc.unfreeze()  # they look at what is frozen
    temporary = KEPT / f"tmp-{os.getpid()}"
    files = map(str, _files(tests))
    status = int(pytest.main([*OPTIONS, f"--basetemp={temporary}", *files], plugins=[_Only(tests)]))
    shutil.rmtree(temporary, ignore_errors=True)
    return status


class _Only:
    """Runs these tests alone, in this order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.places = {test: place for place, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (each for each in items if each.nodeid in self.places), key=lambda each: self.places[each.nodeid]
        )
