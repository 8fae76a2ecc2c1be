"""How far one driver goes: what a sample costs it, measured here, and the table of docs/ray.md that follows from it.

Asking is by the client of slime-engine-sglang, of the kit's fake engine in another process; calls are of groups under
Ray, of few ranks and of more; the scheduler, the store and the pool have benchmarks of their own, which are run.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from array import array
from functools import partial
from pathlib import Path
from typing import cast

import ray
from sglang_bars.client import Cost, prompt_of, with_engine
from sglang_bars.served import served

from ray_bars.calls import TARGET, setup_in
from slime_core.batching.prepare import Preparation
from slime_core.batching.split import split_step
from slime_core.roles import Draw, GenerateRequest, SamplingParams, WorkerGroupSpec
from slime_core.run.session import settled_heap
from slime_core.sample import Group, GroupId, Sample
from slime_engine_sglang.engine import SglangEngine
from slime_launcher_ray.launcher import RayLauncher
from slime_launcher_ray.settings import RaySettings

TOKENS = 1_000
"""Of a response."""
FEW, REQUESTS, ROUNDS = 50, 512, 3
RANKS = (2, 8)
CALLS, CALLS_A_STEP = 100, 10
GROUPS, GROUP = 64, 8
GPUS = (8, 64, 512, 4096)
TOKENS_A_GPU = 2_500
"""A second, of one that generates: an assumption, as that half of all GPUs do."""
BENCHMARKS = Path(__file__).resolve().parent.parent


def driver() -> dict[str, float]:
    """Print it; returns the costs."""
    costs = {"asking": _asking(), "scheduler": _scheduler(), "store": _store(), "pool": _pool()}
    dealing, sent = _dealing()
    call = asyncio.run(_calling())
    total = sum(costs.values()) + dealing
    print(f"a sample of {TOKENS} tokens, processor time of the driver")
    for name, cost in {**costs, "dealing to ranks": dealing, "together": total}.items():
        print(f"  {name:<18} {cost:8.0f} us")
    print(f"  to the ranks       {sent:8.1f} bytes a token")
    print(f"a call under Ray, of each rank {call:.2f} ms of the driver's processor time")
    print("  GPUs  samples/s  event loop  to the ranks  calls of a step")
    for gpus in GPUS:
        rate = gpus / 2 * TOKENS_A_GPU / TOKENS
        share, mb, calls = rate * total / 1e6, rate * TOKENS * sent / 1e6, CALLS_A_STEP * gpus / 2 * call / 1e3
        print(f"  {gpus:>4}  {rate:>9,.0f}  {share:>9.0%}  {mb:>8.1f} MB/s  {calls:>11.2f} s")
    half = 0.5e6 / total * TOKENS / TOKENS_A_GPU * 2
    print(f"one driver is half busy with {half:,.0f} GPUs; asking is {costs['asking'] / total:.0%} of it")
    return {**costs, "dealing": dealing, "bytes_a_token": sent, "call_ms_a_rank": call, "half_busy_gpus": half}


def _asking() -> float:
    """Microseconds of a request for so many tokens, with their log-probs; the best of the rounds."""

    async def use(engine: SglangEngine, tokens: int) -> Cost:
        sampling = SamplingParams(tokens, ignore_eos=True)
        await asyncio.gather(*(engine.generate(_request(number, sampling)) for number in range(FEW)))
        best = float("inf")
        for _ in range(ROUNDS):
            with settled_heap():  # as a run has it
                began = time.process_time()
                await asyncio.gather(*(engine.generate(_request(number, sampling)) for number in range(REQUESTS)))
                best = min(best, time.process_time() - began)
        return Cost(1e3 * best / REQUESTS, 0.0, 0.0)

    found = {}
    with served() as url:
        for tokens in (FEW, TOKENS):
            found[tokens] = asyncio.run(with_engine(url, partial(use, tokens=tokens))).cpu_ms * 1e3
    a_token = (found[TOKENS] - found[FEW]) / (TOKENS - FEW)
    print(f"asking SGLang: {found[TOKENS]:.0f} us, of which {a_token:.2f} us a token are for reading its answer")
    return found[TOKENS]


def _request(number: int, sampling: SamplingParams) -> GenerateRequest:
    return GenerateRequest(prompt_of(number), sampling, number)


def _dealing() -> tuple[float, float]:
    """Microseconds of the driver to prepare and pickle a sample for the ranks, and bytes a token."""
    groups = [_group(number) for number in range(GROUPS)]
    best, size = float("inf"), 0
    for _ in range(ROUNDS):
        began = time.process_time()
        prepared = Preparation().prepare(Draw(groups, [1.0] * len(groups)), rollout_id=0)
        size = sum(len(ray.cloudpickle.dumps(batch)) for batch in split_step(prepared, 2, 0))
        best = min(best, time.process_time() - began)
    return 1e6 * best / (GROUPS * GROUP), size / (GROUPS * GROUP * TOKENS)


def _group(number: int) -> Group:
    samples = []
    for index in range(GROUP):
        sample = Sample(group_index=number, index=index, rollout_id=number * GROUP + index, source="train")
        sample.prompt, sample.tokens = "", [1] * 64
        log_probs = array("f", [-0.1] * TOKENS).tolist()
        sample.append_response_tokens(tokens=[4711] * TOKENS, log_probs=log_probs, text="", weight_version="0")
        sample.reward = float(index % 2)
        samples.append(sample)
    return Group(GroupId("train", 0, number, number), samples)


async def _calling() -> float:
    """Milliseconds of the driver's processor time that a further rank adds to a call of all."""
    found: dict[int, float] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        launcher = RayLauncher(RaySettings(), setup_in(scratch, "ray"))
        for size in RANKS:
            group = await launcher.start(WorkerGroupSpec("bench", size, TARGET, {}))
            await group.call("add", [1] * size)
            began = time.process_time()
            for _ in range(CALLS):
                await group.call("add", [1] * size)
            found[size] = 1e3 * (time.process_time() - began) / CALLS
            await group.close()
        await launcher.close()
    few, many = RANKS
    return (found[many] - found[few]) / (many - few)


def _scheduler() -> float:
    results = cast(dict[str, dict[str, dict[str, float]]], _of("controller.py")["results"])
    return max(results["sync"][size]["us_per_sample"] for size in results["sync"])


def _store() -> float:
    results = cast(dict[str, dict[str, float]], _of("sample_store.py")["results"])
    return results["store"]["us_per_sample"]


def _pool() -> float:
    return cast(float, _of("engine_pool.py")["pool_of_512_adds_us"])


def _of(name: str) -> dict[str, object]:
    """What another benchmark says."""
    command = [sys.executable, str(BENCHMARKS / name)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, object] = json.loads(printed.splitlines()[-1])
    return found
