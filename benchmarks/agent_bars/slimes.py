"""slime's own OpenAI adapter on the same sessions, over the same HTTP, before an engine that speaks SGLang's wire.

Run by `trained.py` with slime's checkout on the path. Calls as XML alone: SGLang itself reads those as JSON for it.
"""

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import aiohttp
from aiohttp import web
from transformers import AutoTokenizer

from agent_bars.dialogs import ECHOES, STYLES, answers, share, talk, tokenizer_of


async def served(app: web.Application) -> tuple[web.AppRunner, str]:
    """A server on this machine."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


def engine_of(made: Sequence[Sequence[int]]) -> web.Application:
    """`POST /generate`, which gives one answer after the other."""
    left = list(made)

    async def generate(request: web.Request) -> web.Response:
        ids = left.pop(0)
        meta = {"output_token_logprobs": [[-0.5, token, None] for token in ids], "finish_reason": {"type": "stop"}}
        return web.json_response({"text": "", "output_ids": list(ids), "meta_info": meta})

    app = web.Application()
    app.router.add_post("/generate", generate)
    return app


async def played(style: str, echo: str, folder: Path) -> tuple[float, int]:
    """Share and samples of one session."""
    from slime.agent.adapters.openai import OpenAIAdapter  # type: ignore[import-not-found]
    from slime.utils.types import Sample  # type: ignore[import-not-found]

    made = answers(tokenizer_of("xml", folder), "xml", style)
    engine, url = await served(engine_of(made))
    adapter: Any = OpenAIAdapter(tokenizer=AutoTokenizer.from_pretrained(folder), sglang_url=url)
    server, base = await served(adapter.app)
    try:
        adapter.open_session("one")
        async with aiohttp.ClientSession() as http:
            await talk(http, base, "one", echo)
        samples = await adapter.finish_session("one", base_sample=Sample(prompt="", label=""), reward=1.0)
    finally:
        await server.cleanup()
        await engine.cleanup()
    return share(sum(sum(sample.loss_mask) for sample in samples), made), len(samples)


def main() -> None:
    """Play all, and print shares and samples."""
    with tempfile.TemporaryDirectory() as folder:
        cells = [asyncio.run(played(style, echo, Path(folder))) for style in STYLES for echo in ECHOES]
    shares = [each for each, _ in cells]
    samples = [count for _, count in cells]
    figures = {"least_share": min(shares), "mean_share": mean(shares), "most_samples": max(samples)}
    print(json.dumps({"cells": len(cells), **figures}))


if __name__ == "__main__":
    main()
