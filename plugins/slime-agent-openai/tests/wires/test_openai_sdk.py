"""What OpenAI's client and its agents make of replies, whole and streamed; and what of them comes back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import agents
import openai
import pytest
from agents.models.openai_responses import OpenAIResponsesModel
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from scripted import CALLS, DONE, FULL, READERS, USER, Script, reply, serving

from slime_agent_openai.errors import ApiError
from slime_agent_openai.message import Finish, Message, Reply, Role, ToolCall
from tests.tables import table

TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}]
agents.set_tracing_disabled(True)


@asynccontextmanager
async def client_of(script: Script) -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        serving(script) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0) as client,
    ):
        yield client


def assert_shown(completion: object, said: Reply) -> None:
    choice = completion.choices[0]
    calls = tuple(
        ToolCall(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()
    )
    thoughts = getattr(choice.message, "reasoning_content", "")
    assert Message(Role.ASSISTANT, choice.message.content or "", thoughts, calls) == said.message
    assert (
        choice.finish_reason == {Finish.STOP: "stop", Finish.LENGTH: "length", Finish.CALLS: "tool_calls"}[said.finish]
    )


def shown(response: Response) -> Message:
    text, thoughts, calls = "", "", []
    for item in response.output:
        match item.type:
            case "message":
                text += item.content[0].text
            case "reasoning":
                thoughts += item.content[0].text
            case "function_call":
                calls.append(ToolCall(item.call_id, item.name, item.arguments))
    return Message(Role.ASSISTANT, text, thoughts, tuple(calls))


@table("said", [FULL, DONE, reply(), reply(calls=CALLS[:1])])
async def test_chat_shows_the_reply_and_sends_it_back(said: Reply) -> None:
    script = Script([said, said, said])
    async with client_of(script) as client:
        asked = {"model": "m", "messages": [USER], "tools": TOOLS}
        whole = await client.chat.completions.create(**asked)
        assert_shown(whole, said)
        assert (whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens) == (20, 5, 25)
        assert whole.usage.prompt_tokens_details.cached_tokens == 8
        assert whole.usage.completion_tokens_details.reasoning_tokens == 2
        async with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
            streamed = await stream.get_final_completion()
        assert_shown(streamed, said)
        assert streamed.usage == whole.usage
        echo = streamed.choices[0].message.model_dump(exclude_none=True)
        asked["messages"] = [USER, echo, {"role": "tool", "tool_call_id": "call_a", "content": "3"}]
        await client.chat.completions.create(**asked)
    user, echoed, answer = script.asked[2].messages
    assert user == Message(Role.USER, "Add!")
    assert echoed == said.message
    assert said.message.means(echoed)
    assert answer == Message(Role.TOOL, "3", answers="call_a")


async def test_a_completion_that_is_cut_says_so() -> None:
    said = reply("cut", finish=Finish.LENGTH)
    script = Script([said, said])
    async with client_of(script) as client:
        assert_shown(await client.chat.completions.create(model="m", messages=[USER], max_tokens=5), said)
        stream = await client.chat.completions.create(model="m", messages=[USER], max_completion_tokens=7, stream=True)
        choices = [chunk.choices[0] async for chunk in stream]
        assert "".join(choice.delta.content or "" for choice in choices) == "cut"
        assert [choice.finish_reason for choice in choices] == [None] * (len(choices) - 1) + ["length"]
    assert [asked.max_tokens for asked in script.asked] == [5, 7]


async def test_chat_tells_log_probs_whole_and_streamed() -> None:
    async with client_of(Script([DONE, DONE])) as client:
        whole = await client.chat.completions.create(model="m", messages=[USER], logprobs=True)
        told = whole.choices[0].logprobs.content
        assert [(each.token, each.logprob) for each in told] == list(zip(DONE.texts, DONE.log_probs, strict=True))
        assert bytes(told[-1].bytes).decode() == "é"
        async with client.chat.completions.stream(model="m", messages=[USER], logprobs=True) as stream:
            streamed = await stream.get_final_completion()
        assert streamed.choices[0].logprobs.content == told


@table("said", [FULL, DONE, reply(), reply(calls=CALLS[:1])])
async def test_responses_show_the_reply_and_send_it_back(said: Reply) -> None:
    script = Script([said] * 5)
    async with client_of(script) as client:
        asked = {"model": "m", "input": [USER], "tools": [{"type": "function", **TOOLS[0]["function"], "strict": None}]}
        whole = await client.responses.create(**asked)
        assert shown(whole) == said.message
        async with client.responses.stream(**asked) as stream:
            events = [event async for event in stream]
            streamed = await stream.get_final_response()
        assert shown(streamed) == said.message
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert streamed.usage == whole.usage
        assert (whole.usage.input_tokens, whole.usage.output_tokens, whole.usage.total_tokens) == (20, 5, 25)
        again = await client.responses.retrieve(streamed.id)
        assert again.output == [item.model_copy() for item in (await client.responses.retrieve(streamed.id)).output]
        assert [item.id for item in again.output] == [item.id for item in streamed.output]
        named = [{"type": "item_reference", "id": item.id} for item in streamed.output]
        echo = [item.model_dump(exclude_none=True) for item in streamed.output]
        answer = {"type": "function_call_output", "call_id": "call_a", "output": "3"}
        await client.responses.create(**{**asked, "input": [USER, *echo, answer], "instructions": "Be brief."})
        await client.responses.create(model="m", input=[answer], previous_response_id=streamed.id, instructions="New.")
        await client.responses.create(model="m", input=[USER, *named, answer])
    system, user, echoed, answer = script.asked[2].messages
    assert (system, user) == (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Add!"))
    assert echoed == said.message
    assert said.message.means(echoed)
    assert script.asked[2].after == ""
    assert script.asked[4].messages == script.asked[2].messages[1:]
    assert script.asked[3].messages == (answer,)
    assert (script.asked[3].after, script.asked[3].instructions) == (script.asked[1].ids[0], "New.")


async def test_a_response_that_is_cut_is_incomplete() -> None:
    said = reply("cut", finish=Finish.LENGTH)
    async with client_of(Script([said, said])) as client:
        whole = await client.responses.create(model="m", input="Hi")
        stream = await client.responses.create(model="m", input="Hi", stream=True)
        events = [event async for event in stream]
        assert [event.type for event in events][-2:] == ["response.output_item.done", "response.incomplete"]
        assert events[-2].item.status == "incomplete"
        for response in (whole, events[-1].response):
            assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
            assert response.output_text == "cut"
            assert response.output[-1].status == "incomplete"


@table("said", [FULL, DONE, reply("cut", finish=Finish.LENGTH), reply()])
def test_bodies_and_events_are_strictly_of_the_types(said: Reply) -> None:
    script = Script([])
    asked = {
        "chat/completions": ({"messages": [USER], "logprobs": True}, ChatCompletion, ChatCompletionChunk),
        "completions": ({"prompt": "Once"}, Completion, None),  # the type of its chunks wants a reason in each of them
        "responses": ({"input": [USER]}, Response, ResponseStreamEvent),
    }
    for path, (body, whole, event) in asked.items():
        whole.model_validate(READERS[path](body, script.new_id)[1].whole(said))
        for script.breaks in (None, ApiError(500, "the engine died", code="engine_error")) if event else ():
            _, wire = READERS[path](body, script.new_id)
            events = [each.split(b"data: ")[1] for each in script.events(wire, said)]
            if path != "responses":
                del events[-1]  # [DONE], or an error
            for each in events:
                TypeAdapter(event).validate_json(each)


async def test_functions_of_a_namespace_come_back_in_it() -> None:
    said = reply(calls=[ToolCall("call_a", "crm__find", "{}")])
    script = Script([said, DONE], hosted="ignore")
    function = {"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": False}
    tools = [
        {"type": "web_search"},
        {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [function]},
    ]
    async with client_of(script) as client:
        response = await client.responses.create(model="m", input="Find!", tools=tools)
        call = response.output[0]
        assert (call.namespace, call.name) == ("crm", "find")
        echo = [item.model_dump(exclude_none=True) for item in response.output]
        await client.responses.create(model="m", input=[USER, *echo, {**USER}], tools=tools)
    assert [tool.name for tool in script.asked[0].tools] == ["crm__find"]
    assert script.asked[1].messages[1] == said.message


async def test_legacy_completions_show_the_text() -> None:
    script = Script([DONE, DONE])
    async with client_of(script) as client:
        whole = await client.completions.create(model="m", prompt="Once", max_tokens=3, stop="\n")
        assert (whole.choices[0].text, whole.choices[0].finish_reason) == ("3 and 7.", "stop")
        stream = await client.completions.create(model="m", prompt="Once", stream=True)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == "3 and 7."
    asked = script.asked[0]
    assert (asked.raw, asked.messages, asked.max_tokens, asked.stop) == ("Once", (), 3, ("\n",))


async def test_no_stream_that_breaks_off_is_taken_for_an_answer() -> None:
    script = Script([DONE] * 5, breaks=ApiError(500, "the engine died", code="engine_error"))
    async with client_of(script) as client:
        with pytest.raises(openai.APIError, match="the engine died"):
            async with client.chat.completions.stream(model="m", messages=[USER]) as chat:
                await chat.get_final_completion()
        with pytest.raises(openai.APIError, match="the engine died"):
            [chunk async for chunk in await client.completions.create(model="m", prompt="Once", stream=True)]
        with pytest.raises(RuntimeError, match=r"response\.completed"):
            async with client.responses.stream(model="m", input="Hi") as stream:
                await stream.get_final_response()
        events = [event async for event in await client.responses.create(model="m", input="Hi", stream=True)]
        assert [event.type for event in events][-2:] == ["error", "response.failed"]
        assert events[-2].message == events[-1].response.error.message == "the engine died"
        agent = agents.Agent("a", model=OpenAIResponsesModel("m", client))
        with pytest.raises(agents.exceptions.AgentsException):
            async for _ in agents.Runner.run_streamed(agent, "Hi").stream_events():
                pass
