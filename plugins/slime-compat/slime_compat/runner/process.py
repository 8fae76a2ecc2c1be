"""The process of a run, found again by the file that its start left; and what came of it.

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
"""Seconds between two looks at the log."""


@dataclass(frozen=True, slots=True)
class Note:
    """What is known of the last process of a run."""

    pid: int
    born: str
    """When it began, as the system counts; a number is given again to others."""
    status: int | None
    """What it ended with; None: it was not seen to end."""
    begin: int
    """Bytes of the log before it."""

    @property
    def runs(self) -> bool:
        """Whether it runs."""
        return self.status is None and bool(self.born) and _born(self.pid) == self.born

    def stop(self) -> bool:
        """Ask it to finish its step, save and end, as one Ctrl-C does; False where it runs no more."""
        if not self.runs:
            return False
        os.kill(self.pid, signal.SIGTERM)  # SIGINT is not heard by what began in the background of a shell
        return True


def read_note(path: Path) -> Note | None:
    """The last process; None where there was none."""
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
    """Run a command to its end; what it says goes to a log, and here.

    It has a session of its own: a terminal's Ctrl-C, and the interrupt of a notebook, which reaches this process alone,
    end it the same way.

    Args:
        command: what is run, without a shell.
        environment: all of it.
        log: what it says is appended there.
        note: where to find it, for other processes.

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
    # Once: finish the step, save and end. Again: end at once.
    process.send_signal(signal.SIGTERM if times == 1 else signal.SIGINT)


@contextmanager
def _counted_interrupts() -> Iterator[Sequence[int]]:
    """Presses of Ctrl-C, kept instead of raised: an exception could come anywhere, and leave a run unwatched."""
    pressed: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):  # None is not Python's to put back
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
    """It was stopped; its last step is saved, and resume() goes on."""
    FAILED = "failed"
    """Its process ended with an error, which logs() has."""


STATUS = {0: Outcome.DONE, 75: Outcome.STOPPED}
"""How `slime train` ends; anything else is a failure."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """A run, as its folder has it."""

    outcome: Outcome
    folder: Path
    rewards: Mapping[int, float]
    """Mean reward before normalisation, by rollout, from 0."""
    evaluations: Mapping[int, Mapping[str, float]]
    """Metrics of evaluations, as `eval/NAME`, by the number of rollouts before."""
    checkpoints: tuple[Path, ...]
    """The checkpoints that are kept, oldest first; each has the model in `hf/`."""
    report: Path | None
    """The report, if there is one."""

    @property
    def model(self) -> Path | None:
        """The newest model, in HF format."""
        models = [path / "hf" for path in self.checkpoints if (path / "hf").is_dir()]
        return models[-1] if models else None


def read_result(folder: Path, outcome: Outcome) -> TrainResult:
    """What a run folder says."""
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
