"""Engines behind a router: routing of requests, and failures of servers or of the router.

The router is a stand-in that speaks the wire of smg and sglang-router; test_routers.py has the real ones.
"""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from fake_server_engines import setup_at

from slime_core.catalog.catalog import BuiltChoice
from slime_core.errors import WorkerError
from slime_core.roles import Engine, Extra, FinishReason, GenerateRequest, Launcher, SamplingParams
from slime_core.rollout import EnginePool, Limits
from slime_engine_sglang import router as router_module
from slime_engine_sglang.engine import SglangEngine
from slime_engine_sglang.plugin import slime_engines
from slime_engine_sglang.server import Server
from slime_engine_sglang.settings import SglangSettings
from slime_testing import make_launcher, publish_model, write_tiny_model
from slime_testing.fake_engine import Answer, Behaviour, Ended, FailThenOk, FakeEngine, Slow

STUB = Path(__file__).with_name("stub_router.py")
PLAIN = GenerateRequest((5, 6, 7), SamplingParams(8, ignore_eos=True), 3)
LIMITS = Limits(silence_s=60.0, restart_s=30.0, probe_s=30.0, load_s=30.0)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python that runs the fake server for any command."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {STUB} "$@"\n', "utf-8")
    path.chmod(0o755)
    return path


class Run:
    """Servers and a factory of engines that use them."""

    def __init__(self, scratch: Path, servers: Sequence[FakeEngine], launcher: Launcher, router: object) -> None:
        self.scratch, self.servers, self.launcher = scratch, servers, launcher
        self.model = write_tiny_model(scratch / "model")
        urls = [each.url for each in servers]
        self.settings = SglangSettings.model_validate({"urls": urls, "router": router})
        self.engines: dict[int, SglangEngine] = {}

    def used(self, number: int) -> BuiltChoice[Engine]:
        return BuiltChoice("sglang", "tests", self.engine(number))

    def engine(self, number: int) -> SglangEngine:
        scratch = self.scratch / f"engine-{number}"
        scratch.mkdir(exist_ok=True)
        more = {"launcher": self.launcher, "number": number, "count": len(self.servers)}
        self.engines[number] = SglangEngine(self.settings, setup_at(scratch, self.model, **more))
        return self.engines[number]

    def answers(self) -> list[int]:
        """Number of responses of each server, without a probe's responses of one token."""
        return [
            sum(each.ended is Ended.ANSWERED and len(each.tokens) != 1 for each in server.generations)
            for server in self.servers
        ]

    @property
    def router(self) -> Server | None:
        """The router, if requests go to it."""
        engine = self.engines[0]
        return engine.fleet.router_for(engine.server, PLAIN)

    @property
    def router_pid(self) -> int | None:
        router = self.router
        return router and int(router.title.partition("pid ")[2].partition(")")[0])

    async def listed(self, server: FakeEngine) -> bool:
        """Whether the router lists a server."""
        assert self.router is not None
        return server.url in [each["url"] for each in (await self.router.ask("/workers"))["workers"]]  # type: ignore[index,union-attr]

    async def published(self, pool: EnginePool, version: int) -> None:
        await pool.load_weights(await asyncio.to_thread(publish_model, self.model, self.scratch, version), version)

    async def joined(self, pool: EnginePool) -> None:
        """Wait until all servers are behind the router."""
        engine = self.engines[0]
        while len(engine.fleet.possible_servers(engine.server)) < len(self.servers):
            await asyncio.gather(*(pool.generate(PLAIN) for _ in self.servers))
            await asyncio.sleep(0.02)


@asynccontextmanager
async def behind_a_router(
    scratch: Path, *scripts: Sequence[Behaviour], **router: object
) -> AsyncIterator[tuple[Run, EnginePool]]:
    """A pool of engines whose servers are all behind a router."""
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        servers = [await stack.enter_async_context(FakeEngine(*script)) for script in scripts]
        launcher = make_launcher(scratch / "logs")
        stack.push_async_callback(launcher.close)
        run = Run(scratch, servers, launcher, router)
        pool = EnginePool(run.used, len(run.servers), LIMITS, probe=replace(PLAIN, sampling=SamplingParams(1)))
        stack.push_async_callback(pool.close)
        await pool.start()
        await run.published(pool, 0)
        await run.joined(pool)
        yield run, pool


async def test_router_balances_and_servers_are_controlled_directly(tmp_path: Path, python: Path) -> None:
    async with behind_a_router(tmp_path, (), (), python=str(python)) as (run, pool):
        before = run.answers()
        for _ in range(10):  # for single requests the pool uses only its first engine
            await pool.generate(PLAIN)
        assert [after - was for after, was in zip(run.answers(), before, strict=True)] == [5, 5]
        await run.published(pool, 1)
        assert {(await pool.generate(PLAIN)).weight_version for _ in range(4)} == {1}
    for server in run.servers:
        steered = Counter(each.path for each in server.received)
        assert steered["/update_weights_from_disk"] == 2


