"""Conversations on the server's side, as OpenAI's client and its agents use them: one sample, nothing written anew."""

import asyncio
from collections.abc import Awaitable, Callable

import agents
import openai
import pytest
from agents.models.openai_responses import OpenAIResponsesModel
from chat import load_chat
from serving import There, served
from talker import Talker

from slime_core.data import HfTokenizer

ADD = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}
CALLS = (
    '<think>\nHm.\n</think>\n\nAdding.\n<tool_call>\n{"name": "add",  "arguments": {"a": 17, "b": 25}}\n</tool_call>'
)
SAYS = [CALLS, "<think>\nSum.\n</think>\n\nIt is 42.", "Quite sure."]
agents.set_tracing_disabled(True)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    return load_chat(tmp_path_factory.mktemp("chatml"))


@pytest.fixture
def talker(tokenizer: HfTokenizer) -> Talker:
    return Talker(tokenizer, lambda text, turn: SAYS[turn % 3])


def play(talker: Talker, act: Callable[[There, openai.AsyncOpenAI], Awaitable[None]]) -> None:
    async def run() -> None:
        async with (
            served(talker, max_new_tokens=2000) as there,
            openai.AsyncOpenAI(base_url=f"{there.url}/v1", api_key="key", max_retries=0) as client,
        ):
            await asyncio.wait_for(act(there, client), 30)

    asyncio.run(run())


def assert_one_sample(there: There, talker: Talker) -> None:
    """Every turn went on from exactly what the engine saw and made before."""
    assert len(list(there.session.forest.chains())) == 1
    for before, after in zip(talker.log, talker.log[1:], strict=False):
        seen = (*before.prompt, *before.output)
        assert after.prompt[: len(seen)] == seen


async def items_of(client: openai.AsyncOpenAI, conversation: str) -> list[tuple[str, str]]:
    """Types and texts of all items, the first one first."""
    found = []
    async for item in client.conversations.items.list(conversation, order="asc", limit=2):
        text = item.content[0].text if item.type in ("message", "reasoning") else ""
        found.append((item.type, text))
    return found


@pytest.mark.parametrize("streams", [False, True])
def test_a_conversation_holds_the_history(talker: Talker, streams: bool) -> None:
    async def act(there: There, client: openai.AsyncOpenAI) -> None:
        async def ask(said: object, conversation: object) -> openai.types.responses.Response:
            asked = {"model": "m", "input": said, "conversation": conversation, "tools": [ADD]}
            if not streams:
                return await client.responses.create(**asked)
            async with client.responses.stream(**asked) as stream:
                return await stream.get_final_response()

        begun = await client.conversations.create(metadata={"task": "7"})
        first = await ask("What is 17 + 25?", begun.id)
        assert first.conversation.id == begun.id
        assert first.previous_response_id is None
        answer = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "42"}
        second = await ask([answer], {"id": begun.id})
        assert second.output_text == "It is 42."
        await client.conversations.items.create(begun.id, items=[{"role": "user", "content": "Are you"}])
        assert (await ask("sure?", begun.id)).output_text == "Quite sure."
        assert await items_of(client, begun.id) == [
            ("message", "What is 17 + 25?"),
            ("reasoning", "Hm."),
            ("message", "Adding."),
            ("function_call", ""),
            ("function_call_output", ""),
            ("reasoning", "Sum."),
            ("message", "It is 42."),
            ("message", "Are you"),
            ("message", "sure?"),
            ("message", "Quite sure."),
        ]
        assert_one_sample(there, talker)

    play(talker, act)


def test_agents_go_on_with_a_conversation(talker: Talker) -> None:
    @agents.function_tool
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    async def act(there: There, client: openai.AsyncOpenAI) -> None:
        agent = agents.Agent("adder", instructions="Be brief.", tools=[add], model=OpenAIResponsesModel("m", client))
        begun = await client.conversations.create()
        result = await agents.Runner.run(agent, "What is 17 + 25?", conversation_id=begun.id)
        assert result.final_output == "It is 42."
        result = await agents.Runner.run(agent, "Sure?", conversation_id=begun.id)
        assert result.final_output == "Quite sure."
        assert_one_sample(there, talker)

    play(talker, act)


