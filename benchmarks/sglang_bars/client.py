"""What a request costs the driver: the engine's client, a bare load generator, and a client like slime's.

All three ask the same of the same server, by turns. Bare is aiohttp with nothing around it: a table becomes JSON, and
the answer's bytes are dropped. slime's is httpx, a POST a request, JSON read, tokens and log-probs as two lists; with a
checkout of slime it is its own `_post`.
"""

import asyncio
import importlib.util
import json
import resource
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from sglang_bars.served import served
from slime_core.roles import EngineSetup, GenerateRequest, SamplingParams
from slime_core.run.session import settled_heap
from slime_engine_sglang.engine import SglangEngine
from slime_engine_sglang.settings import SglangSettings
from slime_testing import make_launcher, publish_model, write_tiny_model

TOKENS, PROMPT = 48, 24
LONG_TOKENS, LONG_AT_ONCE = 8192, 512
TICK_S = 0.005
JSON = {"Content-Type": "application/json"}

Ask = Callable[[int], Awaitable[int]]
"""Asks for the response of a number; how many tokens it has."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one load."""

    cpu_ms: float
    """Of the client's process, a request."""
    wall_s: float
    """Of the whole load."""
    lag_p99_ms: float
    """How late the loop comes to what is due."""


def prompt_of(number: int) -> list[int]:
    """A prompt that no other has."""
    return [5 + (number * 7 + place) % 50 for place in range(PROMPT)]


def generate_body(number: int, *, seeded: bool = True) -> dict[str, object]:
    """What a bare client asks."""
    sampling = {
        "max_new_tokens": TOKENS,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "ignore_eos": True,
        **({"sampling_seed": number} if seeded else {}),
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "no_stop_trim": True,
        "stop_token_ids": [2],
    }
    return {"input_ids": prompt_of(number), "sampling_params": sampling, "return_logprob": True}


async def bare(url: str, load: Callable[[Ask], Awaitable[Cost]], *, seeded: bool = True) -> Cost:
    """A session of aiohttp alone; with seeds or without, as the engine asks the server."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def ask(number: int) -> int:
            data = json.dumps({"rid": uuid.uuid4().hex, **generate_body(number, seeded=seeded)})
            async with http.post(f"{url}/generate", data=data, headers=JSON) as reply:
                return TOKENS if await reply.read() else 0

        return await load(ask)


async def slimes(url: str, load: Callable[[Ask], Awaitable[Cost]], checkout: Path | None, at_once: int) -> Cost:
    """A client of httpx, as slime uses it."""
    import httpx  # type: ignore[import-not-found, unused-ignore]

    post = slimes_post(checkout)
    limits, timeout = httpx.Limits(max_connections=at_once), httpx.Timeout(None)
    async with httpx.AsyncClient(limits=limits, timeout=timeout, trust_env=False) as http:

        async def ask(number: int) -> int:
            output = await post(http, f"{url}/generate", generate_body(number))
            entries = output["meta_info"]["output_token_logprobs"]
            tokens, log_probs = [item[1] for item in entries], [item[0] for item in entries]
            return len(tokens) if len(log_probs) == len(tokens) else 0

        return await load(ask)


def slimes_post(checkout: Path | None) -> Callable[..., Awaitable[Any]]:
    """The one of slime, or one that does as much where all goes well."""
    if checkout is not None:
        spec = importlib.util.spec_from_file_location("http_utils", checkout / "slime/utils/http_utils.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        own: Callable[..., Awaitable[Any]] = module._post
        return own

    async def post(http: Any, url: str, payload: object) -> Any:  # noqa: ANN401
        response = await http.post(url, json=payload)
        try:
            response.raise_for_status()
            return json.loads(await response.aread())
        finally:
            await response.aclose()

    return post


async def with_engine(url: str, use: Callable[[SglangEngine], Awaitable[Cost]]) -> Cost:
    """The engine, with weights loaded."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        launcher = make_launcher(scratch)
        setup = EngineSetup(
            _nothing,
            0,
            hf_checkpoint=write_tiny_model(scratch / "model"),
            eos_token_ids=frozenset({2}),
            launcher=launcher,
            scratch=scratch,
        )
        engine = SglangEngine(SglangSettings(urls=[url]), setup)
        try:
            await engine.start()
            await engine.load_weights(publish_model(setup.hf_checkpoint, scratch, 0), 0)
            return await use(engine)
        finally:
            await engine.close()
            await launcher.close()


def _nothing(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)


