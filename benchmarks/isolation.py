"""What isolation costs a call: on the loop against a bare await, in a process against ProcessPoolExecutor.

    python benchmarks/isolation.py
    python benchmarks/isolation.py --calls 20000 --response 4000

Every way scores the same samples with the same function, in turns, in one process; the best of its rounds counts, for
other programs only ever add. The last line is one JSON object.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from slime_core.catalog import Catalog
from slime_core.processes import Protection, Watchdog
from slime_core.roles import LIGHT_FIELDS, PluginSet, RewardContext, Settings, Setup
from slime_core.sample import Sample
from slime_core.score import Score, Verdict
from slime_core.stats import PluginStats
from slime_testing import make_sample

ROUNDS = 5
CONTEXT = RewardContext(rollout_id=0, evaluation=False, seed=1)
OFFERED = """
from slime_core import RewardSpec, Score

async def on_loop(sample, ctx):
    return Score(float(sample.response == sample.label))

def plain(sample, ctx):
    return Score(float(sample.response == sample.label))

process = RewardSpec("process", lambda settings, setup: plain, max_concurrency=WORKERS)
"""

Ask = Callable[[Sample], Awaitable[object]]


async def bare(sample: Sample, ctx: RewardContext) -> Verdict:
    """The reward as an `async def`, called by nobody but this."""
    return Score(float(sample.response == sample.label))


def grade(fields: dict[str, object]) -> tuple[float, dict[str, float]]:
    """The reward in the pool of the standard library, given the same fields."""
    return float(fields["response"] == fields["label"]), {}


def main() -> None:
    """Measure and print."""
    options = _options()
    sample = make_sample("4" * options.response)
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(options.workers) as executor:
        Path(folder, "offered.py").write_text(OFFERED.replace("WORKERS", str(options.workers)), encoding="utf-8")
        stats = PluginStats()
        protection = Protection(plugins=PluginSet(only=(), root=Path(folder)), seed=1, stats=stats)
        ways = _ways(protection, Path(folder), executor)
        best = asyncio.run(_measure(ways, sample, options.calls, stats))
        protection.close()
    _report(best, options)


def _ways(protection: Protection, folder: Path, executor: ProcessPoolExecutor) -> dict[str, Ask]:
    def submitted(sample: Sample) -> Awaitable[object]:
        fields = {name: getattr(sample, name) for name in LIGHT_FIELDS}
        return asyncio.get_running_loop().run_in_executor(executor, grade, fields)

    ways: dict[str, Ask] = {"bare await": lambda sample: bare(sample, CONTEXT)}
    for name in ("on_loop", "process"):
        ways[name] = _isolated(protection, folder, name)
    ways["ProcessPoolExecutor"] = submitted
    return ways


def _isolated(protection: Protection, folder: Path, name: str) -> Ask:
    registered = Catalog.discover(PluginSet(only=(), root=folder)).find("reward", f"./offered.py:{name}")
    setup = Setup(make=lambda role, name, **settings: None, seed=1)
    build = partial(registered.spec.factory, Settings(), setup)
    reward = protection.protect(registered, Settings(), build, name=name)
    return lambda sample: reward(sample, CONTEXT)  # type: ignore[operator]


async def _measure(ways: dict[str, Ask], sample: Sample, calls: int, stats: PluginStats) -> dict[str, float]:
    """Microseconds a call: one after another, then all at once, the least of the rounds."""
    best: dict[str, float] = {}
    with Watchdog():
        for _ in range(ROUNDS):
            for name, ask in ways.items():
                few = max(1, calls // (1 if name in ("bare await", "on_loop") else 10))
                await ask(sample)
                for way, spent in (
                    (name, await _one_by_one(ask, sample, few)),
                    (f"{name}, at once", await _at_once(ask, sample, few)),
                ):
                    best[way] = min(best.get(way, float("inf")), spent)
            stats.take()
    return best


async def _one_by_one(ask: Ask, sample: Sample, calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        await ask(sample)
    return (time.perf_counter() - began) / calls * 1e6


async def _at_once(ask: Ask, sample: Sample, calls: int) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(_task(ask, sample) for _ in range(calls)))
    return (time.perf_counter() - began) / calls * 1e6


async def _task(ask: Ask, sample: Sample) -> object:
    return await ask(sample)


def _report(best: dict[str, float], options: argparse.Namespace) -> None:
    for way, spent in best.items():
        print(f"{way:30} {spent:9.2f} us a call")
    ratios = {
        "loop_to_bare_await": best["on_loop"] / best["bare await"],
        "loop_extra_us": best["on_loop"] - best["bare await"],
        "process_to_executor": best["process"] / best["ProcessPoolExecutor"],
        "process_to_executor_at_once": best["process, at once"] / best["ProcessPoolExecutor, at once"],
    }
    figures = {way.replace(", ", "_").replace(" ", "_") + "_us": round(spent, 2) for way, spent in best.items()}
    rounded = {name: round(ratio, 3) for name, ratio in ratios.items()}
    given = {"calls": options.calls, "response": options.response, "workers": options.workers, "cpus": os.cpu_count()}
    print(json.dumps({**given, **figures, **rounded}))


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--calls", type=int, default=20_000, help="calls on the loop; a tenth of them elsewhere")
    parser.add_argument("--response", type=int, default=1_000, help="characters of the response")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
