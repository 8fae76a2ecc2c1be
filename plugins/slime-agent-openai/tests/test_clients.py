"""Unmodified clients against the gateway: one sample each, and every token of the model in it."""

import asyncio

import anthropic
from sdk_scripts import clients
from serving import There, served
from talker import Talker
from tool_loop import CALLS, run

from slime_core.data import HfTokenizer
from tests.tables import table


def talker_of(tokenizer: HfTokenizer) -> Talker:
    """Three turns, with reasoning, two calls at once, and JSON as models write it."""
    return Talker(tokenizer, lambda text, turn: CALLS[turn])


@table("stream", [False, True])
@table("name", ["openai_chat", "openai_responses", "anthropic_messages", "openai_agents"])
def test_clients_run_a_tool_loop(tokenizer: HfTokenizer, name: str, stream: bool) -> None:
    """The clients that test_client_versions.py runs in other releases."""

    async def client(there: There) -> str:
        return await asyncio.to_thread(getattr(clients, name), there.url, stream)

    run(talker_of(tokenizer), client)


def test_client_restarts_a_lost_thread(tokenizer: HfTokenizer) -> None:
    talker = Talker(tokenizer, lambda text, turn: f"Answer {turn}")

    async def whole() -> None:
        async with served(talker) as there, served(talker) as elsewhere:
            asked = {"model": "policy", "max_tokens": 200, "messages": [{"role": "user", "content": "Sure?"}]}
            lost = {"type": "continue", "previous_message_id": "msg_unheard_of"}
            status, body = await there.post("messages", {**asked, "thread": lost})
            told = body["error"]["details"]  # type: ignore[index]
            assert (status, told) == (404, {"error_code": "thread_not_found", "param": "thread.previous_message_id"})
            async with anthropic.AsyncAnthropic(base_url=there.url, api_key="any") as ask:
                thread = ask.beta.messages.thread(model="policy", max_tokens=200)
                first = await thread.send({"role": "user", "content": "One?"})
                ask.base_url = elsewhere.url
                second = await thread.send({"role": "user", "content": "Two?"})
                third = await thread.send({"role": "user", "content": "Three?"})
            assert [each.content[0].text for each in (first, second, third)] == ["Answer 0", "Answer 1", "Answer 2"]
            counts = elsewhere.session.forest.counts
            assert (counts.turns, counts.bridged) == (2, 1)

    asyncio.run(asyncio.wait_for(whole(), 60))
