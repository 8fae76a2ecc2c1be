"""`slime samples`: what a run generated, for people and for programs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_core.sample import Sample, Status
from slime_testing.samples import make_group, make_sample
from tests.conftest import Slime
from tests.tables import table


@pytest.fixture
def run(tmp_path: Path, write_samples: Callable[..., None]) -> Path:
    """Three rollouts of two groups of two, and an evaluation."""
    rollouts = {number: [make_group(2 * number), make_group(2 * number + 1)] for number in range(3)}
    write_samples(tmp_path / "samples", rollouts, {3: {"held": [make_sample("held out", reward=1.0)]}})
    return tmp_path


def rows(slime: Slime, *arguments: object) -> list[dict[str, Any]]:
    ran = slime.ok("samples", *arguments, "--json")
    return [json.loads(line) for line in ran.out.splitlines()]


def test_the_newest_rollout_is_shown(slime: Slime, run: Path) -> None:
    assert [(row["rollout_id"], row["group"], row["index"]) for row in rows(slime, run)] == [
        (2, "kit:e0:r4:d4", 0),
        (2, "kit:e0:r4:d4", 1),
        (2, "kit:e0:r5:d5", 0),
        (2, "kit:e0:r5:d5", 1),
    ]


def test_one_rollout_all_of_them_and_evaluations_can_be_named(slime: Slime, run: Path) -> None:
    assert {row["rollout_id"] for row in rows(slime, run, "--rollout", 1)} == {1}
    assert [row["rollout_id"] for row in rows(slime, run, "--all", "--limit", 6)] == [0, 0, 0, 0, 1, 1]
    assert [row["response"] for row in rows(slime, run, "--eval", 3)] == ["held out"]


def test_what_is_odd_is_said(slime: Slime, tmp_path: Path, write_samples: Callable[..., None]) -> None:
    odd = Sample(
        prompt="<|im_start|>user\nWhat is 1+1?<|im_end|>\n<|im_start|>assistant\n",
        response="a\n\x1b[2J\ud83d",
        reward={"score": 0.5, "format": 1.0},
        remove_sample=True,
    )
    failed = Sample(prompt="p", status=Status.FAILED, failure_reason="agent_KeyError")
    write_samples(tmp_path / "samples", evals={0: {"e": [odd, Sample(prompt="p"), failed]}})
    lines = slime("samples", tmp_path, "--eval", 0).out.splitlines()
    assert lines[0].endswith("  What is 1+1?")
    assert lines[1:] == [
        "       0  score=0.5  format=1       0 tokens  pending, not trained on  a �[2J�",
        "       1         -       0 tokens  pending  ",
        "       2         -       0 tokens  failed (agent_KeyError)  ",
    ]


@table(
    "arguments, message",
    [
        (["--rollout", 7], "holds no rollout 7; it holds rollout 0 to 2"),
        (["--eval", 0], "holds no eval 0; it holds eval 3 to 3"),
        (["--rollout", 1, "--all"], "--rollout, --eval and --all exclude each other"),
    ],
)
def test_what_is_not_there_is_named(slime: Slime, run: Path, arguments: list[object], message: str) -> None:
    assert message in slime.refused("samples", run, *arguments)


def test_a_folder_without_samples_is_named(slime: Slime, tmp_path: Path) -> None:
    assert "holds no rollout yet: its file is written when it ends. RUN is the folder named by --save" in slime.refused(
        "samples", tmp_path
    )
