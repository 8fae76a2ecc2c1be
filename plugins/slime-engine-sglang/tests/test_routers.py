"""The real routers smg and sglang-router with fake servers: requests that they forward."""

from dataclasses import replace
from pathlib import Path

import pytest
from servers import needs_routers
from test_router import PLAIN, behind_a_router

from slime_core.roles import Extra, GenerateChunk, SamplingParams
from slime_engine_sglang.settings import DROPPED_EXTRAS

pytestmark = [pytest.mark.server, pytest.mark.timeout(300), pytest.mark.parametrize("use", ["smg", "sglang-router"])]

REQUEST = replace(
    PLAIN,
    sampling=SamplingParams(8, 0.7, top_p=0.9, top_k=5, stop_token_ids=frozenset({9}), stop=("ab",), ignore_eos=True),
    want=frozenset({Extra.ROUTED_EXPERTS, Extra.TOP_P_TOKENS}),
)


async def test_router_forwards_requests_unchanged(tmp_path: Path, use: str) -> None:
    python = needs_routers()
    async with behind_a_router(tmp_path, (), (), python=str(python), use=use, policy="round_robin") as (run, pool):
        fleet, own = run.engines[0].fleet, run.engines[0].server
        request = replace(REQUEST, want=REQUEST.want - DROPPED_EXTRAS[use])
        assert fleet.router_for(own, request) is not None
        if DROPPED_EXTRAS[use]:
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
            sent = each.body["sampling_params"]  # type: ignore[index,call-overload]
            assert (sent["temperature"], sent["top_p"], sent["stop"], sent["ignore_eos"]) == (0.7, 0.9, ["ab"], True)
            assert (sent["sampling_seed"], sent["stop_token_ids"], sent["no_stop_trim"]) == (3, [0, 9], True)
