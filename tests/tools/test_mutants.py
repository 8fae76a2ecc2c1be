"""Which mutants a sample has, and which tests each is run against."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("libcst", reason="`make mutants` installs it, and mutmut")
pytest.importorskip("mutmut")

TOOLS = Path(__file__).resolve().parents[2] / "tools"
SOURCE = '''"""A module."""

from typing import cast

LIMIT = 3
__all__ = ["count"]


def count(values, least=1):
    if len(values) > least:
        raise ValueError(f"{len(values) + 1} are too many")
    total = 0
    for value in zip(values, values, strict=True):
        total += cast("int", value[0])
    return total, "a text of words"
'''


@pytest.fixture(autouse=True)
def _tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A file to mutate."""
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    return path


def test_a_sample_repeats_and_a_smaller_one_is_part_of_it(module: Path) -> None:
    from mutants_outside import sample_of

    everything = sample_of(module, 20, 1000)
    assert sample_of(module, 20, 1000) == everything
    assert sample_of(module, 20, 5) == everything[:5]
    assert sample_of(module, 21, 5) != everything[:5]
    assert Counter(sample_of(module, 21, 1000)) == Counter(everything)
    assert all(each.source != SOURCE for each in everything)


def test_functions_and_constants_are_mutated_and_what_nobody_should_see_is_not(module: Path) -> None:
    from mutants_outside import sample_of

    made = {(each.line, each.now) for each in sample_of(module, 20, 1000)}
    assert {(5, "LIMIT = 4"), (9, "def count(values, least=2):"), (10, "if len(values) >= least:")} < made
    assert {(14, 'total = cast("int", value[0])'), (14, 'total -= cast("int", value[0])')} < made
    left = [now for line, now in made if line in (1, 3, 6, 11, 15) or "strict=False" in now or "cast(None" in now]
    assert left == []


def test_a_mutant_runs_against_what_runs_its_line_its_own_tests_first(module: Path) -> None:
    from mutants_outside import sample_of
    from mutants_record import Record
    from mutants_sample import BUDGET, LEAST, fastest_tests

    path = str(module)
    record = Record({"tests/test_far.py::a": 0.1, "tests/test_module.py::b": 0.5, "tests/test_far.py::c": 0.2})
    record.lines[path] = {10: ["tests/test_far.py::a", "tests/test_module.py::b"], 12: ["tests/test_far.py::c"]}
    at = {each.line: each for each in sample_of(module, 20, 1000)}
    assert fastest_tests(record, at[10]) == ["tests/test_module.py::b", "tests/test_far.py::a"]
    assert fastest_tests(record, at[12]) == ["tests/test_far.py::c"]
    assert fastest_tests(record, at[14]) == []
    everything = ["tests/test_module.py::b", "tests/test_far.py::a", "tests/test_far.py::c"]
    assert fastest_tests(record, at[5]) == fastest_tests(record, at[9]) == everything  # an import runs these lines
    slow = Record({f"tests/test_far.py::{number}": BUDGET for number in range(5)})
    slow.lines[path] = {10: list(slow.seconds)}
    assert len(fastest_tests(slow, at[10])) == LEAST


def test_processes_tell_how_they_ended_and_a_hanging_one_is_stopped() -> None:
    from mutants_processes import each_in_a_process, in_a_process

    def fail() -> int:
        raise SystemExit("nobody sees it")

    def hang() -> int:
        os.read(os.pipe()[0], 1)
        return 0

    assert in_a_process(lambda: 7, 60) == 7
    assert in_a_process(fail, 60) == 3
    jobs = [("one", lambda: 1), ("hangs", hang), ("two", lambda: 2)]
    found = dict(each_in_a_process(jobs, lambda key: 1 if key == "hangs" else 60))
    assert (found["one"], found["two"]) == (1, 2)
    assert found["hangs"] == -signal.SIGALRM
