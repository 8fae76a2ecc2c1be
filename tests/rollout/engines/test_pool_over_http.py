"""Eight servers behind one pool, over real HTTP: half of them fail, each in its own way."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

from slime_core.catalog.catalog import Used
from slime_core.errors import ModelError, WorkerError
from slime_core.roles import (
    FinishReason,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
    WeightChannel,
)
from slime_core.rollout import CheckedEngine, EnginePool, Limits
from slime_core.sample import GroupId, Json
from slime_testing.fake_engine import Answer, Disconnect, FakeEngine, Flaw, Malformed, Slow, StaleVersion
from tests.channels import Somewhere

COUNT = 8
LIMITS = Limits(silence_s=3.0, restart_s=40.0, probe_s=30.0, load_s=300.0)
REQUESTS = [
    GenerateRequest([97, 98, 99 + seed % 20], SamplingParams(12), seed, GroupId("x", 0, seed // 8, seed // 8))
    for seed in range(96)
]


class Client:
    """A server as an engine; nothing is done for a request that is cancelled but to hang up."""

    def __init__(self, url: str) -> None:
        self.address = urlsplit(url)

    async def start(self) -> None:
        await self.post("/continue_generation", {})

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        assert isinstance(channel, Somewhere)
        await self.post("/update_weights_from_disk", {"model_path": str(channel.path), "weight_version": str(version)})

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        sampling: Json = {"max_new_tokens": request.sampling.max_new_tokens, "sampling_seed": request.seed}
        body: Json = {"input_ids": list(request.prompt), "sampling_params": sampling, "return_logprob": True}
        meta = (await self.post("/generate", body))["meta_info"]
        log_probs, tokens = [[entry[part] for entry in meta["output_token_logprobs"]] for part in range(2)]
        version = int(meta["weight_version"])
        return GenerateOutput(tokens, log_probs, FinishReason(meta["finish_reason"]["type"]), version)

    async def abort(self) -> None:
        await self.post("/abort_request", {"abort_all": True})

    async def close(self) -> None: ...

    async def post(self, path: str, body: Json) -> dict:
        try:
            reader, writer = await asyncio.open_connection(self.address.hostname, self.address.port)
        except OSError as error:
            raise WorkerError(f"{self.address.netloc}: {error}") from None
        try:
            payload = json.dumps(body).encode()
            head = f"POST {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {len(payload)}\r\n\r\n"
            writer.write(head.encode() + payload)
            head, _, found = (await reader.read()).decode().partition("\r\n\r\n")
        finally:
            writer.close()
        if " 200 " not in head.partition("\r\n")[0]:
            raise ModelError(f"{path}: {head} {found}")
        return json.loads(found or "{}")


async def answers_of(servers: list[FakeEngine], model: Path) -> tuple[list[list[int]], dict[str, float]]:
    urls = [server.url for server in servers]

    def make(number: int) -> CheckedEngine:
        return CheckedEngine(Used("http", "tests", Client(urls[number])))

    probe = GenerateRequest([97], SamplingParams(1), seed=0)
    pool = EnginePool(make, len(servers), LIMITS, probe=probe)
    try:
        await pool.start()
        await pool.load_weights(Somewhere("somewhere", (), model), 3)
        outputs = await asyncio.gather(*(pool.generate(request) for request in REQUESTS))
        assert {output.weight_version for output in outputs} == {3}
        return [list(output.tokens) for output in outputs], pool.take()
    finally:
        await pool.close()


def test_whatever_servers_do_the_answers_are_those_of_one_that_is_well(tmp_path: Path) -> None:
    async def main() -> tuple[list[list[int]], list[list[int]], dict[str, float]]:
        async with AsyncExitStack() as stack:
            well = await stack.enter_async_context(FakeEngine())
            bad = [Slow(600.0), Malformed(Flaw.NAN_LOG_PROB), StaleVersion("2"), Disconnect()]
            scripts = [*bad, *[Answer()] * (COUNT - len(bad))]
            servers = [await stack.enter_async_context(FakeEngine(script)) for script in scripts]
            expected, _ = await answers_of([well], tmp_path)
            found, metrics = await answers_of(servers, tmp_path)
            return expected, found, metrics

    expected, found, metrics = asyncio.run(main())
    assert found == expected
    causes = {name.rpartition("/")[2]: count for name, count in metrics.items() if "/quarantined/" in name}
    assert causes == {"hung": 1, "garbage": 1, "stale": 1, "errors": 1}
