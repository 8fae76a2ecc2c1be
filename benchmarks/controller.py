"""What the controller costs a sample: a scheduler over an engine that answers at once with 1,000 tokens.

    python benchmarks/controller.py
    python benchmarks/controller.py --full                          # up to 10^6 samples; some ten minutes
    python benchmarks/controller.py --slime path/to/slime           # a checkout of THUDM/slime beside it

The engine suspends once, as one that is waited for does, and hands out the same lists. `sync` and `continuous` run with
what a run puts around them: answers checked, generator and reward under their time limits and counted. `bare` is a loop
that makes a task a sample, awaits the engine and appends. `slime` is its own `generate_rollout_async`, with an HTTP
client that answers at once and the reward `random`; what is not installed of its imports (ray, httpx, sglang) is
replaced by empty modules, which nothing of the loop calls. Every rollout is of 1,024 samples in groups of eight and is
let go of when it was handed over. Processor seconds of a process of its own each, in turns, the best of several. The
last line is one JSON object.
"""

import argparse
import asyncio
import gc
import json
import random
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import cast

from slimes_loop import Answer, slimes_loop

from slime_core.catalog.checks import check_output
from slime_core.events import Event
from slime_core.processes import OnLoop
from slime_core.roles import (
    FinishReason,
    GenerateOutput,
    GenerateRequest,
    Generator,
    Reward,
    RewardContext,
    SamplingParams,
    WeightChannel,
)
from slime_core.rollout import (
    Choices,
    ContinuousScheduler,
    Parts,
    RolloutPolicy,
    Scheduler,
    Scoring,
    SingleTurn,
    Staleness,
    SyncScheduler,
    UsedGenerator,
    UsedReward,
)
from slime_core.run.session import settled_heap
from slime_core.sample import Group, GroupId, Json, Message, Sample
from slime_core.score import Score, Verdict
from slime_core.stats import PluginStats

TOKENS, PROMPT, GROUP, BATCH = 1_000, 64, 8, 128
SIZES, FULL = (1_000, 10_000, 100_000), 1_000_000
LIMIT_US, GOAL_US, FLAT, LIMIT_KIB = 150.0, 80.0, 1.1, 20.0
OURS = ("sync", "continuous")
TIMEOUT_S = 3600.0
IDS = [number % 50_000 for number in range(TOKENS)]
LOG_PROBS = [-random.Random(number).random() for number in range(TOKENS)]
TEXT = "word " * TOKENS
Collect = Callable[[int], Awaitable[int]]
"""One rollout; returns the samples that were generated meanwhile."""


def main() -> None:
    """Measure and print."""
    options = _options()
    if options.child:
        kind, size = options.child
        with settled_heap() if kind in OURS else nullcontext():  # as a run does
            measured = measure_memory() if kind == "memory" else asyncio.run(measure(kind, int(size), options.slime))
        print(json.dumps(measured))
        return
    kinds = [*OURS, "bare", *(["slime"] if options.slime else [])]
    sizes = [*SIZES, *([FULL] if options.full else [])]
    results: dict[str, dict[str, dict[str, float]]] = {kind: {} for kind in kinds}
    for size in sizes:
        for kind in kinds:
            rounds = [_in_child(kind, size, options.slime) for _ in range(1 if size == FULL else options.repeat)]
            found = results[kind][str(size)] = min(rounds, key=lambda each: each["us_per_sample"])
            shown = ", ".join(f"{key} {value:.4g}" for key, value in found.items())
            print(f"{kind:>10} {size:>9,} samples: {shown}", flush=True)
    memory = _in_child("memory", 0, None)
    print(f"memory: {memory['kib_per_sample']:.1f} KiB a frozen sample")
    print(json.dumps({"tokens": TOKENS, "results": results, **memory, **_verdict(results, memory)}))


def _verdict(results: dict[str, dict[str, dict[str, float]]], memory: dict[str, float]) -> dict[str, Json]:
    costs = {kind: [found["us_per_sample"] for found in by_size.values()] for kind, by_size in results.items()}
    ours = [cost for kind in OURS for cost in costs[kind]]
    flat = {f"largest_to_smallest_{kind}": those[-1] / those[0] for kind, those in costs.items()}
    return {
        **flat,
        "most_us_per_sample": max(ours),
        "within_limit": max(ours) <= LIMIT_US,
        "within_goal": max(ours) <= GOAL_US,
        "flat": all(flat[f"largest_to_smallest_{kind}"] <= FLAT for kind in OURS),
        "memory_kept": memory["kib_per_sample"] <= LIMIT_KIB,
    }


async def measure(kind: str, size: int, slime: Path | None) -> dict[str, float]:
    """Processor time of this many samples, in rollouts, after one that fills the caches."""
    collect, close = await _contender(kind, slime)
    done, rollout_id = 0, 1
    await collect(0)
    gc.collect()
    before, began = _resident_mib(), time.process_time()
    while done < size:
        done += await collect(rollout_id)
        rollout_id += 1
    seconds = time.process_time() - began
    await close()
    return {"us_per_sample": 1e6 * seconds / done, "grown_mib": _resident_mib() - before, "peak_mib": _peak_mib()}


