"""The demo's parts: a warm start that continues where it was killed, and a run file anybody could have written."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from slime_core.config import check_model_dir, parse_config
from slime_core.local.demo.warmup import WarmUp
from slime_core.run import demo, newest_checkpoint
from slime_core.telemetry import PlainDisplay


class Killed(Exception):
    """Stands for the end of the process between two steps."""


class DiesAt(PlainDisplay):
    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def row(self, rollout_id: int, metrics: Mapping[str, float]) -> None:
        if rollout_id == self.step:
            raise Killed
        super().row(rollout_id, metrics)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm start of seven steps, saved every three."""
    monkeypatch.setitem(demo.RECIPES, "chain", WarmUp(steps=7, batch=4))
    monkeypatch.setattr(demo, "CHECKPOINT_STEPS", 3)


@pytest.mark.usefixtures("short")
def test_a_killed_warm_start_goes_on_to_the_same_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with PlainDisplay() as display:
        whole = asyncio.run(demo.warm_start("chain", tmp_path / "whole", display))
    with DiesAt(4) as display, pytest.raises(Killed):
        asyncio.run(demo.warm_start("chain", tmp_path / "parts", display))
    saved = newest_checkpoint(tmp_path / "parts" / "checkpoints", pytest.fail)
    assert saved is not None
    assert saved.rollout_id == 3
    capsys.readouterr()
    with PlainDisplay() as display:
        parts = asyncio.run(demo.warm_start("chain", tmp_path / "parts", display))
    assert "warm start: chain: 7 steps, resumed after 3" in capsys.readouterr().out
    assert (parts / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    check_model_dir(parts)

    with PlainDisplay() as display:
        assert asyncio.run(demo.warm_start("chain", tmp_path / "parts", display)) == parts
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("short")
def test_its_progress_and_loss_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with PlainDisplay() as display:
        asyncio.run(demo.warm_start("chain", tmp_path / "base", display))
        assert display.progress is not None
        assert display.progress.done == 7
        assert display.progress.phase
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("step 7/7  loss ")


@pytest.mark.parametrize("task", sorted(demo.SIZES))
def test_the_run_file_is_one_for_slime_train(task: str, tmp_path: Path) -> None:
    values = demo.demo_values(task, 3, Path("base"), tmp_path / "run")
    config = parse_config(values)
    assert config.run.seed == 3
    assert config.rollout.num_rollout == demo.SIZES[task].num_rollout
    rows = (tmp_path / "run" / "train.jsonl").read_text().splitlines()
    assert len(rows) == config.rollout.rollout_batch_size * config.rollout.num_rollout
    assert set(rows).isdisjoint((tmp_path / "run" / "eval.jsonl").read_text().splitlines())


def test_seeds_differ_in_their_prompts_and_share_the_evaluation(tmp_path: Path) -> None:
    for seed in (0, 1):
        demo.demo_values("chain", seed, Path("base"), tmp_path / str(seed))
    train, evaluation = (
        [(tmp_path / seed / f"{name}.jsonl").read_bytes() for seed in "01"] for name in ("train", "eval")
    )
    assert train[0] != train[1]
    assert evaluation[0] == evaluation[1]
