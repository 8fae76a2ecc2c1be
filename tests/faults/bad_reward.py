"""A plugin with a reward that does something else to every seventh row, and a watcher that measures the loop's lag."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from slime_core import Score, hookimpl
from slime_core.events import RolloutEnd, RolloutStart
from slime_core.roles import RewardContext, RewardSpec, Settings, Setup
from slime_core.sample import Sample
from slime_core.score import Verdict

SLIME_API = "1"
TIMEOUT_S = 2.0
TICK_S = 0.002
LAGS: list[float] = []


def raises() -> Verdict:
    raise ValueError("no such thing")


def sleeps() -> Verdict:
    time.sleep(600)
    return Score(1.0)


def spins() -> Verdict:
    while True:
        pass


def takes_32_gb() -> Verdict:
    eaten = [b"x" * (1 << 30) for _ in range(32)]
    return Score(float(len(eaten)))


def calls_exit() -> Verdict:
    os._exit(3)


def segfaults() -> Verdict:
    import ctypes

    ctypes.string_at(0)
    return Score(1.0)


def returns_garbage() -> Verdict:
    return [[1.0], [2.0]]  # type: ignore[return-value]


BAD: tuple[Callable[[], Verdict], ...] = (
    raises,
    sleeps,
    spins,
    takes_32_gb,
    calls_exit,
    segfaults,
    returns_garbage,
)


def judge(sample: Sample, ctx: RewardContext) -> Verdict:
    """The first sample of row n meets fate n; all others get 0 or 1."""
    row = int(str(sample.prompt)) - 100
    if sample.index == 0 and row < len(BAD) and not ctx.evaluation:
        return BAD[row]()
    return Score(float(sample.response_length % 2))


def _factory(settings: Settings, setup: Setup) -> Callable[[Sample, RewardContext], Verdict]:
    return judge


@hookimpl
def slime_rewards() -> Iterable[RewardSpec]:
    yield RewardSpec("judge", _factory, timeout_s=TIMEOUT_S, max_concurrency=2)


async def _tick() -> None:
    while True:
        due = time.perf_counter() + TICK_S
        await asyncio.sleep(TICK_S)
        LAGS.append(time.perf_counter() - due)


@hookimpl
async def slime_rollout_start(event: RolloutStart) -> None:
    """Look how late the loop is, from now on."""
    globals()["ticking"] = asyncio.create_task(_tick())


@hookimpl
def slime_rollout_end(event: RolloutEnd) -> None:
    """Tell."""
    globals()["ticking"].cancel()
    Path("lags.json").write_text(json.dumps(LAGS))
