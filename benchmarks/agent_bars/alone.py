"""Bar 3: the gateway in front of the local engine, against the same requests to the engine alone.

64 conversations of four turns at once, with the examples' model, untrained. Their clients are a process of their own.
"""

import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

from agent_bars.clients import Spent, talk, talked
from agent_bars.engines import Tell, context_of
from slime_agent_openai.bridge import Bridge
from slime_agent_openai.gateway import Gateway
from slime_agent_openai.parsers.families import HERMES
from slime_agent_openai.session import Session, SessionLimits
from slime_core.data import HfTokenizer
from slime_core.processes.launcher import LocalLauncher
from slime_core.roles import (
    EngineSetup,
    GenerateOutput,
    GenerateRequest,
    LauncherSetup,
    SamplingParams,
)
from slime_local.engine import LocalEngine
from slime_local.settings import LocalEngineSettings

ROOT = Path(__file__).resolve().parents[2]
CHAINS, TURNS, TOKENS = 64, 4, 32


class Through:
    """The engine as samples' contexts have it, which notes what each was asked."""

    def __init__(self, engine: LocalEngine, tokenizer: HfTokenizer) -> None:
        self._engine, self._numbers = engine, itertools.count()
        self.asked: list[GenerateRequest] = []
        self.context = context_of(self.answer, tokenizer)

    async def answer(self, prompt: Sequence[int], sampling: SamplingParams | None, on_chunk: Tell) -> GenerateOutput:
        """Ask."""
        request = GenerateRequest(list(prompt), sampling or SamplingParams(TOKENS), next(self._numbers))
        self.asked.append(request)
        return await self._engine.generate(request)


async def measured() -> dict[str, float]:
    """CPU milliseconds of the driver a turn and turns a second, through the gateway and alone."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        model = scratch / "hf"
        make = await asyncio.create_subprocess_exec(sys.executable, ROOT / "examples/agents/make_model.py", model)
        if await make.wait():
            raise SystemExit("examples/agents/make_model.py did not make a model")
        tokenizer = HfTokenizer.load(model)
        launcher = LocalLauncher(LauncherSetup(_make, 0, scratch=scratch))
        setup = EngineSetup(
            _make, 0, hf_checkpoint=model, eos_token_ids=frozenset(), launcher=launcher, scratch=scratch
        )
        engine = LocalEngine(LocalEngineSettings(), setup)
        try:
            await engine.start()
            await engine.load_checkpoint()
            await _through(engine, tokenizer)  # warm
            through, chains = await _through(engine, tokenizer)
            alone = await _alone(engine, chains)
        finally:
            await engine.close()
            await launcher.close()
    more = round(through["cpu_ms_per_turn"] - alone["cpu_ms_per_turn"], 3)
    figures = {
        f"{side}_{key}": value for side, made in (("gateway", through), ("alone", alone)) for key, value in made.items()
    }
    return {**figures, "more_cpu_ms_per_turn": more}


async def _through(engine: LocalEngine, tokenizer: HfTokenizer) -> tuple[dict[str, float], list[list[GenerateRequest]]]:
    """By agents, and what each of them had the engine asked."""
    gateway, bridge = Gateway(), Bridge(tokenizer)
    await gateway.start()
    try:
        async with AsyncExitStack() as stack:
            chains = [Through(engine, tokenizer) for _ in range(CHAINS)]
            urls = []
            for each in chains:
                session = Session(each.context, SessionLimits(max_turn_tokens=TOKENS), bridge, HERMES)
                urls.append(await stack.enter_async_context(gateway.open_session(session)))
            figures = _figures(await talked("agent_bars.alone", urls))
    finally:
        await gateway.close()
    return figures, [each.asked for each in chains]


async def _alone(engine: LocalEngine, chains: Sequence[Sequence[GenerateRequest]]) -> dict[str, float]:
    """The same requests, each chain's one after the other."""

    async def one(chain: Sequence[GenerateRequest]) -> None:
        for request in chain:
            await engine.generate(request)

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(one, chains))
    return _figures(Spent(time.perf_counter() - began, time.process_time() - cpu))


def _figures(spent: Spent) -> dict[str, float]:
    turns = CHAINS * TURNS
    return {"cpu_ms_per_turn": round(spent.cpu_s / turns * 1e3, 3), "turns_per_s": round(turns / spent.wall_s, 1)}


def _make(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)


async def _talk(*urls: str) -> None:
    async def one(http: aiohttp.ClientSession, url: str) -> None:
        messages = [{"role": "user", "content": f"What is {url[-3:]}?"}]
        for _ in range(TURNS):
            async with http.post(f"{url}/v1/chat/completions", json={"model": "m", "messages": messages}) as answer:
                if answer.status != 200:
                    raise SystemExit(f"the gateway answered {answer.status}: {(await answer.text())[:300]}")
                said = (await answer.json())["choices"][0]["message"]
            messages += [said, {"role": "user", "content": "Sure?"}]

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        await asyncio.gather(*(one(http, url) for url in urls))


if __name__ == "__main__":
    talk(_talk)
