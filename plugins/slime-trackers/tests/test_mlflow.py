"""Real runs of MLflow in a run folder's database, read with its own client."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("mlflow") is None:
    pytest.skip("mlflow is not installed", allow_module_level=True)

# MLflow's models, by SQLAlchemy 2.1.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")
Process = Callable[..., None]


def read(run_dir: Path) -> tuple[Any, Any]:
    """A client, and the only run."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{run_dir / 'mlflow' / 'mlflow.db'}")
    (run,) = client.search_runs([each.experiment_id for each in client.search_experiments()])
    return client, run


def test_killed_run_resumes_with_each_step_once(tmp_path: Path, process: Process) -> None:
    run_dir, settings = tmp_path / "first", {"experiment": "sums", "tags": {"by": "us"}}
    rows = [(step, {"rollout/raw_reward": step / 10, "eval/heldout/pass@1": 1.0}) for step in range(8)]
    run_dir.mkdir()
    (run_dir / "run.toml").write_text('lr = 1e-6\n[reward]\nuse = "math"\n', "utf-8")
    process("mlflow", settings, run_dir, rows[:5], killed=True)
    _, killed = read(run_dir)
    assert killed.info.status == "RUNNING"
    process("mlflow", settings, run_dir, rows[3:])
    client, run = read(run_dir)
    assert (run.info.run_id, run.info.run_name, run.info.status) == (killed.info.run_id, "first", "FINISHED")
    assert (run.data.params, run.data.tags["by"]) == ({"lr": "1e-06", "reward.use": "math"}, "us")
    drawn = [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, "rollout/raw_reward")]
    assert drawn == [(step, step / 10) for step in range(8)]
    assert len(client.get_metric_history(run.info.run_id, "eval/heldout/pass_1")) == 8
    process("mlflow", settings, run_dir, [(8, {"rollout/raw_reward": 1.0})])
    assert read(run_dir)[1].data.metrics["rollout/raw_reward"] == 1.0


def test_row_larger_than_a_request_is_written_whole(tmp_path: Path, process: Process) -> None:
    process("mlflow", {}, tmp_path / "first", [(0, {f"plugin/reward/name-{n}/p50": float(n) for n in range(1001)})])
    _, run = read(tmp_path / "first")
    assert len(run.data.metrics) == 1001
