"""Fixtures: functions written for slime as a module of the project, and runs of one or two seconds."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slime_compat.runner.runner import SlimeRunner
from slime_testing import write_tiny_model


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> str:
    """Prefix of the functions' paths, in slime's dotted form."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return "written_for_slime."


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a model and prompts."""
    write_tiny_model(tmp_path / "model")
    rows = [{"prompt": f"t{number} t{number + 1}", "label": "t5"} for number in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return tmp_path


@pytest.fixture
def small(home: Path) -> Callable[..., SlimeRunner]:
    """Makes a runner for a short run there, on a CPU; arguments override its fields."""

    def made(**fields: object) -> SlimeRunner:
        given: dict[str, object] = {
            "exp_id": "small",
            "model_dir": home / "model",
            "data_path": home / "rows.jsonl",
            "run_dir": home / "runs",
            "reward": "random",
            "num_gpus": 0,
            "rollout_batch_size": 2,
            "n_samples_per_prompt": 2,
            "rollout_max_response_len": 4,
        }
        return SlimeRunner(**{**given, **fields})  # type: ignore[arg-type]

    return made
