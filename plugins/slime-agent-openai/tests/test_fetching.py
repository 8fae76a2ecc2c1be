"""What is answered without the model, to OpenAI's own client."""

import asyncio
from collections.abc import Awaitable, Callable

import openai
import pytest
from chat import load_chat
from openai.types.conversations import Conversation, ConversationItem, ConversationItemList
from pydantic import TypeAdapter
from serving import There, served
from talker import Talker

from slime_core.data import HfTokenizer

HI = {"role": "user", "content": "Hi"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    return load_chat(tmp_path_factory.mktemp("chatml"))


def play(tokenizer: HfTokenizer, act: Callable[[There, openai.AsyncOpenAI], Awaitable[None]]) -> Talker:
    talker = Talker(tokenizer, lambda text, turn: "It is 42.")

    async def run() -> None:
        async with (
            served(talker) as there,
            openai.AsyncOpenAI(base_url=f"{there.url}/v1", api_key="key", max_retries=0) as client,
        ):
            await asyncio.wait_for(act(there, client), 30)

    asyncio.run(run())
    return talker


def test_conversations_come_and_go(tokenizer: HfTokenizer) -> None:
    async def act(there: There, client: openai.AsyncOpenAI) -> None:
        begun = await client.conversations.create(items=[HI], metadata={"task": "7"})
        assert (begun.object, begun.metadata) == ("conversation", {"task": "7"})
        assert await client.conversations.retrieve(begun.id) == begun
        changed = await client.conversations.update(begun.id, metadata={"task": "8"})
        assert (changed.id, changed.created_at, changed.metadata) == (begun.id, begun.created_at, {"task": "8"})
        gone = await client.conversations.delete(begun.id)
        assert (gone.id, gone.deleted, gone.object) == (begun.id, True, "conversation.deleted")
        for act in (client.conversations.retrieve, client.conversations.delete, client.conversations.items.list):
            with pytest.raises(openai.NotFoundError, match=begun.id):
                await act(begun.id)

    assert play(tokenizer, act).log == []


def test_items_of_a_conversation_come_and_go(tokenizer: HfTokenizer) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
    answer = {"type": "function_call_output", "call_id": "c", "output": "3"}

    async def act(there: There, client: openai.AsyncOpenAI) -> None:
        begun = await client.conversations.create(items=[HI])
        added = await client.conversations.items.create(begun.id, items=[call, answer, {**HI, "id": "msg_mine"}])
        ids = [item.id for item in added.data]
        assert (added.first_id, added.last_id, added.has_more) == (ids[0], "msg_mine", False)
        again = await client.conversations.items.create(begun.id, items=[{**HI, "id": "msg_mine"}])
        assert again.first_id != "msg_mine"
        found = await client.conversations.items.retrieve(ids[0], conversation_id=begun.id)
        assert (found.type, found.name, found.id) == ("function_call", "add", ids[0])
        assert (await client.conversations.items.delete(ids[0], conversation_id=begun.id)).id == begun.id
        for act in (client.conversations.items.retrieve, client.conversations.items.delete):
            with pytest.raises(openai.NotFoundError, match=ids[0]):
                await act(ids[0], conversation_id=begun.id)
        listed = [item async for item in client.conversations.items.list(begun.id, limit=1)]
        assert [item.id for item in listed][:3] == [again.first_id, "msg_mine", ids[1]]
        assert len(listed) == 4

    play(tokenizer, act)


def test_what_is_sent_again_is_added_once(tokenizer: HfTokenizer) -> None:
    async def act(there: There, client: openai.AsyncOpenAI) -> None:
        begun = await client.conversations.create()
        path = f"conversations/{begun.id}/items"
        first = await there.post(path, {"items": [HI]})
        assert await there.post(path, {"items": [HI]}, **{"x-stainless-retry-count": "1"}) == first
        assert len((await client.conversations.items.list(begun.id)).data) == 1
        assert await there.post(path, {"items": [HI]}) != first
        assert len((await client.conversations.items.list(begun.id)).data) == 2

    play(tokenizer, act)


def test_lists_are_as_the_client_wants_them(tokenizer: HfTokenizer) -> None:
    async def act(there: There, client: openai.AsyncOpenAI) -> None:
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

    play(tokenizer, act)


def test_what_cannot_be_read_is_no_item(tokenizer: HfTokenizer) -> None:
    image = {"role": "user", "content": [{"type": "input_image", "image_url": "http://localhost/x.png"}]}

    async def act(there: There, client: openai.AsyncOpenAI) -> None:
        begun = await client.conversations.create()
        with pytest.raises(openai.BadRequestError) as caught:
            await client.conversations.items.create(begun.id, items=[HI, image])
        assert (caught.value.code, caught.value.param) == ("unsupported_content", "items[1].content[0]")
        assert (await client.conversations.items.list(begun.id)).data == []

    play(tokenizer, act)


def test_bodies_are_strictly_of_the_types(tokenizer: HfTokenizer) -> None:
    async def act(there: There, client: openai.AsyncOpenAI) -> None:
        _, begun = await there.post("conversations", {"items": [HI, {"role": "assistant", "content": "Hello."}]})
        Conversation.model_validate(begun)
        await there.post("responses", {"input": "And?", "conversation": begun["id"]})
        _, listed = await there.get(f"conversations/{begun['id']}/items")
        ConversationItemList.model_validate(listed)
        for item in listed["data"]:  # type: ignore[attr-defined]
            TypeAdapter(ConversationItem).validate_python(item)

    play(tokenizer, act)


def test_tokens_of_a_response_are_counted_without_a_turn(tokenizer: HfTokenizer) -> None:
    async def act(there: There, client: openai.AsyncOpenAI) -> None:
        counted = await client.responses.input_tokens.count(model="m", input="What is 17 + 25?")
        made = await client.responses.create(model="m", input="What is 17 + 25?")
        assert counted.input_tokens == made.usage.input_tokens
        assert (await client.responses.cancel(made.id)).output_text == "It is 42."

    assert len(play(tokenizer, act).log) == 1


def test_what_nothing_answers_is_not_found(tokenizer: HfTokenizer) -> None:
    async def act(there: There, client: openai.AsyncOpenAI) -> None:
        for method, path in (("POST", "responses/more"), ("GET", "files"), ("PUT", "conversations/conv_1")):
            async with there.http.request(method, f"{there.url}/v1/{path}") as answer:
                told = (await answer.json())["error"]
                assert (answer.status, told["code"]) == (404, "not_found")
                assert f"nothing answers {method} /v1/{path}" in told["message"]

    play(tokenizer, act)


def test_compaction_is_refused_by_its_name(tokenizer: HfTokenizer) -> None:
    async def act(there: There, client: openai.AsyncOpenAI) -> None:
        status, body = await there.post("responses/compact", {"model": "m", "input": "Hello"})
        told = body["error"]
        assert isinstance(told, dict)
        assert (status, told["code"]) == (404, "not_found")
        assert "/v1/responses/compact is not supported here" in told["message"]
        assert "ask the model for a summary" in told["message"]

    assert play(tokenizer, act).log == []
