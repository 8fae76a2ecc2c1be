"""How many tokens a second a real server makes for the engine, over those that it makes for a bare client, by turns.

    python benchmarks/sglang_engine.py --only server

The server is one that the engine has started, on the CPU, with the kit's tiny model; both ask for the same responses.
"""

import asyncio
import statistics
import tempfile
from pathlib import Path

from sglang_bars.client import TOKENS, bare, loading, prompt_of
from slime_core.roles import EngineSetup, GenerateRequest, SamplingParams
from slime_engine_sglang.engine import SglangEngine
from slime_engine_sglang.settings import SglangSettings
from slime_testing import make_launcher, write_tiny_model

REQUESTS, AT_ONCE = 256, 32


def measure(python: Path, rounds: int) -> dict[str, float]:
    """Tokens a second of both, and the ratio of each round: its median, the lowest and the highest."""

    async def main(folder: Path) -> dict[str, float]:
        launcher = make_launcher(folder / "logs")
        setup = EngineSetup(
            _nothing,
            0,
            hf_checkpoint=write_tiny_model(folder / "model"),
            eos_token_ids=frozenset({2}),
            launcher=launcher,
            scratch=folder,
        )
        engine, load = SglangEngine(SglangSettings(python=python), setup), loading(REQUESTS, AT_ONCE)
        sampling = SamplingParams(TOKENS, ignore_eos=True)

        async def ask(number: int) -> int:
            return len((await engine.generate(GenerateRequest(prompt_of(number), sampling, abs(number)))).tokens)

        try:
            await engine.start()
            await engine.load_checkpoint()
            await load(ask)  # what is made once
            walls = [
                ((await bare(engine.url, load, seeded=False)).wall_s, (await load(ask)).wall_s) for _ in range(rounds)
            ]
        finally:
            await engine.close()
            await launcher.close()
        ratios = [bare_s / ours_s for bare_s, ours_s in walls]
        made = REQUESTS * TOKENS
        return {
            "bare_tokens_s": round(made / statistics.median(each for each, _ in walls)),
            "tokens_s": round(made / statistics.median(each for _, each in walls)),
            "ratio": round(statistics.median(ratios), 3),
            "ratio_least": round(min(ratios), 3),
            "ratio_most": round(max(ratios), 3),
        }

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(main(Path(folder)))


def _nothing(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)
