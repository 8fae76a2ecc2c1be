"""The process of a run, which other processes find by its note file, and the run's result.

Example:

    run_logged(command, environment, log, note)        # to its end
    read_note(note).stop()                             # from another process, meanwhile
    read_result(folder, Outcome.DONE).rewards          # {0: 0.12, 1: 0.31}
"""

import dataclasses
import enum
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slime_core.telemetry import MetricsLog

LOOK_S = 0.2
"""Seconds between two reads of the log."""


@dataclass(frozen=True, slots=True)
class Note:
    """State of a run's last process."""

    pid: int
    born: str
    """Its start time as the OS counts it, because the OS reuses process ids."""
    status: int | None
    """Its exit status; None if its end was not observed."""
    begin: int
    """Size of the log when it began, in bytes."""

    @property
    def runs(self) -> bool:
        """Whether it runs."""
        return self.status is None and bool(self.born) and _born(self.pid) == self.born

    def stop(self) -> bool:
        """Request that it finish its step, save and end, like one Ctrl-C; False if it has ended."""
        if not self.runs:
            return False
        os.kill(self.pid, signal.SIGTERM)  # a shell's background jobs ignore SIGINT
        return True


def read_note(path: Path) -> Note | None:
    """The last process; None without one."""
    try:
        return Note(**json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return None


def run_logged(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    note: Path,
) -> int:
    """Run a command to its end; its output goes to a log and to this process's output.

    It runs in a separate session, so that a terminal's Ctrl-C and a notebook's interrupt, which reaches this process
    alone, end it the same way.

    Args:
        command: the command, run without a shell.
        environment: its complete environment.
        log: file to append its output to.
        note: file by which other processes find it.

    Returns:
        Its exit status.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with _counted_interrupts() as pressed:
        with log.open("ab") as output:
            begin = output.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
        _write(note, Note(process.pid, _born(process.pid), None, begin))
        told = 0
        with log.open("rb") as said:
            said.seek(begin)
            while process.poll() is None:
                _show(said.read())
                time.sleep(LOOK_S)
                while told < len(pressed):
                    told += 1
                    _ask_to_end(process, told)
            _show(said.read())
        _write(note, Note(process.pid, "", process.returncode, begin))
    return process.returncode


def _ask_to_end(process: "subprocess.Popen[bytes]", times: int) -> None:
    # The first signal: finish the step, save and end. The second: end at once.
    process.send_signal(signal.SIGTERM if times == 1 else signal.SIGINT)


@contextmanager
def _counted_interrupts() -> Iterator[Sequence[int]]:
    """Record Ctrl-C instead of raising: an exception at an arbitrary point could leave the run unwatched."""
    pressed: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):  # None: a foreign handler
        yield pressed
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _show(said: bytes) -> None:
    sys.stdout.write(said.decode("utf-8", "replace"))
    sys.stdout.flush()


def _write(path: Path, note: Note) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(dataclasses.asdict(note)), "utf-8")
    draft.replace(path)


def _born(pid: int) -> str:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        told = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return told.stdout.strip()
    return "" if fields[0] == "Z" else fields[19]


class Outcome(enum.Enum):
    """How a run stands."""

    NEW = "new"
    RUNNING = "running"
    DONE = "done"
    """All rollouts are trained."""
    STOPPED = "stopped"
    """It was stopped; its last step is saved, and resume() continues it."""
    FAILED = "failed"
    """Its process ended with an error; logs() returns it."""


STATUS = {0: Outcome.DONE, 75: Outcome.STOPPED}
"""How `slime train` ends; anything else is a failure."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """A run's results, read from its folder."""

    outcome: Outcome
    folder: Path
    rewards: Mapping[int, float]
    """Mean reward before normalisation, by rollout, from 0."""
    evaluations: Mapping[int, Mapping[str, float]]
    """Metrics of evaluations, as `eval/NAME`, by the number of rollouts before each."""
    checkpoints: tuple[Path, ...]
    """The kept checkpoints, oldest first; each has the model in `hf/`."""
    report: Path | None
    """The report, if there is one."""

    @property
    def model(self) -> Path | None:
        """The newest model, in HF format."""
        models = [path / "hf" for path in self.checkpoints if (path / "hf").is_dir()]
        return models[-1] if models else None


def read_result(folder: Path, outcome: Outcome) -> TrainResult:
    """The results in a run folder."""
    rewards: dict[int, float] = {}
    evaluations: dict[int, dict[str, float]] = {}
    for row in MetricsLog.read(folder / "metrics.jsonl"):
        if "rollout/raw_reward" in row.metrics:
            rewards[row.rollout_id] = row.metrics["rollout/raw_reward"]
        if found := {name: value for name, value in row.metrics.items() if name.startswith("eval/")}:
            evaluations[row.rollout_id] = found
    report = folder / "report" / "report.md"
    checkpoints = tuple(sorted((folder / "checkpoints").glob("rollout_*")))
    return TrainResult(outcome, folder, rewards, evaluations, checkpoints, report if report.is_file() else None)
