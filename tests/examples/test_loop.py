"""The examples run as they stand, on any model."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from slime_core.config import read_run_file
from slime_local.demo.recipe import demo_values
from slime_local.demo.tasks import RECIPES

Slime = Callable[..., Any]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def loop() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_loop", EXAMPLES / "loop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_loop_trains(loop: ModuleType, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "GROUPS", 2)
    curve = loop.main(str(tiny_model), rollouts=2)
    assert len(curve) == 2
    assert all(0.0 <= reward <= 1.0 for reward in curve)


def test_the_run_file_names_the_demos_files_and_resolves(
    slime: Slime, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = read_run_file(EXAMPLES / "run.toml")
    assert values["hf_checkpoint"] == f"runs/demo-base-word/checkpoints/rollout_{RECIPES['word'].steps:06d}/hf"
    assert values["prompt_data"] == "runs/demo-word-0/train.jsonl"
    monkeypatch.chdir(tmp_path)
    demo_values("word", 0, tiny_model, Path("runs/demo-word-0"))  # writes the prompts that a demo leaves
    ran = slime("plan", EXAMPLES / "run.toml", "--hf-checkpoint", tiny_model, "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["unused"] == []
