"""examples/whole and examples/whole-agent: their twins say the same, and the small programs beside them work."""

import importlib.util
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from slime_core.config import read_run_file
from tests.tables import table

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PLACES = {"trainer", "engine", "launcher"}


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@table("example", ["whole", "whole-agent"])
def test_nothing_but_trainer_engine_launcher_and_the_folder_differs(example: str) -> None:
    run, local = (read_run_file(EXAMPLES / example / name) for name in ("run.toml", "local.toml"))
    assert {key for key in run.keys() | local.keys() if run.get(key) != local.get(key)} == PLACES | {"save"}
    assert local["save"] == f"{run['save']}-local"
    chosen = {place: (run[place]["use"], local[place]["use"]) for place in PLACES}  # type: ignore[index,call-overload]
    assert chosen == {"trainer": ("megatron", "local"), "engine": ("sglang", "local"), "launcher": ("ray", "local")}


def test_both_examples_have_the_same_trainer_engine_and_launcher() -> None:
    runs = [tomllib.loads((EXAMPLES / name / "run.toml").read_text("utf-8")) for name in ("whole", "whole-agent")]
    parts: list[dict[str, Any]] = [
        {place: run[place] for place in (*PLACES, "reward", "buffer", "correction")} for run in runs
    ]
    assert parts[0] == parts[1]
    assert parts[0]["trainer"]["megatron"]["num_gpus"] == 2
    assert [run["rollout_num_engines"] for run in runs] == [2, 2]


@table(
    "arguments, value",
    [
        ('{"e": "3+4-2"}', "5"),
        ('{"e": "3*4"}', "error"),
        ('{"e": "3+"}', "error"),
        ('{"f": "3"}', "error"),
        ("[]", "error"),
        ("{", "error"),
    ],
)
def test_the_calculator_of_the_agent_bears_what_a_model_writes(arguments: str, value: str) -> None:
    pytest.importorskip("openai")
    pytest.importorskip("slime_agent_openai")
    assert module(EXAMPLES / "whole-agent" / "agent.py").value_of(arguments) == value


@table("rewards, status", [([0.0, 0.1, 0.2, 0.5, 0.6], 0), ([0.5, 0.5, 0.5], 1)])
def test_a_reward_that_has_not_risen_is_a_failure(tmp_path: Path, rewards: list[float], status: int) -> None:
    rows = [{"metrics": {"eval/heldout": 0.9}}, *({"metrics": {"rollout/raw_reward": each}} for each in rewards)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    command = [sys.executable, EXAMPLES / "whole" / "rose.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, "")
    assert f"in {len(rewards)} rollouts" in done.stdout
