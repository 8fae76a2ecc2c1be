"""`slime diff`: what two runs have in common, and where they part."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Slime = Callable[..., Any]
Project = Any


@pytest.fixture
def trained(project: Project, slime: Slime) -> Callable[..., Path]:
    """Trains the project's run file into a folder, with other flags, and returns the folder."""

    def train(name: str, *flags: str) -> Path:
        ran = slime("train", "run.toml", "--save", f"runs/{name}", *flags)
        assert ran.code == 0, ran.err
        folder: Path = project.root / "runs" / name
        return folder

    return train


def test_two_runs_of_one_file_are_the_same(trained: Callable[..., Path], slime: Slime) -> None:
    one, other = trained("one"), trained("other")
    ran = slime("diff", one, other)
    assert ran.code == 0, ran.err
    assert [" ".join(line.split()) for line in ran.out.splitlines()] == [
        "settings the same",
        "plugins the same",
        "metrics means of the last 2 rollouts of 2 and 2; all the same",
        "weights the same in 2 checkpoints, the last of them rollout_000002",
        "prompts 8 in both, 0 with another mean reward",
    ]


def test_what_was_set_otherwise_is_named_and_where_metrics_part(trained: Callable[..., Path], slime: Slime) -> None:
    one = trained("one", "--save-keep", "3")
    other = trained("other", "--save-keep", "3", "--lr", "3e-3", "--num-rollout", "3", "--save-interval", "2")
    found = slime("diff", one, other, "--json").json()
    assert found["settings"] == {"num_rollout": [2, 3], "lr": [1e-3, 3e-3], "save_interval": [10, 2]}
    assert found["rollouts"] == [2, 3]
    # The same samples, and the same gradient of them; the weights part after the first step.
    assert found["same_until"] == 0
    assert found["metrics"]["train/lr-pg_0"] == [1e-3, 3e-3]
    assert found["weights"] == [{"rollout_id": 0, "same": True}, {"rollout_id": 2, "same": False}]
    shown = slime("diff", one, other).out
    assert "weights    they differ in rollout_000002; the same in rollout_000000" in shown
    assert "lr  0.001 -> 0.003" in shown
    assert "perf/" not in shown
    assert "perf/step_time" in slime("diff", one, other, "--all").out


def test_prompts_that_differ_most_come_first(trained: Callable[..., Path], slime: Slime) -> None:
    one, other = trained("one"), trained("other", "--seed", "7")
    prompts = slime("diff", one, other, "--json").json()["prompts"]
    gains = [abs(right - left) for left, right in (each["rewards"] for each in prompts)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 0
    lines = slime("diff", one, other, "--prompts", "2").out.splitlines()
    listed = lines[next(place for place, line in enumerate(lines) if line.startswith("prompts")) + 1 :]
    assert [line.split()[0] for line in listed] == [each["group"] for each in prompts[:2]]


def test_checkpoints_without_a_model_have_no_weights_to_compare(trained: Callable[..., Path], slime: Slime) -> None:
    one, other = trained("one"), trained("other", "--no-checkpoint-hf")
    assert "weights    no model of the same rollout is in both" in slime("diff", one, other).out


def test_what_is_not_a_run_folder_is_refused(project: Project, slime: Slime) -> None:
    ran = slime("diff", project.root, project.root)
    assert ran.code == 2
    assert "run" in ran.err
