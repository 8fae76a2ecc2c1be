"""The watchdog names who keeps the event loop, and is silent otherwise."""

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import pytest

from slime_core.processes import OnLoop, Watchdog
from slime_core.roles import RewardContext
from slime_core.sample import Sample
from slime_core.score import Score
from slime_core.stats import PluginStats
from slime_testing import make_sample
from tests.isolation.conftest import CONTEXT, run


def busy(seconds: float) -> None:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        pass


async def blocks(sample: Sample, ctx: RewardContext) -> Score:
    busy(float(sample.response))
    return Score(1.0)


async def behaves(sample: Sample, ctx: RewardContext) -> Score:
    await asyncio.sleep(float(sample.response))
    return Score(1.0)


def reward(stats: PluginStats, call: object) -> OnLoop[Sample, RewardContext, Score]:
    calls = stats.calls("reward", "math", "slime-tests")
    return OnLoop(call, timeout_s=30.0, max_concurrency=None, calls=calls)  # type: ignore[arg-type]


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> Callable[..., list[str]]:
    """The warnings while a watched loop runs `calls`, one after another."""

    def watch(*calls: Callable[[], Awaitable[object]]) -> list[str]:
        async def main() -> None:
            with Watchdog():
                for call in calls:
                    await asyncio.sleep(0.2)
                    await call()
                await asyncio.sleep(0.2)

        with caplog.at_level(logging.WARNING):
            run(main())
        return [record.getMessage() for record in caplog.records]

    return watch


def test_a_reward_that_blocks_is_named_once_with_file_and_line(watched: Callable[..., list[str]]) -> None:
    stats = PluginStats()
    calls = [lambda: reward(stats, blocks)(make_sample("0.9"), CONTEXT)] * 2
    (text,) = watched(*calls)
    assert "reward math of plugin slime-tests blocked the event loop for " in text
    assert f"in {__file__}:" in text
    assert "plain `def`" in text
    assert stats.take()["plugin/reward/math/blocked"] > 0.5


def test_a_long_block_is_named_while_it_lasts(
    watched: Callable[..., list[str]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slime_core.processes.watchdog.LONG_S", 0.5)
    during: list[int] = []

    async def notes(sample: Sample, ctx: RewardContext) -> Score:
        busy(1.5)
        during.append(len(caplog.records))
        return Score(1.0)

    assert len(watched(lambda: reward(PluginStats(), notes)(make_sample(""), CONTEXT))) == 1
    assert during == [1]


def test_waiting_many_short_calls_and_others_code_are_no_plugins_fault(watched: Callable[..., list[str]]) -> None:
    stats = PluginStats()
    shorts = reward(stats, blocks)

    async def many() -> None:
        await asyncio.gather(*(shorts(make_sample("0.001"), CONTEXT) for _ in range(300)))

    async def ours() -> None:
        busy(0.9)

    assert watched(lambda: reward(stats, behaves)(make_sample("0.6"), CONTEXT), many, ours) == []
    assert "plugin/reward/math/blocked" not in stats.take()


STUBBORN = """
import asyncio, time
from slime_core.processes import OnLoop, Watchdog
from slime_core.stats import PluginStats

async def stubborn(subject, ctx):
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass

async def main():
    stats = PluginStats()
    calls = stats.calls("reward", "math", "slime-tests")
    with Watchdog(end_s=0.5):
        await asyncio.sleep(0.2)
        await OnLoop(stubborn, timeout_s=0.1, max_concurrency=None, calls=calls)(None, None)

asyncio.run(main())
"""


@pytest.mark.timeout(120)
def test_a_call_that_never_gives_the_loop_back_ends_the_process_by_name() -> None:
    done = subprocess.run([sys.executable, "-c", STUBBORN], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: reward math of plugin slime-tests has kept the event loop for ")
    assert "<string>:9: the run ends. Write `await` for what takes time, or a plain `def`" in last
