"""One run in which a plugin of our own fills every role and listens to every hook; many tests read what it left."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slime_core.config import write_toml
from slime_core.sample import Json
from slime_core.telemetry import MetricsLog, MetricsRow
from slime_testing.distribution import write_distribution
from slime_view.samples.shard import Shard

SOURCE = Path(__file__).with_name("everything.py")
ROLES: dict[str, Json] = {
    "data_source": {"use": "sums"},
    "generator": {"use": "twice"},
    "reward": {"use": "wrapped"},
    "group_reward": {"use": {"ranked": 0.25}},
    "group_filter": {"use": "not_third"},
    "sample_filter": {"use": ["without_first", "without_second"]},
    "buffer": {"use": "stack"},
    "buffer_filter": {"use": "newest"},
    "reward_shaper": {"use": ["double", "plus_one"]},
    "batch_transform": {"use": ["places", "not_first"]},
    "advantage": {"use": "plain"},
    "loss": {"use": "reinforce"},
    "correction": {"use": "half"},
    "engine": {"use": "noting", "noting": {"workers": 1}},
    "trainer": {"use": "noting", "noting": {"ranks": 1}},
    "launcher": {"use": "noting"},
    "tracker": {"use": "rows"},
}


@dataclass(frozen=True)
class CommandResult:
    """What became of one command, and the notes that were left meanwhile."""

    code: int
    output: str
    notes: list[dict[str, Any]]
    run: Path
    rows: list[MetricsRow]
    """Metrics of the run so far."""
    ledger: list[dict[str, Any]]
    """Its accounts so far."""

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The notes of one kind, in order."""
        return [each for each in self.notes if each["kind"] == kind]

    def samples(self, name: str) -> list[dict[str, Any]]:
        """The rows of a shard."""
        return [row.to_dict() for row in Shard(self.run / "samples" / f"{name}.parquet").rows()]


@dataclass(frozen=True)
class Everything:
    """A project whose plugins are one that fills every role."""

    root: Path

    def slime(self, *arguments: object) -> CommandResult:
        """A command in a process of its own."""
        notes = self.root / "notes.jsonl"
        notes.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-m", "slime_core", *map(str, arguments)],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(self.root / "site"), *sys.path])},
            capture_output=True,
            text=True,
            check=False,
        )
        run = self.root / "runs" / "all"
        rows = MetricsLog.read(run / "metrics.jsonl") if run.exists() else []
        output = done.stdout + done.stderr
        return CommandResult(done.returncode, output, _lines(notes), run, rows, _lines(run / "ledger.jsonl"))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture(scope="session")
def everything(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Everything:
    """The project: a run file that chooses the plugin for every role, and two evaluation sets."""
    root = tmp_path_factory.mktemp("everything")
    files = {"slime_everything.py": SOURCE.read_text()}
    write_distribution(root / "site", "slime-everything", files, entry_points={"everything": "slime_everything"})
    held = [{"question": f"What is {number}+2?", "answer": str(number + 2)} for number in range(2)]
    (root / "held.jsonl").write_text("".join(json.dumps(row) + "\n" for row in held))
    values: dict[str, Json] = {
        "hf_checkpoint": str(tiny_model),
        "save": str(root / "runs" / "all"),
        "input_key": "question",
        "label_key": "answer",
        "rollout_batch_size": 4,
        "n_samples_per_prompt": 2,
        "num_rollout": 2,
        "rollout_max_response_len": 6,
        "save_interval": 1,
        "eval_interval": 2,
        "eval_prompt_data": {
            "as_trained": "held.jsonl",
            "own": {
                "path": "held.jsonl",
                "reward": "digits",
                "generator": "single_turn",
                "n_samples_per_eval_prompt": 3,
                "max_response_len": 2,
            },
        },
        "lr": 1e-3,
    }
    (root / "run.toml").write_text(write_toml(values | ROLES))
    return Everything(root)


@pytest.fixture(scope="session")
def trained(everything: Everything) -> CommandResult:
    """Two rollouts and their evaluations."""
    told = everything.slime("train", "run.toml")
    assert told.code == 0, told.output
    return told


@pytest.fixture(scope="session")
def resumed(everything: Everything, trained: CommandResult) -> CommandResult:
    """One rollout more, in another process."""
    told = everything.slime("resume", trained.run, "--num-rollout", 3)
    assert told.code == 0, told.output
    return told
