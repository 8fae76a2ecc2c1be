"""The README's first command, until the reward has risen: for that all between a prompt and a gradient has to be right,
and what rewards it as well.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_core.telemetry import MetricsLog
from slime_local.demo.tasks import problems
from slime_local.demo.warmup import bare_response, worked_response
from slime_reward_math import grade


@pytest.mark.timeout(900)
def test_the_demo_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slime: Callable[..., Any]) -> None:
    monkeypatch.chdir(tmp_path)
    ran = slime("demo", "--num-rollout", 12, "--no-progress")
    assert ran.code == 0, ran.err
    rows = MetricsLog.read(tmp_path / "runs" / "demo-word-0" / "metrics.jsonl")
    rewards = [row.metrics["rollout/raw_reward"] for row in rows if "rollout/raw_reward" in row.metrics]
    heldout = [row.metrics["eval/heldout"] for row in rows if "eval/heldout" in row.metrics]
    assert rewards[0] < 0.3 < 0.6 < rewards[-1]
    assert heldout[-1] > heldout[0] + 0.4


@pytest.mark.parametrize("task", ["chain", "word"])
def test_every_solution_of_the_demo_is_paid_and_no_other_answer(task: str) -> None:
    for problem in problems(task, 1, 200, "train"):
        for response in (worked_response(problem), bare_response(problem)):
            assert grade(problem.answer, response).correct is True, response
            assert grade(str(int(problem.answer) + 1), response).correct is False, response