async def test_a_session_stays_with_a_server(tmp_path: Path, python: Path) -> None:
    async with behind_a_router(tmp_path, (), (), python=str(python)) as (run, pool):
        before = run.answers()
        for _ in range(6):
            await pool.generate(replace(PLAIN, session="s"))
        assert sorted(after - was for after, was in zip(run.answers(), before, strict=True)) == [0, 6]
    keys = {each.headers.get("x-smg-routing-key") for server in run.servers for each in server.received}
    assert keys <= {None, "s"}


async def test_requests_through_the_router_are_aborted(tmp_path: Path, python: Path) -> None:
    async with behind_a_router(tmp_path, [Slow(3.0)], [Slow(3.0)], python=str(python)) as (run, pool):
        running = [asyncio.create_task(pool.generate(PLAIN)) for _ in range(8)]
        while sum(len(server.running) for server in run.servers) < 8:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        running[0].cancel()
        while sum(len(server.running) for server in run.servers) == 8:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await pool.abort()
        assert {(await each).finish for each in running[1:]} == {FinishReason.ABORT}
        assert [server.running for server in run.servers] == [(), ()]


async def test_failed_router_requests_go_to_the_own_server(tmp_path: Path, python: Path) -> None:
    def failed(run: Run) -> int:
        return sum(each.ended is Ended.FAILED for each in run.servers[1].generations)

    fails = [Answer()] * 100 + [FailThenOk(500, times=1)]
    async with behind_a_router(tmp_path, (), fails, python=str(python)) as (run, pool):
        assert failed(run) == 0  # joining used fewer responses than the script's successful ones
        while not failed(run):
            outputs = await asyncio.gather(*(pool.generate(PLAIN) for _ in range(4)))
            assert [len(each.tokens) for each in outputs] == [8] * 4
        assert pool.serving == (0, 1)
    assert failed(run) == 1


async def test_router_death_loses_no_request(tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_module, "ANSWER_S", 1.0)
    monkeypatch.setattr(router_module, "RESTART_S", 0.1)
    async with behind_a_router(tmp_path, [Slow(0.5)], [Slow(0.5)], python=str(python)) as (run, pool):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            running = [asyncio.create_task(pool.generate(PLAIN)) for _ in range(8)]
            await asyncio.sleep(0.2)
            pid = run.router_pid
            assert pid is not None
            os.kill(pid, number)
            assert [len((await each).tokens) for each in running] == [8] * 8
            assert pool.serving == (0, 1)
            while run.router_pid in (pid, None):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


async def test_quarantined_server_leaves_and_rejoins_the_router(tmp_path: Path, python: Path) -> None:
    async with behind_a_router(tmp_path, (), (), python=str(python)) as (run, pool):
        engine, dead = run.engines[0], run.engines[1].server

        async def die() -> None:
            raise WorkerError("it ended")

        run.engines[1].abort = die  # type: ignore[method-assign]
        await pool.abort()
        while dead in engine.fleet.possible_servers(engine.server):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while await run.listed(run.servers[1]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        outputs = await asyncio.gather(*(pool.generate(PLAIN) for _ in range(4)))
        assert len(outputs) == 4
        while pool.serving != (0, 1):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await run.joined(pool)
        assert await run.listed(run.servers[1])


async def test_failed_router_start_shows_its_log(tmp_path: Path, python: Path) -> None:
    with pytest.raises(WorkerError, match=r"(?s)unrecognized arguments: --fail.*the router, process \d+, ended with"):
        async with behind_a_router(tmp_path, (), python=str(python), args={"fail": True}):
            raise AssertionError("it has started")


def test_extras_dropped_by_a_router_are_withheld() -> None:
    spec = next(iter(slime_engines()))
    for use, withheld in (("smg", frozenset()), ("sglang-router", {Extra.ROUTED_EXPERTS, Extra.TOP_P_TOKENS})):
        settings = SglangSettings.model_validate({"urls": ["http://a:1"], "router": {"use": use}})
        assert spec.excluded_extras(settings) == withheld
    assert spec.excluded_extras(SglangSettings.model_validate({"urls": ["http://a:1"]})) == frozenset()


def test_run_controlled_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="port cannot be set, because it follows from the run"):
        SglangSettings.model_validate({"urls": ["http://a:1"], "router": {"args": {"--port": 3}}})
    with pytest.raises(ValueError, match="/nowhere/python does not exist"):
        SglangSettings.model_validate({"urls": ["http://a:1"], "router": {"python": "/nowhere/python"}})