async def _contender(kind: str, slime: Path | None) -> tuple[Collect, Callable[[], Awaitable[None]]]:
    if kind == "bare":
        return bare, _nothing
    if kind == "slime":
        assert slime is not None, "asked for with --slime"
        return slimes_loop(slime, Answer(IDS, LOG_PROBS, TEXT, PROMPT), batch=BATCH, group=GROUP), _nothing
    engine = AtOnce()
    scheduler = controller(kind, engine)
    scheduler.resume_with(0)

    async def collect(rollout_id: int) -> int:
        before = engine.answers  # what is handed over may have been generated earlier
        await scheduler.collect(rollout_id, BATCH)
        await scheduler.settle()
        scheduler.resume_with(rollout_id + 1)
        return engine.answers - before

    return collect, scheduler.close


def measure_memory() -> dict[str, float]:
    """What the groups of a rollout hold when they were handed over."""

    async def rollout() -> float:
        scheduler = controller("sync", AtOnce())
        await scheduler.collect(0, BATCH)
        gc.collect()
        tracemalloc.start()
        result = await scheduler.collect(1, BATCH)
        kept = result.kept
        del result
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        samples = sum(len(group.samples) for group in kept)
        del kept
        gc.collect()
        return (held - tracemalloc.get_traced_memory()[0]) / samples

    return {"kib_per_sample": asyncio.run(rollout()) / 1024}


# --- slime-core


def controller(kind: str, engine: "AtOnce") -> Scheduler:
    """The scheduler of a policy, with what a run puts around its parts."""
    stats = PluginStats()

    def on_loop(role: str, call: object) -> object:
        calls = stats.calls(role, role, "benchmark")
        return OnLoop(cast(Generator, call), timeout_s=TIMEOUT_S, max_concurrency=None, calls=calls)

    parts = Parts(
        policy=RolloutPolicy(seed=1, sampling=SamplingParams(TOKENS), max_staleness=2),
        source=Prompts(),
        engine=engine,
        tokenizer=Text(),
        choices=Choices(
            UsedGenerator("single_turn", "benchmark", cast(Generator, on_loop("generator", SingleTurn()))),
            Scoring([UsedReward("always", "benchmark", cast(Reward, on_loop("reward", _always)))]),
        ),
        group_filter=None,
        sample_filters=(),
        emit=_ignore,
    )
    return ContinuousScheduler(parts, Staleness(BATCH, FULL)) if kind == "continuous" else SyncScheduler(parts)


async def _always(sample: Sample, ctx: RewardContext) -> Verdict:
    return Score(float(sample.index or 0))


async def _ignore(event: Event) -> None:
    """Nobody watches."""


async def _nothing() -> None:
    """Nothing to close."""


class AtOnce:
    """An engine that answers at once, and counts."""

    def __init__(self) -> None:
        self.answers = 0

    async def start(self) -> None: ...

    async def load_weights(self, channel: WeightChannel, version: int) -> None: ...

    async def abort(self) -> None: ...

    async def close(self) -> None: ...

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """The same tokens each time, checked as a run checks them."""
        await asyncio.sleep(0)
        self.answers += 1
        output = GenerateOutput(IDS, LOG_PROBS, FinishReason.STOP, weight_version=0)
        return check_output(output, plugin="benchmark", request=request)


class Prompts:
    """A data source of prompts."""

    def __init__(self) -> None:
        self.drawn = 0

    async def draw(self, count: int) -> list[Group]:
        """New groups."""
        self.drawn += count
        return [self._group(number) for number in range(self.drawn - count, self.drawn)]

    def _group(self, number: int) -> Group:
        prompt = f"{number} + 1 ="
        samples = [Sample(number, index, number * GROUP + index, prompt, source="sums") for index in range(GROUP)]
        return Group(GroupId("sums", 0, number, number), samples)

    def add(self, groups: Sequence[Group]) -> None:
        """Nothing comes back."""
        assert not groups

    def state_dict(self) -> dict[str, Json]:
        """Nothing is saved."""
        raise NotImplementedError

    def load_state_dict(self, state: object) -> None:
        """Nothing is restored."""
        raise NotImplementedError

    def __len__(self) -> int:
        return FULL


class Text:
    """A tokenizer that has nothing to do."""

    eos_token_ids: frozenset[int] = frozenset({0})

    def encode(self, text: str, **options: object) -> list[int]:
        """Always as many."""
        return [1] * PROMPT

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Always the same."""
        return TEXT

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Json = None,
        kwargs: object = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """Prompts are texts here."""
        raise NotImplementedError


# --- peers


async def bare(rollout_id: int) -> int:
    """A task a sample, the engine awaited, its answer appended."""
    engine, finished = AtOnce(), []
    sampling = SamplingParams(TOKENS)

    async def one(sample: Sample) -> None:
        output = await engine.generate(GenerateRequest([1] * PROMPT, sampling, 0))
        sample.append_response_tokens(tokens=output.tokens, log_probs=output.log_probs, text=TEXT, weight_version="0")
        finished.append(sample)

    await asyncio.gather(*(asyncio.create_task(one(Sample(index=index))) for index in range(BATCH * GROUP)))
    return len(finished)


# --- processes


def _in_child(kind: str, size: int, slime: Path | None) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", kind, str(size), *(["--slime", str(slime)] if slime else [])]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return found


def _resident_mib() -> float:
    """Memory of this process that is no file's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return _peak_mib()


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slime", type=Path, help="checkout of THUDM/slime")
    parser.add_argument("--full", action="store_true", help="also 10^6 samples")
    parser.add_argument("--repeat", type=int, default=3, help="rounds, below 10^6 samples")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
