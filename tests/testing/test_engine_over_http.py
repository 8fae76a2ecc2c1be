"""An engine that speaks to a server, as one for SGLang does, judged by the contract with a fake one behind it."""

import asyncio
import base64
import json
import uuid
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest

from slime_core.errors import ModelError, WorkerError
from slime_core.roles import (
    Engine,
    EngineExtras,
    EngineSetup,
    EngineSpec,
    Extra,
    FinishReason,
    GenerateOutput,
    GenerateRequest,
    Settings,
    WeightChannel,
    WorkerGroup,
    WorkerGroupSpec,
)
from slime_core.sample import Json, PrefixCacheInfo
from slime_testing import EngineContract
from slime_testing.fake_engine import FakeEngine, Slow
from tests.channels import Somewhere


class HttpSettings(Settings):
    url: str


class HttpEngine:
    """One connection for each request; aborts on the server what is cancelled here."""

    def __init__(self, settings: HttpSettings) -> None:
        self.address = urlsplit(settings.url)
        self.closed = False
        self.under_way: set[str] = set()

    async def start(self) -> None:
        await self.post("/continue_generation", {})

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        await self.post("/pause_generation", {"mode": "in_place"})
        assert isinstance(channel, Somewhere)
        body: Json = {"model_path": str(channel.path), "weight_version": str(version), "flush_cache": False}
        await self.post("/update_weights_from_disk", body)
        await self.post("/continue_generation", {})

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        heeded = ("temperature", "top_p", "top_k", "stop_token_ids", "ignore_eos", "min_new_tokens")
        if others := request.sampling.besides(*heeded):
            raise ModelError(f"the server's policy does not heed {', '.join(others)}")
        if others := request.besides(Extra.ROUTED_EXPERTS):
            raise ModelError(f"the server does not do {', '.join(others)}")
        sampling: Json = {
            "max_new_tokens": request.sampling.max_new_tokens,
            "temperature": request.sampling.temperature,
            "top_p": request.sampling.top_p,
            "top_k": request.sampling.top_k,
            "stop_token_ids": sorted(request.sampling.stop_token_ids),
            "ignore_eos": request.sampling.ignore_eos,
            "min_new_tokens": request.sampling.min_new_tokens,
            "sampling_seed": request.seed,
        }
        rid = uuid.uuid4().hex
        body: Json = {
            "rid": rid,
            "input_ids": list(request.prompt),
            "sampling_params": sampling,
            "return_logprob": True,
            "return_routed_experts": Extra.ROUTED_EXPERTS in request.want,
        }
        self.under_way.add(rid)
        try:
            answer = await self.post("/generate", body)
        except asyncio.CancelledError:
            await self.post("/abort_request", {"rid": rid})
            raise
        finally:
            self.under_way.remove(rid)
        meta = answer["meta_info"]
        log_probs, tokens = [[entry[part] for entry in meta["output_token_logprobs"]] for part in range(2)]
        spans = tuple((each["end"] - each["start"], int(each["version"])) for each in meta["weight_versions"])
        experts = base64.b64decode(meta["routed_experts"]) if "routed_experts" in meta else None
        extras = EngineExtras(
            versions=spans,
            prefix_cache_info=PrefixCacheInfo(meta["cached_tokens"], meta["prompt_tokens"]),
            routed_experts=None if experts is None else array("i", experts),
            server=self.address.netloc,
            retractions=meta["num_retractions"],
        )
        version = spans[0][1] if spans else int(meta["weight_version"])
        finish = FinishReason(meta["finish_reason"]["type"])
        return GenerateOutput(tokens, log_probs, finish, version, extras=extras)

    async def abort(self) -> None:
        """Again and again until all that was asked is gone: the server cannot abort what has not arrived."""
        before = set(self.under_way)
        while before & self.under_way:
            await self.post("/abort_request", {"abort_all": True})
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        if not self.closed:
            await self.abort()
        self.closed = True

    async def post(self, path: str, body: Json) -> dict:
        if self.closed:
            raise WorkerError(f"{self.address.netloc}: the engine is closed")
        reader, writer = await asyncio.open_connection(self.address.hostname, self.address.port)
        try:
            payload = json.dumps(body).encode()
            head = f"POST {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {len(payload)}\r\n\r\n"
            writer.write(head.encode() + payload)
            head, _, found = (await reader.read()).decode().partition("\r\n\r\n")
        finally:
            writer.close()
            await writer.wait_closed()
        answer = json.loads(found or "{}")
        if " 200 " not in head.partition("\r\n")[0]:
            raise ModelError(f"{path}: {answer}")
        return answer


class NoLauncher:
    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> WorkerGroup:
        raise WorkerError("servers are started by others")

    async def close(self) -> None:
        pass


def build(settings: HttpSettings, setup: EngineSetup) -> Engine:
    return HttpEngine(settings)


class TestOverHttp(EngineContract):
    choice = EngineSpec("http", build, HttpSettings, transports=("somewhere",), gives=frozenset({Extra.ROUTED_EXPERTS}))
    too_long = 5000
    server: ClassVar[FakeEngine]
    settings: ClassVar[Mapping[str, object]]

    @pytest.fixture(autouse=True)
    def _serve(self) -> Iterator[None]:
        with FakeEngine(Slow(0.05)) as server:
            type(self).server, type(self).settings = server, {"url": server.url}
            yield

    def make_setup(self, scratch: Path) -> EngineSetup:
        return EngineSetup(
            self.make, 1, hf_checkpoint=scratch, eos_token_ids=frozenset({0}), launcher=NoLauncher(), scratch=scratch
        )

    def publish(self, setup: EngineSetup, version: int) -> WeightChannel:
        (folder := setup.scratch / str(version)).mkdir()
        return Somewhere("somewhere", (), folder)

    def running(self, engine: Engine) -> int:
        return len(self.server.running)
