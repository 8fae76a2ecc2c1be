"""Which tests run which line, and how long each takes: a mutant is then run against those that can notice it.

What was recorded of a file of tests is kept in .cache/mutants, and used while neither it nor the code changes:

    record = recorded()
    record.tests_of(Path("slime_core/rollout/scheduler.py"), 57)   # node ids, fastest first
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

import pytest
from coverage import Coverage
from mutants_outside import OPTIONS
from mutants_processes import each_in_a_process

ROOMS = ("buffer", "rollout", "run")
"""What is sampled. Its tests are in the rooms of the same name."""
ELSEWHERE = ("tests/cli/test_ledger.py", "tests/plugin_contracts/test_engine_pool.py")
"""Other files of tests about these rooms."""
KEPT = Path(".cache/mutants")
SECONDS = 600
"""For the tests of one file."""


@dataclass(frozen=True, slots=True)
class Record:
    """Of all files of tests together."""

    seconds: dict[str, float] = field(default_factory=dict)
    """How long each test takes, by its node id."""
    lines: dict[str, dict[int, list[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    """Tests that run a line, by file and line. What only an import runs has none."""

    def tests_of(self, path: Path, lines: Sequence[int]) -> list[str]:
        """Tests that run one of these lines of a file."""
        known = self.lines[str(path)]
        return sorted({test for line in lines for test in known.get(line, ())}, key=self.seconds.__getitem__)


def recorded() -> Record:
    """By running all tests of the rooms once, but those whose record is kept. They must pass."""
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = {test: kept_of("", [test]) for test in _tests()}
    jobs = ((test, partial(_record, test, path)) for test, path in kept.items() if not path.exists())
    for test, status in each_in_a_process(jobs, lambda _: SECONDS):
        print(f"recorded {test}", flush=True)
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise SystemExit(f"{test} fails as it is, with status {status}: mutants say nothing")
    record = Record()
    for path in kept.values():
        found = json.loads(path.read_text("utf-8"))
        record.seconds.update(found["seconds"])
        for file, lines in found["lines"].items():
            for line, tests in lines.items():
                record.lines[file][int(line)] += tests
    return record


def kept_of(text: str, tests: Sequence[Path]) -> Path:
    """Where what follows from this text, the sampled code and these files of tests is kept."""
    digest = sha256(_common() + text.encode())
    for path in tests:
        digest.update(bytes(path) + b" " + path.read_bytes())
    return KEPT / f"{digest.hexdigest()}.json"


@cache
def _common() -> bytes:
    paths = sorted([*_code(), *Path("tests").rglob("conftest.py")])
    return b"".join(sha256(bytes(path) + b" " + path.read_bytes()).digest() for path in paths)


def code_of(room: str) -> Iterator[Path]:
    """The files of a room: a module of slime_core, or a package."""
    module = Path("slime_core", f"{room}.py")
    yield from [module] if module.exists() else Path("slime_core", room).rglob("*.py")


def _code() -> Iterator[Path]:
    return (path for room in ROOMS for path in code_of(room))


def _tests() -> list[Path]:
    found = (path for room in ROOMS for path in Path("tests", room).rglob("test_*.py"))
    return sorted([*found, *map(Path, ELSEWHERE)])


def _record(test: Path, kept: Path) -> int:
    """Run a file of tests and keep what is recorded; pytest's exit status."""
    coverage = Coverage(data_file=None, config_file=False, include=[f"{path.resolve()}" for path in _code()])
    recorder = _Recorder(coverage)
    coverage.start()
    temporary = KEPT / f"tmp-{os.getpid()}"
    status = int(pytest.main([*OPTIONS, f"--basetemp={temporary}", str(test)], plugins=[recorder]))
    coverage.stop()
    data, here = coverage.get_data(), Path.cwd()
    lines: Mapping[str, Mapping[int, Sequence[str]]] = {
        str(Path(file).relative_to(here)): {
            line: [each for each in tests if each] for line, tests in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        kept.write_text(json.dumps({"seconds": recorder.seconds, "lines": lines}), "utf-8")
    return status


class _Recorder:
    """Tells coverage which test runs."""

    def __init__(self, coverage: Coverage) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self.coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
