"""A plugin with a reward that does something else to every seventh row, and a watcher that measures the loop's lag."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from slime_core import Score, hookimpl
from slime_core.events import RolloutEnd, RolloutStart
from slime_core.roles import RewardContext, RewardSpec, Settings, Setup
from slime_core.sample import Sample
from slime_core.score import Verdict
from tests.isolation.bad_rewards import eats_memory, exits, prints_and_fails, segfaults, sleeps, spins

SLIME_API = "1"
TIMEOUT_S = 2.0
TICK_S = 0.002
LAGS: list[float] = []


def returns_garbage(sample: Sample, ctx: RewardContext) -> Verdict:
    return [[1.0], [2.0]]  # type: ignore[return-value]


BAD: tuple[Callable[[Sample, RewardContext], Verdict], ...] = (
    prints_and_fails,
    sleeps,
    spins,
    eats_memory,
    exits,
    segfaults,
    returns_garbage,
)


def judge(sample: Sample, ctx: RewardContext) -> Verdict:
    """The first sample of row n meets fate n; all others get 0 or 1."""
    row = int(str(sample.prompt)) - 100
    if sample.index == 0 and row < len(BAD) and not ctx.evaluation:
        return BAD[row](sample, ctx)
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
