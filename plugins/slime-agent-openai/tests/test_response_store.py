"""What a session stores for OpenAI's Responses, as its client and its agents use that: one sample, nothing anew."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import agents
import openai
import pytest
from agents.models.openai_responses import OpenAIResponsesModel
from openai.types.conversations import Conversation, ConversationItem, ConversationItemList
from pydantic import TypeAdapter
from serving import There, served
from talker import Talker

from slime_core.data import HfTokenizer
from tests.tables import table

HI = {"role": "user", "content": "Hi"}
ADD = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}
CALLS = (
    '<think>\nHm.\n</think>\n\nAdding.\n<tool_call>\n{"name": "add",  "arguments": {"a": 17, "b": 25}}\n</tool_call>'
)
SAYS = [CALLS, "<think>\nSum.\n</think>\n\nIt is 42.", "Quite sure."]
agents.set_tracing_disabled(True)


@pytest.fixture
def talker(tokenizer: HfTokenizer) -> Talker:
    return Talker(tokenizer, lambda text, turn: SAYS[turn % 3])


@asynccontextmanager
async def opened(talker: Talker) -> AsyncIterator[tuple[There, openai.AsyncOpenAI]]:
    async with (
        served(talker, max_new_tokens=2000) as there,
        openai.AsyncOpenAI(base_url=f"{there.url}/v1", api_key="key", max_retries=0) as client,
    ):
        yield there, client


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


@table("streams", [False, True])
async def test_a_conversation_holds_the_history(tokenizer: HfTokenizer, streams: bool) -> None:
    talker = Talker(tokenizer, lambda text, turn: SAYS[turn % 3])
    async with opened(talker) as (there, client):

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


async def test_agents_keep_their_sessions_in_a_conversation(talker: Talker) -> None:
    @agents.function_tool
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    async with opened(talker) as (there, client):
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


async def test_a_conversation_of_which_an_item_was_deleted_is_what_is_left(talker: Talker) -> None:
    async with opened(talker) as (there, client):
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


async def test_two_requests_that_write_to_a_conversation_at_once_lose_nothing(talker: Talker) -> None:
    async with opened(talker) as (_, client):
        talker.says = lambda text, turn: f"Answer {turn}"
        begun = await client.conversations.create()
        asked = [
            client.responses.create(model="m", input=question, conversation=begun.id) for question in ("One?", "Two?")
        ]
        await asyncio.gather(*asked)
        await client.responses.create(model="m", input="Three?", conversation=begun.id)
        whole = talker.tokenizer.decode(talker.log[2].prompt)
        assert all(said in whole for said in ("One?", "Two?", "Answer 0", "Answer 1", "Three?"))


async def test_a_reply_that_failed_adds_nothing(talker: Talker) -> None:
    async with opened(talker) as (_, client):
        begun = await client.conversations.create()
        talker.says = lambda text, turn: str(1 / 0)
        with pytest.raises(openai.InternalServerError):
            await client.responses.create(model="m", input="One?", conversation=begun.id)
        assert await items_of(client, begun.id) == []


async def test_an_item_can_be_named_instead_of_sent(talker: Talker) -> None:
    async with opened(talker) as (there, client):
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


async def test_what_is_not_stored_can_neither_be_fetched_nor_gone_on_from(talker: Talker) -> None:
    async with opened(talker) as (_, client):
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


async def test_conversations_come_and_go(talker: Talker) -> None:
    async with opened(talker) as (_, client):
        begun = await client.conversations.create(items=[HI], metadata={"task": "7"})
        assert (begun.object, begun.metadata) == ("conversation", {"task": "7"})
        assert await client.conversations.retrieve(begun.id) == begun
        changed = await client.conversations.update(begun.id, metadata={"task": "8"})
        assert (changed.id, changed.created_at, changed.metadata) == (begun.id, begun.created_at, {"task": "8"})
        gone = await client.conversations.delete(begun.id)
        assert (gone.id, gone.deleted, gone.object) == (begun.id, True, "conversation.deleted")
        for use in (client.conversations.retrieve, client.conversations.delete, client.conversations.items.list):
            with pytest.raises(openai.NotFoundError, match=begun.id):
                await use(begun.id)
    assert talker.log == []


async def test_items_of_a_conversation_come_and_go(talker: Talker) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
    answer = {"type": "function_call_output", "call_id": "c", "output": "3"}
    async with opened(talker) as (_, client):
        begun = await client.conversations.create(items=[HI])
        added = await client.conversations.items.create(begun.id, items=[call, answer, {**HI, "id": "msg_mine"}])
        ids = [item.id for item in added.data]
        assert (added.first_id, added.last_id, added.has_more) == (ids[0], "msg_mine", False)
        again = await client.conversations.items.create(begun.id, items=[{**HI, "id": "msg_mine"}])
        assert again.first_id != "msg_mine"
        found = await client.conversations.items.retrieve(ids[0], conversation_id=begun.id)
        assert (found.type, found.name, found.id) == ("function_call", "add", ids[0])
        assert (await client.conversations.items.delete(ids[0], conversation_id=begun.id)).id == begun.id
        for use in (client.conversations.items.retrieve, client.conversations.items.delete):
            with pytest.raises(openai.NotFoundError, match=ids[0]):
                await use(ids[0], conversation_id=begun.id)
        listed = [item async for item in client.conversations.items.list(begun.id, limit=1)]
        assert [item.id for item in listed][:3] == [again.first_id, "msg_mine", ids[1]]
        assert len(listed) == 4


async def test_what_is_sent_again_is_added_once(talker: Talker) -> None:
    async with opened(talker) as (there, client):
        begun = await client.conversations.create()
        path = f"conversations/{begun.id}/items"
        first = await there.post(path, {"items": [HI]})
        assert await there.post(path, {"items": [HI]}, **{"x-stainless-retry-count": "1"}) == first
        assert len((await client.conversations.items.list(begun.id)).data) == 1
        assert await there.post(path, {"items": [HI]}) != first
        assert len((await client.conversations.items.list(begun.id)).data) == 2


async def test_lists_are_as_the_client_wants_them(talker: Talker) -> None:
    async with opened(talker) as (_, client):
        made = await client.responses.create(model="m", input=[HI, HI, HI])
        begun = await client.conversations.create(items=[HI, HI, HI])
        for each, lists in ((made.id, client.responses.input_items.list), (begun.id, client.conversations.items.list)):
            ids = [item.id async for item in lists(each, order="asc", include=["reasoning.encrypted_content"])]
            assert len(set(ids)) == 3
            assert [item.id for item in (await lists(each)).data] == ids[::-1]
            page = await lists(each, after=ids[1])
            assert ([item.id for item in page.data], page.has_more) == ([ids[0]], False)
            assert [item.id for item in (await lists(each, limit=2)).data] == [ids[2], ids[1]]
            for wrong in ({"limit": 0}, {"limit": 101}, {"order": "up"}):
                with pytest.raises(openai.BadRequestError) as caught:
                    await lists(each, **wrong)
                assert caught.value.param == next(iter(wrong))
            with pytest.raises(openai.NotFoundError):
                await lists(each, after="msg_unheard_of")


async def test_what_cannot_be_read_is_no_item(talker: Talker) -> None:
    image = {"role": "user", "content": [{"type": "input_image", "image_url": "http://localhost/x.png"}]}
    async with opened(talker) as (_, client):
        begun = await client.conversations.create()
        with pytest.raises(openai.BadRequestError) as caught:
            await client.conversations.items.create(begun.id, items=[HI, image])
        assert (caught.value.code, caught.value.param) == ("unsupported_content", "items[1].content[0]")
        assert (await client.conversations.items.list(begun.id)).data == []


async def test_bodies_are_strictly_of_the_types(talker: Talker) -> None:
    async with opened(talker) as (there, _):
        _, begun = await there.post("conversations", {"items": [HI, {"role": "assistant", "content": "Hello."}]})
        Conversation.model_validate(begun)
        await there.post("responses", {"input": "And?", "conversation": begun["id"]})
        _, listed = await there.get(f"conversations/{begun['id']}/items")
        ConversationItemList.model_validate(listed)
        for item in listed["data"]:  # type: ignore[attr-defined]
            TypeAdapter(ConversationItem).validate_python(item)


async def test_tokens_of_a_response_are_counted_without_a_turn(talker: Talker) -> None:
    async with opened(talker) as (_, client):
        counted = await client.responses.input_tokens.count(model="m", input="What is 17 + 25?")
        made = await client.responses.create(model="m", input="What is 17 + 25?")
        assert counted.input_tokens == made.usage.input_tokens
        assert (await client.responses.cancel(made.id)).output_text == made.output_text
    assert len(talker.log) == 1


async def test_what_nothing_answers_is_not_found(talker: Talker) -> None:
    async with opened(talker) as (there, _):
        for method, path in (("POST", "responses/more"), ("GET", "files"), ("PUT", "conversations/conv_1")):
            async with there.http.request(method, f"{there.url}/v1/{path}") as answer:
                told = (await answer.json())["error"]
                assert (answer.status, told["code"]) == (404, "not_found")
                assert f"nothing answers {method} /v1/{path}" in told["message"]


async def test_compaction_is_refused_by_its_name(talker: Talker) -> None:
    async with opened(talker) as (there, _):
        status, body = await there.post("responses/compact", {"model": "m", "input": "Hello"})
        told = body["error"]
        assert isinstance(told, dict)
        assert (status, told["code"]) == (404, "not_found")
        assert "/v1/responses/compact is not supported here" in told["message"]
        assert "ask the model for a summary" in told["message"]
    assert talker.log == []