def test_agents_keep_their_sessions_in_a_conversation(talker: Talker) -> None:
    @agents.function_tool
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    async def act(there: There, client: openai.AsyncOpenAI) -> None:
        agent = agents.Agent("adder", tools=[add], model=OpenAIResponsesModel("m", client))
        session = agents.OpenAIConversationsSession(openai_client=client)
        await agents.Runner.run(agent, "What is 17 + 25?", session=session)
        result = await agents.Runner.run(agent, "Sure?", session=session)
        assert result.final_output == "Quite sure."
        assert_one_sample(there, talker)
        popped = await session.pop_item()
        assert popped["content"][0]["text"] == "Quite sure."
        assert [item.get("role") for item in await session.get_items(1)] == ["user"]
        await session.clear_session()

    play(talker, act)


def test_a_conversation_of_which_an_item_was_deleted_is_what_is_left(talker: Talker) -> None:
    async def act(there: There, client: openai.AsyncOpenAI) -> None:
        talker.says = lambda text, turn: f"Answer {turn}"
        begun = await client.conversations.create(items=[{"role": "developer", "content": "Be brief."}])
        for question in ("One?", "Two?"):
            await client.responses.create(model="m", input=question, conversation=begun.id)
        latest = await client.conversations.items.list(begun.id, limit=2)
        for item in latest.data:
            await client.conversations.items.delete(item.id, conversation_id=begun.id)
        await client.responses.create(model="m", input="Three?", conversation=begun.id)
        whole = talker.tokenizer.decode(talker.log[2].prompt)
        assert "Two?" not in whole
        seen = (*talker.log[0].prompt, *talker.log[0].output)
        assert talker.log[2].prompt[: len(seen)] == seen  # the first reply stays as the model made it
        assert there.session.forest.counts.forks == 0

    play(talker, act)


def test_two_requests_that_write_to_a_conversation_at_once_lose_nothing(talker: Talker) -> None:
    async def act(there: There, client: openai.AsyncOpenAI) -> None:
        talker.says = lambda text, turn: f"Answer {turn}"
        begun = await client.conversations.create()
        asked = [
            client.responses.create(model="m", input=question, conversation=begun.id) for question in ("One?", "Two?")
        ]
        await asyncio.gather(*asked)
        await client.responses.create(model="m", input="Three?", conversation=begun.id)
        whole = talker.tokenizer.decode(talker.log[2].prompt)
        assert all(said in whole for said in ("One?", "Two?", "Answer 0", "Answer 1", "Three?"))

    play(talker, act)


def test_a_reply_that_failed_adds_nothing(talker: Talker) -> None:
    async def act(there: There, client: openai.AsyncOpenAI) -> None:
        begun = await client.conversations.create()
        talker.says = lambda text, turn: str(1 / 0)
        with pytest.raises(openai.InternalServerError):
            await client.responses.create(model="m", input="One?", conversation=begun.id)
        assert await items_of(client, begun.id) == []

    play(talker, act)


def test_an_item_can_be_named_instead_of_sent(talker: Talker) -> None:
    async def act(there: There, client: openai.AsyncOpenAI) -> None:
        asked = [{"role": "user", "content": "What is 17 + 25?"}]
        first = await client.responses.create(model="m", input=asked, tools=[ADD])
        named = [{"type": "item_reference", "id": item.id} for item in first.output]
        answer = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "42"}
        second = await client.responses.create(model="m", input=[*asked, *named, answer], tools=[ADD])
        assert second.output_text == "It is 42."
        assert_one_sample(there, talker)
        with pytest.raises(openai.NotFoundError) as caught:
            await client.responses.create(model="m", input=[*asked, {"type": "item_reference", "id": "msg_0"}])
        assert (caught.value.code, caught.value.param) == ("item_not_found", "input[1]")

    play(talker, act)


def test_what_is_not_stored_can_neither_be_fetched_nor_gone_on_from(talker: Talker) -> None:
    async def act(there: There, client: openai.AsyncOpenAI) -> None:
        unstored = await client.responses.create(model="m", input="Hi", store=False)
        deleted = await client.responses.create(model="m", input="Hi")
        assert (unstored.store, deleted.store) == (False, True)
        await client.responses.delete(deleted.id)
        for made in (unstored, deleted):
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(made.id)
            with pytest.raises(openai.NotFoundError) as caught:
                await client.responses.create(model="m", input="Sure?", previous_response_id=made.id)
            assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")
        reference = {"type": "item_reference", "id": unstored.output[0].id}
        with pytest.raises(openai.NotFoundError) as caught:
            await client.responses.create(model="m", input=[reference])
        assert caught.value.code == "item_not_found"
        assert len(talker.log) == 2

    play(talker, act)