async def ours(url: str, load: Callable[[Ask], Awaitable[Cost]]) -> Cost:
    """The engine's client."""
    sampling = SamplingParams(TOKENS, ignore_eos=True)

    async def use(engine: SglangEngine) -> Cost:
        async def ask(number: int) -> int:
            return len((await engine.generate(GenerateRequest(prompt_of(number), sampling, number))).tokens)

        return await load(ask)

    return await with_engine(url, use)


def loading(requests: int, at_once: int) -> Callable[[Ask], Awaitable[Cost]]:
    """So many requests, so many of them at a time."""

    async def load(ask: Ask) -> Cost:
        turn: Iterator[int] = iter(range(requests))
        lags = list[float]()

        async def work() -> None:
            for number in turn:
                assert await ask(number) == TOKENS

        async def tick() -> None:
            while True:
                due = time.perf_counter() + TICK_S
                await asyncio.sleep(TICK_S)
                lags.append(time.perf_counter() - due)

        await asyncio.gather(*(ask(-number) for number in range(1, at_once + 1)))  # connections
        with settled_heap():  # as a run has it
            ticking = asyncio.create_task(tick())
            began, cpu = time.perf_counter(), time.process_time()
            await asyncio.gather(*(work() for _ in range(at_once)))
            wall_s, used_s = time.perf_counter() - began, time.process_time() - cpu
            ticking.cancel()
        return Cost(1e3 * used_s / requests, wall_s, 1e3 * sorted(lags)[int(0.99 * len(lags))])

    return load


def compared(requests: int, at_once: int, rounds: int, checkout: Path | None) -> dict[str, float]:
    """Medians of the rounds; the ratios are medians of each round's own."""
    costs: dict[str, list[Cost]] = {"bare": [], "ours": [], "slime's": []}
    load = loading(requests, at_once)
    with served() as url:
        for _ in range(rounds):
            costs["bare"].append(asyncio.run(bare(url, load)))
            costs["ours"].append(asyncio.run(ours(url, load)))
            costs["slime's"].append(asyncio.run(slimes(url, load, checkout, at_once)))

    def ratio(one: str, other: str) -> float:
        return statistics.median(a.cpu_ms / b.cpu_ms for a, b in zip(costs[one], costs[other], strict=True))

    return {
        **{f"{name}_cpu_ms": round(statistics.median(each.cpu_ms for each in of), 3) for name, of in costs.items()},
        "over_bare": round(ratio("ours", "bare"), 3),
        "slime's_over_ours": round(ratio("slime's", "ours"), 2),
        "lag_p99_ms": round(statistics.median(each.lag_p99_ms for each in costs["ours"]), 1),
        "bare_lag_p99_ms": round(statistics.median(each.lag_p99_ms for each in costs["bare"]), 1),
    }


def memory() -> dict[str, float]:
    """MiB that the process grows by, at its largest, for 512 requests of 8k tokens each whose answers are kept."""
    sampling = SamplingParams(LONG_TOKENS, ignore_eos=True)

    async def use(engine: SglangEngine) -> Cost:
        requests = [GenerateRequest(prompt_of(number), sampling, number) for number in range(LONG_AT_ONCE)]
        answers: Sequence[object] = await asyncio.gather(*map(engine.generate, requests))
        return Cost(0.0, float(len(answers)), 0.0)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with served() as url:
        asyncio.run(with_engine(url, use))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"grown_mib": round((after - before) / 1024, 1), "whole_mib": round(after / 1024, 1)}


def bar(rounds: int, checkout: Path | None) -> tuple[dict[str, dict[str, float]], dict[str, bool]]:
    """All figures, and which goals are met."""
    found = {"memory": memory()}  # first: what grows is seen at the peak alone
    for at_once in (64, 512):
        found[f"{at_once}_at_once"] = compared(2048, at_once, rounds, checkout)
    some, many = found["64_at_once"], found["512_at_once"]
    return found, {
        "1.15 of a bare client's CPU": max(some["over_bare"], many["over_bare"]) <= 1.15,
        "0.5 ms of CPU a request of 48 tokens": max(some["ours_cpu_ms"], many["ours_cpu_ms"]) <= 0.5,
        "a third of the CPU of slime's client": min(some["slime's_over_ours"], many["slime's_over_ours"]) >= 3.0,
        "loop lag p99 50 ms with 512": many["lag_p99_ms"] <= 50.0,
        "400 MB with 512 requests of 8k tokens": found["memory"]["whole_mib"] * 1.048576 <= 400.0,
    }
