"""The transports `distributed` and `tensor`: rank 0 and two server processes, one of which fails at any step."""

import asyncio
import hashlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fake_server_engines import no_choice, setup_at

from slime_core.errors import ModelError, SlimeError, WorkerError
from slime_core.roles import GenerateRequest, SamplingParams, TransportSetup, WeightSender, WeightSlot
from slime_engine_sglang.checkpoint import weight_shapes
from slime_engine_sglang.collective.sender import fill_buckets
from slime_engine_sglang.collective.transports import (
    CollectiveChannel,
    Distributed,
    DistributedSettings,
    Tensor,
    TensorChannel,
    TensorSettings,
)
from slime_engine_sglang.engine import SglangEngine
from slime_engine_sglang.settings import SglangSettings
from slime_engine_sglang.weights import ServerHangs
from slime_testing import write_tiny_model

RECEIVER = Path(__file__).with_name("receiver.py")
BEGIN, JOIN, END = "/begin_weight_update", "/init_weights_update_group", "/end_weight_update"
UPDATE = {"distributed": "/update_weights_from_distributed", "tensor": "/update_weights_from_tensor"}
KINDS = sorted(UPDATE)


@pytest.fixture(scope="module")
def all_urls() -> Iterator[list[str]]:
    """Addresses of two servers and of a server of a release without sessions."""
    releases = ("0.5.23", "0.5.23", "0.5.19")
    servers = [subprocess.Popen([sys.executable, str(RECEIVER), each], stdout=subprocess.PIPE) for each in releases]
    try:
        ports = [int(server.stdout.readline()) for server in servers if server.stdout is not None]
        yield [f"http://127.0.0.1:{port}" for port in ports]
    finally:
        for server in servers:
            server.kill()
            server.communicate()


@pytest.fixture
def urls(all_urls: list[str]) -> list[str]:
    """Addresses of two servers without recorded calls."""
    for url in all_urls:
        fail(url, "")
    return all_urls[:2]


async def opened(kind: str, folder: Path, slots: list[WeightSlot], **given: object) -> CollectiveChannel:
    setup = TransportSetup(no_choice, 0, scratch=folder)
    given = {"bucket_mb": 0.02, "timeout_s": 20.0, **given}
    if kind == "tensor":
        return await Tensor(TensorSettings.model_validate(given), setup).open(slots)
    return await Distributed(DistributedSettings.model_validate(given), setup).open(slots)


def server_state(url: str) -> dict:
    with urllib.request.urlopen(f"{url}/state", timeout=30) as reply:
        found: dict = json.load(reply)
    return found


def fail(url: str, path: str) -> None:
    urllib.request.urlopen(f"{url}/fail", json.dumps({"path": path}).encode(), timeout=30).close()


class Run:
    """Rank 0 in a thread, and one engine per server, as in a run."""

    channel: CollectiveChannel
    sender: WeightSender

    def __init__(self, folder: Path, urls: list[str]) -> None:
        (folder / "sent").mkdir()
        self.model = write_tiny_model(folder / "model")
        self.slots = [WeightSlot(name, shape) for name, shape in weight_shapes(self.model).items()]
        self.settings = SglangSettings.model_validate({"urls": urls})
        self.setup = setup_at(folder / "engine", self.model, count=len(urls))
        self.numbers: dict[SglangEngine, int] = {}
        self.engines = [self.engine(number) for number in range(len(urls))]

    def weights(self, version: int) -> dict[str, torch.Tensor]:
        return {slot.name: torch.full(slot.shape, version + 0.5) for slot in self.channel.slots}

    def engine(self, number: int) -> SglangEngine:
        engine = SglangEngine(self.settings, replace(self.setup, number=number))
        self.numbers[engine] = number
        return engine

    async def publish(
        self, version: int, engines: list[SglangEngine] | None = None, weights: dict[str, torch.Tensor] | None = None
    ) -> list[object]:
        """Errors of the sender and of each engine; None for success."""
        loading = engines or self.engines
        buckets = iter((weights or self.weights(version)).items())
        sending = asyncio.to_thread(self.sender.send, version, buckets, [self.numbers[each] for each in loading])
        loads = [engine.load_weights(self.channel, version) for engine in loading]
        return await asyncio.gather(sending, *loads, return_exceptions=True)


@asynccontextmanager
async def running(folder: Path, urls: list[str], kind: str = "distributed", **given: object) -> AsyncIterator[Run]:
    """A run whose engines have started."""
    run = Run(folder, urls)
    run.channel = await opened(kind, folder / "sent", run.slots, **given)
    run.sender = run.channel.sender(0, 2)
    for engine in run.engines:
        await engine.start()
    yield run
    for engine in run.engines:
        await engine.close()
    run.sender.close()


async def serves(engine: SglangEngine) -> int:
    """The weight version of an engine's response."""
    return (await engine.generate(GenerateRequest([5], SamplingParams(1), 0))).weight_version


def sums(weights: dict[str, torch.Tensor]) -> dict[str, str]:
    return {name: hashlib.sha256(each.numpy().tobytes()).hexdigest() for name, each in sorted(weights.items())}


