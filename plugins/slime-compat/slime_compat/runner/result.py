"""TrainResult: what came of a run, read from its folder.

Example:

    result.rewards          # {0: 0.12, 1: 0.31}
    result.outcome          # Outcome.DONE
"""

import enum
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


class Outcome(enum.Enum):
    """How a run stands."""

    NEW = "new"
    """It has not begun."""
    RUNNING = "running"
    """A process of it runs."""
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
    """How it stands."""
    folder: Path
    """The run folder."""
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
    for rollout, metrics in _rows(folder / "metrics.jsonl"):
        if "rollout/raw_reward" in metrics:
            rewards[rollout] = metrics["rollout/raw_reward"]
        if found := {name: value for name, value in metrics.items() if name.startswith("eval/")}:
            evaluations[rollout] = found
    report = folder / "report" / "report.md"
    checkpoints = tuple(sorted((folder / "checkpoints").glob("rollout_*")))
    return TrainResult(outcome, folder, rewards, evaluations, checkpoints, report if report.is_file() else None)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, float]]]:
    if not path.is_file():
        return
    for line in path.read_text("utf-8").splitlines(keepends=True):
        if line.endswith("\n"):  # a torn last line is one that is being written
            row = json.loads(line)
            yield row["rollout_id"], row["metrics"]
