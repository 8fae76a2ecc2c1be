"""The watchdog names who keeps the event loop, and is silent otherwise."""

import asyncio
import contextlib
import logging
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from slime_core.processes import OnLoop, Watchdog
from slime_core.roles import RewardContext
from slime_core.sample import Sample
from slime_core.score import Score
from slime_core.stats import PluginStats
from slime_testing import make_sample
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


def test_a_plugins_own_variable_called_calls_says_nothing_about_whose_call_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stats = PluginStats()

    async def names_another(sample: Sample, ctx: RewardContext) -> Score:
        calls = stats.calls("reward", "other", "slime-other")
        busy(0.9)
        return Score(float(len(calls.seconds)))

    async def watched() -> None:
        with Watchdog(stats, PACKAGES):
            await asyncio.sleep(0.2)
            await reward(stats, names_another)(make_sample(""), CONTEXT)
            await asyncio.sleep(0.2)

    with caplog.at_level(logging.WARNING):
        run(watched())
    assert "reward math of plugin slime-tests blocked the event loop" in caplog.text
    assert "other" not in caplog.text


def test_one_that_waits_is_not_blamed(caplog: pytest.LogCaptureFixture) -> None:
    stats = PluginStats()

    async def watched() -> None:
        with Watchdog(stats, PACKAGES):
            await reward(stats, behaves)(make_sample("0.6"), CONTEXT)

    with caplog.at_level(logging.WARNING):
        run(watched())
    assert not caplog.records
    assert "plugin/reward/math/blocked" not in stats.take()


def test_many_short_calls_in_a_row_are_nobodys_fault(caplog: pytest.LogCaptureFixture) -> None:
    stats = PluginStats()
    shorts = reward(stats, blocks)

    async def watched() -> None:
        with Watchdog(stats, PACKAGES):
            await asyncio.sleep(0.1)
            await asyncio.gather(*(shorts(make_sample("0.001"), CONTEXT) for _ in range(1000)))

    with caplog.at_level(logging.WARNING):
        run(watched())
    assert not caplog.records


def test_blocking_that_is_no_plugins_is_not_laid_at_ones_door(caplog: pytest.LogCaptureFixture) -> None:
    async def watched() -> None:
        with Watchdog(PluginStats(), {"somebody_else": "slime-else"}):
            await asyncio.sleep(0.2)
            busy(0.9)

    with caplog.at_level(logging.WARNING):
        run(watched())
    assert not caplog.records


async def spins(sample: Sample, ctx: RewardContext) -> Score:
    while True:
        pass


async def sleeps(sample: Sample, ctx: RewardContext) -> Score:
    time.sleep(600)  # noqa: ASYNC251
    return Score(1.0)


async def waits_for_a_lock(sample: Sample, ctx: RewardContext) -> Score:
    lock = threading.Lock()
    for _ in range(2):
        lock.acquire()
    return Score(1.0)


async def backtracks(sample: Sample, ctx: RewardContext) -> Score:
    return Score(float(re.match(r"(a+)+$", "a" * 60 + "!") is None))


async def catches_once(sample: Sample, ctx: RewardContext) -> Score:
    with contextlib.suppress(Exception):
        time.sleep(600)  # noqa: ASYNC251
    time.sleep(600)  # noqa: ASYNC251
    return Score(1.0)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("call", [spins, sleeps, waits_for_a_lock, backtracks, catches_once])
def test_a_time_limit_holds_for_what_never_awaits(call: object) -> None:
    stats = PluginStats()
    calls = stats.calls("reward", "math", "slime-tests")
    stuck = OnLoop(call, timeout_s=0.3, max_concurrency=None, calls=calls)  # type: ignore[arg-type, var-annotated]

    async def watched() -> None:
        with Watchdog(stats, PACKAGES):
            await asyncio.sleep(0.2)
            with pytest.raises(TimeoutError, match="it kept the event loop for"):
                await stuck(make_sample("x"), CONTEXT)
            await asyncio.sleep(0.2)

    run(watched())
    assert stats.take()["plugin/reward/math/timeouts"] == 1.0


@pytest.mark.timeout(120)
def test_ctrl_c_is_not_lost_while_a_call_blocks(capfd: pytest.CaptureFixture[str]) -> None:
    stats, heard = PluginStats(), threading.Event()

    async def watched() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, heard.set)
        with Watchdog(stats, PACKAGES):
            await asyncio.sleep(0.2)
            threading.Timer(8.0, signal.raise_signal, [signal.SIGUSR1]).start()
            await reward(stats, blocks)(make_sample("9"), CONTEXT)
            await asyncio.sleep(0.2)
        asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)

    run(watched())
    assert heard.is_set()
    assert "wakeup fd" not in capfd.readouterr().err


@pytest.mark.timeout(120)
def test_a_task_that_never_awaits_is_interrupted_too() -> None:
    stats = PluginStats()
    stats.calls("task", "slime-tests", "slime-tests").limit_s = 0.3

    async def watched() -> None:
        with Watchdog(stats, PACKAGES), pytest.raises(TimeoutError, match="it kept the event loop for"):
            await asyncio.create_task(spins(make_sample("x"), CONTEXT))

    run(watched())


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
    with Watchdog(stats, {}):
        await asyncio.sleep(0.2)
        await OnLoop(stubborn, timeout_s=0.1, max_concurrency=None, calls=calls)(None, None)

asyncio.run(main())
"""


@pytest.mark.timeout(120)
def test_what_catches_every_interrupt_ends_the_process_by_name() -> None:
    done = subprocess.run([sys.executable, "-c", STUBBORN], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == "error: reward math of plugin slime-tests keeps the event loop and cannot be stopped: the run ends"