@pytest.mark.parametrize("kind", KINDS)
async def test_all_servers_receive_each_version(tmp_path: Path, urls: list[str], kind: str) -> None:
    async with running(tmp_path, urls, kind) as run:
        engines = run.engines
        for version in range(3):
            assert await run.publish(version) == [None] * 3
            for url in urls:
                server = server_state(url)
                assert server["sums"] == sums(run.weights(version))
                assert (server["version"], server["session"], server["paused"]) == (str(version), False, False)
            assert [await serves(engine) for engine in engines] == [version] * 2
        calls = server_state(urls[0])["calls"]
        assert calls.count(JOIN) == (kind == "distributed")
        assert calls.count(UPDATE[kind]) > 3 * 3
        # A late engine receives the version alone; the next version goes to all engines again.
        assert await run.publish(2, engines[1:]) == [None] * 2
        assert await run.publish(3) == [None] * 3
        assert [server_state(url)["sums"] == sums(run.weights(3)) for url in urls] == [True, True]
        assert max(server_state(url)["groups"] for url in urls) <= 2


@pytest.mark.parametrize("step", ["/pause_generation", BEGIN])
async def test_server_failing_before_weights_is_skipped(tmp_path: Path, urls: list[str], step: str) -> None:
    async with running(tmp_path, urls) as run:
        engines = run.engines
        assert await run.publish(0) == [None] * 3
        fail(urls[1], step)
        sent, good, bad = await run.publish(1)
        assert (sent, good) == (None, None)
        assert isinstance(bad, SlimeError)
        states = [server_state(url)["sums"] for url in urls]
        assert states == [sums(run.weights(1)), sums(run.weights(0))]
        assert [await serves(engine) for engine in engines] == [1, 0]
        assert not server_state(urls[1])["session"]
        fail(urls[1], "")
        assert await run.publish(2) == [None] * 3


@pytest.mark.parametrize(
    ("kind", "step"), [("distributed", JOIN), *((kind, UPDATE[kind]) for kind in KINDS), ("distributed", END)]
)
async def test_server_failing_during_weights_needs_them_again(
    tmp_path: Path, urls: list[str], kind: str, step: str
) -> None:
    async with running(tmp_path, urls, kind) as run:
        fail(urls[1], step)
        sent, good, bad = await run.publish(0)
        assert sent is None  # the engines report the failure
        assert isinstance(bad, WorkerError)
        if step == END:  # it received all weights but has not switched to them
            assert good is None
        else:
            assert isinstance(good, ServerHangs if step == JOIN else WorkerError)
        fail(urls[1], "")
        for number in [1] if step == END else [0, 1]:  # as the run does for replaced engines
            again = run.engine(number)
            await again.start()
            assert await run.publish(0, [again]) == [None] * 2
            assert await serves(again) == 0
            await again.close()
        assert [server_state(url)["sums"] == sums(run.weights(0)) for url in urls] == [True, True]


async def test_partial_weights_of_a_failed_trainer_are_not_served(tmp_path: Path, urls: list[str]) -> None:
    async with running(tmp_path, urls[:1]) as run:
        (engine,) = run.engines

        def broken(after: int) -> Iterator[tuple[str, torch.Tensor]]:
            for number, each in enumerate(run.weights(1).items()):
                if number == after:
                    raise ValueError("no more of them")
                yield each

        async def fails(after: int) -> None:
            sending = asyncio.to_thread(run.sender.send, 1, broken(after), [0])
            sent, loaded = await asyncio.gather(sending, engine.load_weights(run.channel, 1), return_exceptions=True)
            assert isinstance(sent, ValueError)
            assert isinstance(loaded, WorkerError)
            assert "no more of them" in str(loaded)

        assert await run.publish(0) == [None] * 2
        await fails(0)
        assert await serves(engine) == 0  # no weights were sent
        await fails(12)
        with pytest.raises(WorkerError, match="version 0 of the weights was sent once and cannot be loaded again"):
            await serves(engine)
        assert await run.publish(2) == [None] * 2


async def test_mismatched_slots_are_refused_before_sending(tmp_path: Path, urls: list[str]) -> None:
    async with running(tmp_path, urls[:1]) as run:
        slots = (replace(run.slots[0], name="no.such.weight"), *run.slots[1:])
        with pytest.raises(ModelError, match=r"no\.such\.weight"):
            await run.engines[0].load_weights(replace(run.channel, slots=slots), 0)


async def test_old_releases_update_without_sessions(tmp_path: Path, all_urls: list[str]) -> None:
    old = all_urls[2]
    fail(old, "")
    async with running(tmp_path, [old]) as run:
        for version in range(2):
            assert await run.publish(version) == [None] * 2
            assert server_state(old)["sums"] == sums(run.weights(version))
        assert BEGIN not in server_state(old)["calls"]


def test_memory_handles_need_a_loopback_server(tmp_path: Path) -> None:
    channel = TensorChannel("tensor", (), tmp_path, "", TensorSettings())
    for url in ("http://127.0.0.1:30000", "http://localhost:30000", "http://[::1]:30000"):
        channel.check(url, 1)
    for url in ("http://10.0.0.7:30000", "http://gpu-7:30000"):
        with pytest.raises(ModelError, match=rf"loopback, not for {url}"):
            channel.check(url, 1)
    with pytest.raises(ModelError, match="runs with dp_size 2, and SGLang then loads weights only from files"):
        channel.check("http://localhost:30000", 2)


def test_buckets_hold_one_dtype() -> None:
    one, half = torch.arange(6.0).view(2, 3), torch.arange(4, dtype=torch.bfloat16)
    weights = [("a", one), ("b", one + 1), ("c", one), ("d", half), ("e", torch.tensor(7.0))]
    bucket = torch.empty(50, dtype=torch.uint8)
    found = []
    for views in fill_buckets(iter(weights), bucket):
        found.append([name for name, _ in views])
        for name, view in views:
            assert torch.equal(view, dict(weights)[name])
            assert view.untyped_storage().data_ptr() == bucket.data_ptr()
    assert found == [["a", "b"], ["c"], ["d"], ["e"]]
