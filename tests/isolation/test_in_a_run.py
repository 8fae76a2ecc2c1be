"""Isolation in a whole run of the local backend."""

import logging
from collections.abc import Callable

import pytest

from slime_core.telemetry import MetricsLog
from tests.conftest import Project, Ran

REWARDS = """
import os, time
from slime_core import Score, hookimpl

SLIME_API = "1"


def digits(sample, ctx):
    assert os.getpid() != os.getppid()
    return Score(sum(letter.isdigit() for letter in sample.response) / max(1, len(sample.response)))


async def blocks(sample, ctx):
    if sample.index == 0 and not ctx.evaluation:
        time.sleep(0.5)
    return Score(0.0)


@hookimpl
def slime_rollout_end(event):
    pass
"""


@pytest.fixture
def run(project: Project, slime: Callable[..., Ran]) -> Callable[..., Ran]:
    (project.root / "isolated.py").write_text(REWARDS)

    def train(*rewards: str, **keys: object) -> Ran:
        flags = [text for reward in rewards for text in ("--reward", f"./isolated.py:{reward}")]
        flags += [text for key, value in keys.items() for text in (f"--{key.replace('_', '-')}", str(value))]
        return slime("train", "run.toml", *flags, "--no-progress")

    return train


def test_a_plain_def_trains_and_every_call_is_measured(
    project: Project, run: Callable[..., Ran], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        ran = run("digits=1", "blocks=0", plugin="./isolated.py")
    assert ran.code == 0, ran.err
    first = MetricsLog.read(project.run / "metrics.jsonl")[0].metrics
    for measured in ("reward/./isolated.py:digits", "generator/single_turn", "run_hook/./isolated.py"):
        assert first[f"plugin/{measured}/p99"] >= first[f"plugin/{measured}/p50"] > 0.0, measured
        assert first[f"plugin/{measured}/errors"] == first[f"plugin/{measured}/timeouts"] == 0.0
    assert first["rollout/reward/./isolated.py:digits"] >= 0.0
    assert first["plugin/reward/./isolated.py:blocks/blocked"] > 0.25
    assert "reward ./isolated.py:blocks of plugin ./isolated.py blocked the event loop for" in caplog.text
