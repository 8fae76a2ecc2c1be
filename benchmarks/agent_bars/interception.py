"""verifiers' interception server on the requests of bar 2, before a client that answers in its own process.

Run by `overhead.py` with the Python that has verifiers. Nothing is rendered, encoded or read there: what its trainers'
client would do with tokens comes on top, so this is the least that a turn costs it.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

from verifiers.v1.agent import AgentConfig  # type: ignore[import-not-found]
from verifiers.v1.clients import Client, EvalClientConfig, ModelContext  # type: ignore[import-not-found]
from verifiers.v1.clients.train import serialize_completion  # type: ignore[import-not-found]
from verifiers.v1.interception import InterceptionServer  # type: ignore[import-not-found]
from verifiers.v1.session import RolloutSession  # type: ignore[import-not-found]
from verifiers.v1.task import TaskData  # type: ignore[import-not-found]
from verifiers.v1.trace import AgentInfo, Trace, TraceTask  # type: ignore[import-not-found]
from verifiers.v1.types import AssistantMessage, Response, ToolCall, Usage  # type: ignore[import-not-found]

from agent_bars.clients import talked
from slime_core.run.session import settled_heap


class Answering(Client):  # type: ignore[misc]
    """Answers every call alike, after a while."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s, self._calls = delay_s, 0

    async def get_response(self, dialect: object, body: Mapping[str, Any], *_: object, **__: object) -> Response:
        """What `overhead.ANSWER` says."""
        await asyncio.sleep(self._delay_s)
        self._calls += 1
        call = ToolCall(id=f"call_{self._calls}", name="look_up", arguments='{"query": "Rhone", "limit": 3}')
        thought = "The next thing to look up is the river."
        said = AssistantMessage(content="Looking it up.", reasoning_content=thought, tool_calls=[call])
        response = Response(
            id=f"chatcmpl_{self._calls}",
            created=0,
            model="policy",
            message=said,
            finish_reason="tool_calls",
            usage=Usage(prompt_tokens=3000, completion_tokens=74),
        )
        response.raw = serialize_completion(response, "policy")
        return response


async def measured(sessions: int, turns: int, delay_s: float) -> dict[str, float]:
    """CPU milliseconds a turn."""
    context = ModelContext("policy", EvalClientConfig(base_url="http://127.0.0.1:9/v1"))
    client = Answering(delay_s)
    async with InterceptionServer() as server:
        made = [RolloutSession(context, _trace()) for _ in range(sessions)]
        keys = [server.register(session)[0] for session in made]
        for session in made:
            session.client = client
        with settled_heap():
            arguments = [turns, False, *([server.base_url, key] for key in keys)]
            spent = await talked("agent_bars.overhead", arguments)
    nodes = {len(session.trace.nodes) for session in made}
    if nodes != {2 * turns + 1}:
        raise SystemExit(f"verifiers' traces have {sorted(nodes)} messages; expected {2 * turns + 1}")
    return {"cpu_ms_per_turn": round(spent.cpu_s / (sessions * turns) * 1e3, 3)}


def _trace() -> Trace:
    return Trace(task=TraceTask(type="Task", data=TaskData()), agent=AgentInfo(config=AgentConfig()))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured(*json.loads(sys.argv[1])))))
