"""A plugin for the soak: engines and a reward that fail now and then, in every way, and a count of what was trained on.

It writes a line of JSON after each rollout: groups drawn, samples trained on, and the memory of this process.
"""

import asyncio
import json
import math
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import cast

from slime_core import Score, hookimpl
from slime_core.errors import WorkerError
from slime_core.events import RolloutEnd
from slime_core.roles import (
    EngineSpec,
    GenerateOutput,
    GenerateRequest,
    LauncherSpec,
    RankSetup,
    RewardContext,
    RewardSpec,
    StepResult,
    WorkerGroup,
    WorkerGroupSpec,
)
from slime_core.sample import Sample
from slime_core.score import Verdict
from tests.faults.toy import InProcess, InstantEngine, OneWorker, ToyRank

SLIME_API = "1"
RATES = {"dies": 1e-5, "hangs": 2e-6, "errs": 2e-4, "nan": 1e-5, "cut": 1e-5, "stale": 1e-5}
"""Of an engine's answers, by what it does instead."""
OFTEN = {"dies": 4e-3, "hangs": 1e-3, "errs": 6e-3, "nan": 3e-3, "cut": 3e-3, "stale": 3e-3}
"""The same of an engine that fails often in a short run."""
REWARD_RATES = {"raises": 4e-3, "sleeps": 1e-4, "nan": 2e-3, "none": 2e-3}
"""Of a reward's calls."""
TIMEOUT_S = 0.5
FORTUNE = random.Random(3)


class FaultyEngine(InstantEngine):
    """Fails at some rates; a dead or hung one stays so until it is replaced."""

    def __init__(self, rates: dict[str, float]) -> None:
        super().__init__()
        self._rates, self._fallen = rates, ""

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        fate = self._fallen or _fate(self._rates)
        if fate in ("dies", "hangs"):
            self._fallen = fate
        if fate == "hangs":
            await asyncio.Event().wait()
        if fate in ("dies", "errs"):
            raise WorkerError("the engine's process is gone") if fate == "dies" else RuntimeError("500")
        output = await super().generate(request)
        if fate == "nan":
            return replace(output, log_probs=[math.nan] * len(output.tokens))
        if fate == "cut":
            return replace(output, log_probs=output.log_probs[1:])
        if fate == "stale":
            return replace(output, weight_version=-7)
        return output


class CountingRank(ToyRank):
    """Counts what it was trained on."""

    trained = 0

    def train_step(self, step: int) -> StepResult:
        CountingRank.trained += len(self._batches[step].rewards_S)
        return super().train_step(step)


class CountedInProcess(InProcess):
    """Launcher of the one above: a toy.py that is a plugin is another module than the one that this file imports."""

    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> WorkerGroup:
        return OneWorker(CountingRank(cast(RankSetup, spec.arguments["setup"])))


async def faulty(sample: Sample, ctx: RewardContext) -> Verdict:
    """1 where the response has an even number of tokens, or one of `REWARD_RATES`."""
    match "" if ctx.evaluation else _fate(REWARD_RATES):
        case "raises":
            raise ValueError("no such thing")
        case "sleeps":
            await asyncio.sleep(3600)
        case "nan":
            return math.nan  # type: ignore[return-value]
        case "none":
            return None  # type: ignore[return-value]
    return Score(float(1 - sample.response_length % 2))


def _fate(rates: dict[str, float]) -> str:
    """The name of what happens, or "" for nothing."""
    drawn = FORTUNE.random()
    for name, rate in rates.items():
        if (drawn := drawn - rate) < 0:
            return name
    return ""


def resident_kib() -> int:
    """Memory of this process that is no file's."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return int(lines["Anonymous"].split()[0])


@hookimpl
def slime_rewards() -> Iterable[RewardSpec]:
    yield RewardSpec("faulty", lambda settings, setup: faulty, timeout_s=TIMEOUT_S)


@hookimpl
def slime_engines() -> Iterable[EngineSpec]:
    yield EngineSpec("faulty", lambda settings, setup: FaultyEngine(RATES), transports=("toy",))
    yield EngineSpec("often_faulty", lambda settings, setup: FaultyEngine(OFTEN), transports=("toy",))


@hookimpl
def slime_launchers() -> Iterable[LauncherSpec]:
    yield LauncherSpec("counted", lambda settings, setup: CountedInProcess())


@hookimpl
def slime_rollout_end(event: RolloutEnd) -> None:
    """Tell."""
    drawn = len(event.kept) + len(event.dropped)
    about = {"groups": drawn, "trained": CountingRank.trained, "kib": resident_kib()}
    with Path("soak.jsonl").open("a") as file:
        file.write(json.dumps(about) + "\n")
