"""The process of a run, which other processes find by its process file, and the run's result.

Example:

    run_logged(command, environment, log, state)       # returns when the run has ended
    read_process(state).stop()                         # from another process, during the run
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

POLL_S = 0.2
"""Seconds between two reads of the log."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """State of a run's last process."""

    pid: int
    born: str
    """Its start time in the OS's units, which identifies it, because the OS reuses process ids."""
    status: int | None
    """Its exit status; None while it runs, or if its end was not observed."""
    begin: int
    """Size of the log when it started, in bytes."""

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self.status is None and bool(self.born) and _start_time(self.pid) == self.born

    def stop(self) -> bool:
        """Request that the run finish its step, save and end, like one Ctrl-C; False if it has ended."""
        if not self.is_running:
            return False
        os.kill(self.pid, signal.SIGTERM)  # a shell's background jobs ignore SIGINT
        return True


def read_process(path: Path) -> ProcessState | None:
    """The run's last process; None if it never started."""
    try:
        return ProcessState(**json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return None


def run_logged(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    state: Path,
) -> int:
    """Run a command to its end; its output goes to a log and to this process's output.

    The command runs in a separate session, so that Ctrl-C in a terminal and the interrupt of a notebook, which reaches
    only this process, end it in the same way.

    Args:
        command: the command, run without a shell.
        environment: its complete environment.
        log: file to append its output to.
        state: file by which other processes find it.

    Returns:
        The exit status of the command.
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
        _write(state, ProcessState(process.pid, _start_time(process.pid), None, begin))
        forwarded = 0
        with log.open("rb") as reader:
            reader.seek(begin)
            while process.poll() is None:
                _show(reader.read())
                time.sleep(POLL_S)
                while forwarded < len(pressed):
                    forwarded += 1
                    _request_stop(process, forwarded)
            _show(reader.read())
        _write(state, ProcessState(process.pid, "", process.returncode, begin))
    return process.returncode


def _request_stop(process: "subprocess.Popen[bytes]", times: int) -> None:
    # After the first signal a run finishes its step, saves and ends; after the second it ends at once.
    process.send_signal(signal.SIGTERM if times == 1 else signal.SIGINT)


@contextmanager
def _counted_interrupts() -> Iterator[Sequence[int]]:
    """Record Ctrl-C instead of raising, because an exception could leave the run without its parent."""
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


def _show(output: bytes) -> None:
    sys.stdout.write(output.decode("utf-8", "replace"))
    sys.stdout.flush()


def _write(path: Path, state: ProcessState) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(dataclasses.asdict(state)), "utf-8")
    draft.replace(path)


def _start_time(pid: int) -> str:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return listed.stdout.strip()
    return "" if fields[0] == "Z" else fields[19]


class Outcome(enum.Enum):
    """State of a run."""

    NEW = "new"
    RUNNING = "running"
    DONE = "done"
    """All rollouts are trained."""
    STOPPED = "stopped"
    """The run was stopped and saved; resume() continues it."""
    FAILED = "failed"
    """The process ended with an error, which is in logs()."""


STATUS = {0: Outcome.DONE, 75: Outcome.STOPPED}
"""Outcomes by exit code of `slime train`; other codes are failures."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """A run's results, read from its folder."""

    outcome: Outcome
    folder: Path
    rewards: Mapping[int, float]
    """Mean reward before normalization, by rollout, from 0."""
    evaluations: Mapping[int, Mapping[str, float]]
    """Metrics of evaluations, as `eval/NAME`, by the number of rollouts before the evaluation."""
    checkpoints: tuple[Path, ...]
    """The existing checkpoints, oldest first; each has the model in `hf/`."""
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
