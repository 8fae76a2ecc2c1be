"""The watchdog names who keeps the event loop, and is silent otherwise."""

import asyncio
import logging
import time

import pytest

from slime_core.isolation import OnLoop, Watchdog
from slime_core.roles import RewardContext
from slime_core.sample import Sample
from slime_core.score import Score
from slime_core.stats import PluginStats
from slime_core.testing import make_sample
from tests.isolation.conftest import CONTEXT, run

PACKAGES = {"tests": "slime-tests"}


async def blocks(sample: Sample, ctx: RewardContext) -> Score:
    busy(float(sample.response))
    return Score(1.0)


def busy(seconds: float) -> None:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        pass


async def behaves(sample: Sample, ctx: RewardContext) -> Score:
    await asyncio.sleep(float(sample.response))
    return Score(1.0)


def reward(stats: PluginStats, call: object) -> OnLoop[Sample, RewardContext, Score]:
    calls = stats.calls("reward", "math", "slime-tests")
    return OnLoop(call, timeout_s=30.0, max_concurrency=None, calls=calls)  # type: ignore[arg-type]


def test_a_reward_that_blocks_is_named_once_with_file_and_line(caplog: pytest.LogCaptureFixture) -> None:
    stats = PluginStats()

    async def watched() -> None:
        with Watchdog(stats, PACKAGES):
            for _ in range(2):
                await asyncio.sleep(0.2)
                await reward(stats, blocks)(make_sample("0.9"), CONTEXT)
            await asyncio.sleep(0.2)

    with caplog.at_level(logging.WARNING):
        run(watched())
    (record,) = caplog.records
    assert "reward math of plugin slime-tests blocked the event loop for " in record.getMessage()
    assert f"in {__file__}:" in record.getMessage()
    assert stats.take()["plugin/reward/math/blocked"] > 0.5


def test_a_task_that_a_plugin_left_on_the_loop_is_named_by_its_package(caplog: pytest.LogCaptureFixture) -> None:
    stats = PluginStats()

    async def background() -> None:
        busy(0.9)

    async def watched() -> None:
        with Watchdog(stats, PACKAGES):
            await asyncio.sleep(0.2)
            await asyncio.create_task(background())
            await asyncio.sleep(0.2)

    with caplog.at_level(logging.WARNING):
        run(watched())
    assert "task of plugin slime-tests blocked the event loop" in caplog.text
    assert stats.take()["plugin/task/slime-tests/blocked"] > 0.5


def test_one_that_waits_is_not_blamed(caplog: pytest.LogCaptureFixture) -> None:
    stats = PluginStats()

    async def watched() -> None:
        with Watchdog(stats, PACKAGES):
            await reward(stats, behaves)(make_sample("0.6"), CONTEXT)

    with caplog.at_level(logging.WARNING):
        run(watched())
    assert not caplog.records
    assert "plugin/reward/math/blocked" not in stats.take()


def test_blocking_that_is_no_plugins_is_not_laid_at_ones_door(caplog: pytest.LogCaptureFixture) -> None:
    async def watched() -> None:
        with Watchdog(PluginStats(), {"somebody_else": "slime-else"}):
            await asyncio.sleep(0.2)
            busy(0.9)

    with caplog.at_level(logging.WARNING):
        run(watched())
    assert not caplog.records
