"""A small real run, started through the command line, to be hurt and continued."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from slime_core.config import write_toml
from slime_core.run import newest_checkpoint
from slime_core.sample import Json
from slime_core.telemetry import MetricsLog, strip_timing
from slime_local.demo.tasks import problems
from tests.faults import figures

MARK = "SLIME_FAULT_TEST"
POLL_S = 0.001
PATIENCE_S = 120.0
ORPHANS_END_S = 30.0
"""A server process that is importing torch sees the end of its driver afterwards."""
NUM_ROLLOUT = 20
REWARD = '''
import asyncio
import os

from slime_core import RewardContext, Sample, Score


async def digits(sample: Sample, ctx: RewardContext) -> Score:
    """Share of digits in the response: an untrained model gets some, and learns to get more."""
    await asyncio.sleep(float(os.environ.get("REWARD_SECONDS", "0")))
    return Score(sum(letter.isdigit() for letter in sample.response) / max(1, len(sample.response)))
'''


@dataclass(frozen=True)
class Command:
    """A started `slime ...`."""

    process: "subprocess.Popen[str]"
    mark: str
    """An entry of the environment that all its processes have."""
    log: Path

    def wait(self, within_s: float = PATIENCE_S) -> tuple[int, str]:
        """Exit code and all output."""
        code = self.process.wait(within_s)
        return code, self.log.read_text()

    def wait_until(self, happened: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        """Wait for something while the command runs."""
        end = time.monotonic() + within_s
        while not happened():
            assert self.process.poll() is None, f"it ended first:\n{self.log.read_text()}"
            assert time.monotonic() < end, f"it never happened:\n{self.log.read_text()}"
            time.sleep(POLL_S)

    def signal_driver(self, number: signal.Signals) -> None:
        """What `kill` does."""
        self.process.send_signal(number)

    def signal_all(self, number: signal.Signals) -> None:
        """What Ctrl-C in a terminal does: every process of the group gets it."""
        os.killpg(self.process.pid, number)

    def living(self) -> list[int]:
        """Its processes that are not over, whatever session they moved to."""
        return [pid for pid in processes() if self.mark.encode() in _read(pid, "environ")]


def require_gone(*commands: Command) -> None:
    """Wait until no process of any of the commands is left."""
    end = time.monotonic() + ORPHANS_END_S
    while left := [pid for command in commands for pid in command.living()]:
        assert time.monotonic() < end, f"processes {left} outlived their driver by {ORPHANS_END_S} s"
        time.sleep(0.05)


def processes() -> list[int]:
    return [int(each.name) for each in Path("/proc").glob("[0-9]*")]


def running(*parts: str) -> list[int]:
    """Processes with each of these in the command line or in the environment."""
    return [
        pid
        for pid in processes()
        if all(part.encode() in b"\0".join((*_read(pid, "cmdline"), *_read(pid, "environ"))) for part in parts)
    ]


def output_of(pid: int) -> Path | None:
    """The file that a process prints to."""
    try:
        return Path(f"/proc/{pid}/fd/1").readlink()
    except OSError:
        return None


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _read(pid: int, name: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")
    except OSError:
        return []  # it ended meanwhile


@dataclass(frozen=True)
class Folder:
    """A run folder, looked at from outside."""

    path: Path

    def rows_since(self, moment: float) -> int:
        """Metrics rows written since then; a killed run's later rows stay until the next one truncates them."""
        return sum(row.time >= moment for row in MetricsLog.read(self.path / "metrics.jsonl"))

    def is_saving(self) -> bool:
        """Whether a checkpoint is being written."""
        return any((self.path / "checkpoints").glob(".rollout_*.tmp"))

    def newest(self) -> Path:
        """Its newest whole checkpoint."""
        checkpoint = newest_checkpoint(self.path / "checkpoints", print)
        assert checkpoint is not None
        return checkpoint.path

    def metrics(self) -> list[dict[str, Json]]:
        """All metrics without what a clock says."""
        return [strip_timing(row) for row in MetricsLog.read(self.path / "metrics.jsonl")]

    def require_same(self, other: "Folder") -> None:
        """Metrics, accounts, samples, weights and optimizer are equal; nothing half-written is left."""
        assert self.metrics() == other.metrics()
        found, expected = self.results(), other.results()
        assert found.keys() == expected.keys()
        assert [name for name in expected if found[name] != expected[name]] == []
        assert not (self.path / "scratch").exists()
        assert not self.is_saving()

    def results(self) -> dict[str, bytes]:
        """All files that a run of the same seed must have, byte for byte."""
        files = [self.path / "ledger.jsonl", *self.path.glob("samples/*"), *self.newest().glob("*/*")]
        return {file.relative_to(self.path).as_posix(): file.read_bytes() for file in files}


@dataclass(frozen=True)
class Scene:
    """Everything that a run needs, and where runs go."""

    root: Path
    run_file: Path

    def folder(self, name: str) -> Folder:
        """Where the run of that name is."""
        return Folder(self.root / name)

    def copy(self, run: Folder, name: str) -> Folder:
        """A run folder under another name."""
        shutil.copytree(run.path, self.root / name)
        return self.folder(name)

    def start(self, *arguments: str, **environment: str) -> Command:
        """Start `slime ARGUMENTS`."""
        number = time.monotonic_ns()
        log = self.root / f"output-{number}.txt"
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "slime_core", *arguments, "--no-progress"],
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                env=os.environ | environment | {MARK: str(number)},
                start_new_session=True,
            )
        return Command(process, f"{MARK}={number}", log)

    def train(self, name: str, *flags: str, **environment: str) -> Command:
        """Start, or continue, the run of that name."""
        return self.start("train", str(self.run_file), "--save", str(self.folder(name).path), *flags, **environment)


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The demo's tiny model, untrained, a reward that it can improve, and a run file."""
    root = tmp_path_factory.mktemp("faults")
    _write_model(root / "model")
    (root / "reward.py").write_text(REWARD)
    rows = [{"question": each.question} for each in problems("chain", 0, 60, "train")]
    (root / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (root / "eval.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows[:8]))
    (root / "run.toml").write_text(write_toml(_values(root)))
    yield Scene(root, root / "run.toml")
    shutil.rmtree(root, ignore_errors=True)


def _write_model(directory: Path) -> None:
    from slime_local.demo.tiny import write_tiny_model

    write_tiny_model(directory=directory, task="chain", seed=0)


def _values(root: Path) -> dict[str, Json]:
    return {
        "hf_checkpoint": str(root / "model"),
        "seed": 5,
        "prompt_data": str(root / "train.jsonl"),
        "input_key": "question",
        "apply_chat_template": True,
        "rollout_shuffle": True,
        "rollout_batch_size": 8,
        "n_samples_per_prompt": 4,
        "num_rollout": NUM_ROLLOUT,
        "rollout_max_response_len": 12,
        "eval_prompt_data": {"held": str(root / "eval.jsonl")},
        "eval_interval": 5,
        "lr": 1e-3,
        "save_interval": 2,
        "save_keep": 3,
        "reward": {"use": {f"{root / 'reward.py'}:digits": 1.0}},
    }


@pytest.fixture(scope="session")
def undisturbed(scene: Scene) -> Folder:
    """A run that nobody disturbed."""
    code, output = scene.train("undisturbed").wait()
    assert code == 0, output
    return scene.folder("undisturbed")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One table of what was tried and what came of it."""
    if figures.ALL:
        terminalreporter.write_line(figures.table())
