"""What OpenAI's and Anthropic's clients make of replies beside their words, which `test_clients.py` follows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import agents
import anthropic
import openai
import pytest
from agents.models.openai_responses import OpenAIResponsesModel
from anthropic.types import Message, RawMessageStreamEvent
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from scripted import DONE, FULL, READERS, USER, counted_ids, events_of, reply
from serving import There, served
from talker import Talker

from slime_agent_openai.errors import ApiError
from slime_agent_openai.gateway import Gateway
from slime_agent_openai.message import Finish
from slime_core.data import HfTokenizer
from slime_core.errors import WorkerError
from tests.tables import table

SAID = "<think>\nHm.\n</think>\n\nIt is 42, größer."
agents.set_tracing_disabled(True)


@pytest.fixture
def talker(tokenizer: HfTokenizer) -> Talker:
    return Talker(tokenizer, lambda text, turn: SAID)


@asynccontextmanager
async def clients(
    talker: Talker, gateway: Gateway | None = None
) -> AsyncIterator[tuple[There, openai.AsyncOpenAI, anthropic.AsyncAnthropic]]:
    async with (
        served(talker, gateway=gateway, max_new_tokens=2000) as there,
        openai.AsyncOpenAI(base_url=f"{there.url}/v1", api_key="key", max_retries=0) as theirs,
        anthropic.AsyncAnthropic(base_url=there.url, api_key="key", max_retries=0) as others,
    ):
        yield there, theirs, others


async def test_chat_reports_usage_log_probs_and_length(talker: Talker) -> None:
    async with clients(talker) as (_, client, _):
        asked = {"model": "m", "messages": [USER], "logprobs": True}
        whole = await client.chat.completions.create(**asked)
        made = talker.log[0]
        assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (len(made.prompt), len(made.output))
        assert whole.usage.total_tokens == len(made.prompt) + len(made.output)
        assert 0 < whole.usage.completion_tokens_details.reasoning_tokens < len(made.output)
        told = whole.choices[0].logprobs.content
        assert [each.logprob for each in told] == [-0.25 - place / 64 for place in range(len(made.output))]
        assert bytes(byte for each in told for byte in each.bytes).decode(errors="ignore").startswith("<think>\nHm.")
        async with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
            streamed = await stream.get_final_completion()
        assert (streamed.usage, streamed.choices[0].logprobs.content) == (whole.usage, told)
        cut = await client.chat.completions.create(**asked, max_tokens=9)
        assert (cut.choices[0].finish_reason, cut.usage.completion_tokens) == ("length", 9)
        second = [USER, {"role": "assistant", "content": whole.choices[0].message.content}, USER]
        again = await client.chat.completions.create(model="m", messages=second)
        assert again.usage.prompt_tokens_details.cached_tokens == len(made.prompt) + len(made.output)


async def test_responses_report_usage_and_incomplete(talker: Talker) -> None:
    async with clients(talker) as (_, client, _):
        async with client.responses.stream(model="m", input="Hi") as stream:
            events = [event async for event in stream]
            streamed = await stream.get_final_response()
        assert [event.sequence_number for event in events] == list(range(len(events)))
        made = talker.log[0]
        assert (streamed.usage.input_tokens, streamed.usage.output_tokens) == (len(made.prompt), len(made.output))
        assert (await client.responses.retrieve(streamed.id)).output[0].id == streamed.output[0].id
        whole = await client.responses.create(model="m", input="Hi", max_output_tokens=9)
        told = await client.responses.create(model="m", input="Hi", max_output_tokens=9, stream=True)
        events = [event async for event in told]
        assert events[-1].type == "response.incomplete"
        for response in (whole, events[-1].response):
            assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
            assert response.output[-1].status == "incomplete"


async def test_messages_report_usage_signature_and_stop_reason(talker: Talker) -> None:
    async with clients(talker) as (_, _, client):
        asked = {"model": "m", "max_tokens": 500, "messages": [USER]}
        whole = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            streamed = await stream.get_final_message()
        made = talker.log[0]
        for message in (whole, streamed):
            assert (message.usage.input_tokens, message.usage.output_tokens) == (len(made.prompt), len(made.output))
            assert message.content[0].signature.startswith("sig_")
            assert message.stop_reason == "end_turn"
        stopped = await client.messages.create(**asked, stop_sequences=[" 42"])
        assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", " 42")
        assert (await client.messages.create(**asked | {"max_tokens": 9})).stop_reason == "max_tokens"
        assert [model.id async for model in client.models.list()] == ["policy"]
        image = {"type": "image", "source": {"type": "url", "url": "http://localhost/x.png"}}
        with pytest.raises(
            anthropic.BadRequestError, match=r"messages\[0\]\.content\[0\] is of type 'image'"
        ) as caught:
            await client.messages.create(**asked | {"messages": [{"role": "user", "content": [image]}]})
        assert caught.value.body["error"]["details"]["error_code"] == "unsupported_content"


async def test_legacy_completions_use_the_raw_prompt(talker: Talker) -> None:
    async with clients(talker) as (_, client, _):
        whole = await client.completions.create(model="m", prompt="Once")
        assert (whole.choices[0].text, whole.choices[0].finish_reason) == (SAID, "stop")
        stream = await client.completions.create(model="m", prompt="Once", stream=True)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == SAID
    assert list(talker.log[0].prompt) == talker.tokenizer.encode("Once")


async def test_namespaced_functions_keep_their_namespace(talker: Talker) -> None:
    talker.says = lambda text, turn: '<tool_call>\n{"name": "crm__find", "arguments": {}}\n</tool_call>'
    function = {"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": False}
    namespace = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [function]}
    asked = {"model": "m", "tools": [{"type": "web_search"}, namespace]}
    async with clients(talker, Gateway(hosted="ignore")) as (there, client, _):
        response = await client.responses.create(input="Find!", **asked)
        call = response.output[0]
        assert (call.namespace, call.name) == ("crm", "find")
        echo = [item.model_dump(exclude_none=True) for item in response.output]
        answer = {"type": "function_call_output", "call_id": call.call_id, "output": "none"}
        await client.responses.create(input=[{"role": "user", "content": "Find!"}, *echo, answer], **asked)
        assert there.session.forest.counts.bridged == 1


async def test_broken_stream_is_an_error(talker: Talker) -> None:
    talker.dies = WorkerError("the engine died")
    async with clients(talker) as (_, client, theirs):
        with pytest.raises(openai.APIError, match="the engine died"):
            async with client.chat.completions.stream(model="m", messages=[USER]) as chat:
                await chat.get_final_completion()
        with pytest.raises(openai.APIError, match="the engine died"):
            [chunk async for chunk in await client.completions.create(model="m", prompt="Once", stream=True)]
        with pytest.raises(RuntimeError, match=r"response\.completed"):
            async with client.responses.stream(model="m", input="Hi") as stream:
                await stream.get_final_response()
        agent = agents.Agent("a", model=OpenAIResponsesModel("m", client))
        with pytest.raises(agents.exceptions.AgentsException):
            async for _ in agents.Runner.run_streamed(agent, "Hi").stream_events():
                pass
        with pytest.raises(anthropic.APIStatusError, match="the engine died"):
            async with theirs.messages.stream(model="m", max_tokens=64, messages=[USER]) as told:
                await told.get_final_message()


TYPES = {
    "chat/completions": ({"messages": [USER], "logprobs": True}, ChatCompletion, TypeAdapter(ChatCompletionChunk)),
    "completions": ({"prompt": "Once"}, Completion, None),  # the type of its chunks wants a reason in each of them
    "responses": ({"input": [USER]}, Response, TypeAdapter(ResponseStreamEvent)),
    "messages": ({"messages": [USER]}, Message, TypeAdapter(RawMessageStreamEvent)),
}
DIED = ApiError(500, "it died", code="engine_error")


@table("path", TYPES)
def test_bodies_and_events_validate_against_sdk_types(path: str) -> None:
    body, whole, event = TYPES[path]
    for said in (FULL, DONE, reply("cut", finish=Finish.LENGTH), reply()):
        whole.model_validate(READERS[path](body, counted_ids())[1].whole(said))
        for broken in (None, DIED) if event is not None else ():
            wire = READERS[path](body, counted_ids())[1]
            told = [each.split(b"data: ")[1] for each in events_of(wire, said, broken)]
            if path == "chat/completions" or (broken and path == "messages"):
                del told[-1]  # [DONE], or an error
            for each in told:
                event.validate_json(each)
