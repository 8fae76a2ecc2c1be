"""The real routers, smg and sglang-router, before fake servers: what they pass on, and how they come back."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from servers import needs_routers
from test_router import PLAIN, behind_a_router

from slime_core.roles import Extra, GenerateChunk, SamplingParams
from slime_engine_sglang.router import Router
from slime_engine_sglang.settings import LEAVES_OUT, RouterSettings
from slime_testing import make_launcher
from slime_testing.fake_engine import FakeEngine, Slow

pytestmark = [pytest.mark.server, pytest.mark.timeout(300), pytest.mark.parametrize("use", ["smg", "sglang-router"])]

REQUEST = replace(
    PLAIN,
    sampling=SamplingParams(8, 0.7, top_p=0.9, top_k=5, stop_token_ids=frozenset({9}), stop=("ab",), ignore_eos=True),
    want=frozenset({Extra.ROUTED_EXPERTS, Extra.TOP_P_TOKENS}),
)


async def test_a_request_is_passed_on_as_it_is(tmp_path: Path, use: str) -> None:
    python = needs_routers()
    async with behind_a_router(tmp_path, (), (), python=str(python), use=use, policy="round_robin") as (run, pool):
        fleet, own = run.made[0].fleet, run.made[0].server
        request = replace(REQUEST, want=REQUEST.want - LEAVES_OUT[use])
        assert fleet.router_for(own, request) is not None
        if LEAVES_OUT[use]:
            assert fleet.router_for(own, REQUEST) is None
        before = [len(server.received) for server in run.servers]
        output = await pool.generate(replace(request, session="s"))
        assert len(output.tokens) == 8
        assert output.extras is not None
        assert not any(output.extras.lacks(extra) for extra in request.want - {Extra.ROUTED_EXPERTS})
        chunks: list[GenerateChunk] = []
        await pool.generate(request, chunks.append)
        assert sum(len(chunk.tokens) for chunk in chunks) == 8
        came = [
            each
            for server, start in zip(run.servers, before, strict=True)
            for each in server.received[start:]
            if each.path == "/generate"
        ]
        assert {each.headers.get("x-smg-routing-key") for each in came} == {"s", None}
        for each in came:
            told = each.body["sampling_params"]  # type: ignore[index,call-overload]
            assert (told["temperature"], told["top_p"], told["stop"], told["ignore_eos"]) == (0.7, 0.9, ["ab"], True)
            assert (told["sampling_seed"], told["stop_token_ids"], told["no_stop_trim"]) == (3, [0, 9], True)


async def test_both_servers_are_dealt_to_and_a_router_that_is_killed_comes_back(tmp_path: Path, use: str) -> None:
    python = needs_routers()
    given, slow = {"python": str(python), "use": use, "policy": "round_robin"}, [Slow(0.5)]
    async with behind_a_router(tmp_path, slow, slow, **given) as (run, pool):
        before = run.answers()
        for _ in range(10):
            await pool.generate(PLAIN)
        assert all(after > was for after, was in zip(run.answers(), before, strict=True))
        for number in (signal.SIGKILL, signal.SIGSTOP):
            asked = [asyncio.create_task(pool.generate(PLAIN)) for _ in range(8)]
            await asyncio.sleep(0.2)
            pid = run.router_pid
            assert pid is not None
            os.kill(pid, number)
            assert [len((await each).tokens) for each in asked] == [8] * 8
            while run.router_pid in (pid, None):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert pool.serving == (0, 1)


async def test_a_server_is_taken_out_and_put_back(tmp_path: Path, use: str) -> None:
    settings = RouterSettings.model_validate({"python": str(needs_routers()), "use": use, "policy": "manual"})
    launcher = make_launcher(tmp_path / "logs")
    router = Router(settings, launcher, within_s=60.0)

    async def listed() -> set[object]:
        workers = (await router.server.ask("/workers"))["workers"]
        return {each["url"] for each in workers}  # type: ignore[index,union-attr]

    try:
        async with FakeEngine() as one, FakeEngine() as other:
            await router.start()
            for server in (one, other):
                await router.add(server.url)
            assert await listed() == {one.url, other.url}
            await router.remove(other.url)
            async with asyncio.timeout(20):
                while await listed() != {one.url}:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await router.add(other.url)
            assert await listed() == {one.url, other.url}
    finally:
        await router.close()
        await launcher.close()
