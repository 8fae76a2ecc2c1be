"""What a pool of engines costs a request, with engines that answer at once, beside one that is asked directly.

    python benchmarks/engine_pool.py            # the last line of the output is one JSON object

A round asks 2,000 requests of groups of eight, all at once, as a rollout does; processor time, best of the rounds.
Every round asks the engine directly, too, and the pools' figures are those of the requests less that.
"""

import asyncio
import json
import time
from collections.abc import Sequence

from slime_core.catalog.catalog import BuiltChoice
from slime_core.roles import (
    Engine,
    FinishReason,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
    WeightChannel,
)
from slime_core.rollout import EnginePool, Limits
from slime_core.rollout.engine_handle import EngineHandle
from slime_core.sample import GroupId

REQUESTS, GROUP, ROUNDS = 2000, 8, 30
COUNTS = (1, 8, 64, 512)
LIMITS = Limits(silence_s=300.0, restart_s=40.0, probe_s=30.0, load_s=300.0)
TOKENS, LOG_PROBS = tuple(range(100)), (-0.5,) * 100


class Instant:
    """Answers in the next turn of the loop."""

    async def start(self) -> None: ...

    async def load_weights(self, channel: WeightChannel, version: int) -> None: ...

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        await asyncio.sleep(0)
        return GenerateOutput(TOKENS, LOG_PROBS, FinishReason.STOP, 0)

    async def abort(self) -> None: ...

    async def close(self) -> None: ...


def make_engine(number: int) -> BuiltChoice[Engine]:
    """An engine as a run has it."""
    return BuiltChoice("instant", "benchmark", Instant())


async def seconds_of(engine: EngineHandle | EnginePool, requests: Sequence[GenerateRequest]) -> float:
    """Processor seconds of all requests at once."""
    began = time.process_time()
    await asyncio.gather(*(engine.generate(request) for request in requests))
    return time.process_time() - began


async def measure() -> dict[str, float]:
    """Microseconds a request: the direct engine, and what each pool adds."""
    sampling = SamplingParams(256)
    requests = [
        GenerateRequest(TOKENS, sampling, seed, GroupId("x", 0, seed // GROUP, seed // GROUP))
        for seed in range(REQUESTS)
    ]
    probe = GenerateRequest([2], SamplingParams(1), seed=0)
    pools = {count: EnginePool(make_engine, count, LIMITS, probe=probe) for count in COUNTS}
    direct, best = EngineHandle(0, make_engine(0), LIMITS), dict.fromkeys((0, *COUNTS), float("inf"))
    for pool in pools.values():
        await pool.start()
    for _ in range(ROUNDS):
        best[0] = min(best[0], await seconds_of(direct, requests))
        for count, pool in pools.items():
            best[count] = min(best[count], await seconds_of(pool, requests))
    for pool in pools.values():
        await pool.close()
    scale = 1e6 / REQUESTS
    found = {"direct_us": round(best[0] * scale, 2)}
    return found | {f"pool_of_{count}_adds_us": round((best[count] - best[0]) * scale, 2) for count in COUNTS}


def main() -> None:
    """Print the figures."""
    print(json.dumps(asyncio.run(measure())))


if __name__ == "__main__":
    main()
