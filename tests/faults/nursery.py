"""Nursery: a process that has imported everything, and forks a child for each run: a life costs no start-up.

    with Nursery(root) as nursery:
        life = nursery.live(folder, run_file, kill=After(0.01))

`python -m tests.faults.nursery` is that process: it reads jobs as lines of JSON and answers each with one.
"""

import asyncio
import contextlib
import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Self, TypeAlias

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 120.0
DONE, STOPPED, FAILED = 0, 75, 1


@dataclass(frozen=True)
class At:
    """Killed at a boundary (boundaries.py)."""

    name: str
    count: int


@dataclass(frozen=True)
class After:
    """Killed so many seconds after its birth, wherever it is."""

    seconds: float


Kill: TypeAlias = At | After | None


@dataclass(frozen=True)
class Life:
    """What became of one process."""

    code: int
    """Exit code; below 0, the signal that ended it."""
    seconds: float
    output: str

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Nursery:
    """The process, seen from a test."""

    def __init__(self, root: Path, number: int = 0) -> None:
        """What its children say goes to a file in `root`, of the nursery's number."""
        self._output = root / f"output-{number}.txt"

    def __enter__(self) -> Self:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.nursery"],
            cwd=REPOSITORY,
            env=environment | {"TOKENIZERS_PARALLELISM": "false", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.communicate(timeout=PATIENCE_S)

    def live(self, folder: Path, run_file: Path, kill: Kill = None) -> Life:
        """A process that runs `run_file` in `folder`, or continues there, until it ends or is killed."""
        return Life(**self._ask(folder, run_file, kill=None if kill is None else asdict(kill)))

    def boundaries(self, folder: Path, run_file: Path) -> dict[str, int]:
        """How often a whole life passes each boundary."""
        record = self._output.with_suffix(".json")
        life = Life(**self._ask(folder, run_file, record=str(record)))
        assert life.code == DONE, life.output
        counted: dict[str, int] = json.loads(record.read_text())
        return counted

    def _ask(self, folder: Path, run_file: Path, **about: object) -> dict[str, object]:
        assert self._process.stdin
        assert self._process.stdout
        job = {"folder": str(folder), "run_file": str(run_file), "output": str(self._output), **about}
        print(json.dumps(job), file=self._process.stdin, flush=True)
        answer: dict[str, object] = json.loads(self._process.stdout.readline())
        return answer


@contextlib.contextmanager
def nurseries(root: Path, count: int) -> Iterator["SimpleQueue[Nursery]"]:
    """Several, for stories that are told at once."""
    free = SimpleQueue[Nursery]()
    with contextlib.ExitStack() as stack:
        for number in range(count):
            free.put(stack.enter_context(Nursery(root, number)))
        yield free


def run_in(folder: Path, run_file: Path) -> int:
    """What `slime train` does, without the pictures of the report."""
    from slime_core.catalog import Catalog
    from slime_core.config import parse_config, read_run_file, resolve
    from slime_core.run import Outcome, RunFolder, run
    from slime_core.telemetry import make_display

    config = parse_config(read_run_file(run_file) | {"save": str(folder)})
    plan = resolve(config, Catalog.discover(config.plugins))

    with RunFolder.open(folder, plan.config.to_dict()) as opened, make_display(progress=False) as display:
        return DONE if asyncio.run(run(plan, opened, display)) is Outcome.DONE else STOPPED


def _child(job: dict[str, object]) -> int:
    """One life, in a forked process."""
    from tests.faults.boundaries import kill_at, watch

    output = os.open(str(job["output"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    faulthandler.enable()
    seen: Counter[str] = Counter()
    kill = job.get("kill")
    if job.get("record"):
        watch(lambda name, count: seen.update([name]))
    elif isinstance(kill, dict) and "name" in kill:
        watch(kill_at(str(kill["name"]), int(kill["count"])))
    try:
        code = run_in(Path(str(job["folder"])), Path(str(job["run_file"])))
    except BaseException:
        traceback.print_exc()
        code = FAILED
    sys.setprofile(None)
    if job.get("record"):
        Path(str(job["record"])).write_text(json.dumps(seen))
    sys.stdout.flush()
    return code


def _parent(job: dict[str, object]) -> dict[str, object]:
    started = time.monotonic()
    child = os.fork()
    if not child:
        code = FAILED
        with contextlib.suppress(BaseException):
            code = _child(job)
        os._exit(code)
    kill = job.get("kill")
    if isinstance(kill, dict) and "seconds" in kill:
        time.sleep(float(kill["seconds"]))
        os.kill(child, signal.SIGKILL)
    status = _wait(child)
    seconds = time.monotonic() - started
    said = Path(str(job["output"])).read_text(errors="replace") if Path(str(job["output"])).exists() else ""
    return {"code": os.waitstatus_to_exitcode(status), "seconds": seconds, "output": said}


def _wait(child: int) -> int:
    """Its status; one that hangs prints its stack, and is aborted."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.001)
    os.kill(child, signal.SIGABRT)
    return os.waitpid(child, 0)[1]


def _warm_up() -> None:
    """Import all that a run imports, by a run."""
    import tempfile

    from tests.faults.boundaries import watch
    from tests.faults.toy import write_project

    assert watch
    for buffer in ("fifo", "priority"):
        with tempfile.TemporaryDirectory() as root, contextlib.redirect_stdout(sys.stderr):
            run_in(Path(root) / "run", write_project(Path(root), buffer={"use": buffer}))


def main() -> None:
    """Answer jobs until there are no more."""
    with open(os.devnull, "w") as nothing, contextlib.redirect_stderr(nothing):  # noqa: PTH123
        _warm_up()
    for line in sys.stdin:
        print(json.dumps(_parent(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
