"""What Anthropic's client makes of replies, whole and streamed; and what of them comes back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anthropic
import pytest
from pydantic import TypeAdapter
from scripted import DONE, FULL, USER, Script, reply, serving

from slime_agent_openai.errors import ApiError
from slime_agent_openai.message import Finish, Message, Reply, Role, ToolCall, as_object
from slime_agent_openai.wires.messages import read_messages
from tests.tables import table

ASKED = {"model": "m", "max_tokens": 64}
TOOLS = [{"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}]


@asynccontextmanager
async def client_of(script: Script) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with serving(script) as url, anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client:
        yield client


def assert_shown(message: anthropic.types.Message, said: Reply) -> None:
    text, thoughts, calls = "", "", []
    for block in message.content:
        match block.type:
            case "text":
                text += block.text
            case "thinking":
                thoughts += block.thinking
                assert block.signature.startswith("sig_")
            case "tool_use":
                calls.append((block.id, block.name, block.input))
    assert (text, thoughts) == (said.message.text, said.message.reasoning)
    assert calls == [(call.id, call.name, as_object(call.arguments)) for call in said.message.calls]
    stops = {Finish.STOP: "end_turn", Finish.LENGTH: "max_tokens", Finish.CALLS: "tool_use"}
    assert message.stop_reason == stops[said.finish]
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (12, 8, 5)


@table(
    "said",
    [
        FULL,
        DONE,
        reply("cut", finish=Finish.LENGTH),
        reply(),
        reply(calls=[ToolCall("call_a", "add", "")]),
        reply(calls=[ToolCall("call_a", "add", '{"a": nothing')]),
        reply("Look:", calls=[ToolCall("call_a", "add", '["\\ud800"]'), ToolCall("call_b", "add", '"three"')]),
    ],
)
async def test_messages_show_the_reply_and_send_it_back(said: Reply) -> None:
    script = Script([said, said, said])
    async with client_of(script) as client:
        asked = {**ASKED, "messages": [USER], "tools": TOOLS}
        assert_shown(await client.messages.create(**asked), said)
        async with client.messages.stream(**asked) as stream:
            streamed = await stream.get_final_message()
        assert_shown(streamed, said)
        echo = {"role": "assistant", "content": streamed.content}
        answers = [
            {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "3"}]}
            for call in said.message.calls
        ]
        content = [*answers, {"type": "text", "text": "And?", "cache_control": {"type": "ephemeral"}}]
        asked["messages"] = [USER, echo, {"role": "user", "content": content}]
        await client.messages.create(**asked, system=[{"type": "text", "text": "Be brief."}])
    system, user, echoed, *rest = script.asked[2].messages
    assert (system, user) == (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Add!"))
    assert said.message.means(echoed)
    assert (echoed.text, echoed.reasoning) == (said.message.text, said.message.reasoning)
    answers = [Message(Role.TOOL, "3", answers=call.id) for call in said.message.calls]
    assert rest == [*answers, Message(Role.USER, "And?")]


@table("said", [FULL, DONE, reply("cut", finish=Finish.LENGTH), reply()])
def test_bodies_and_events_are_strictly_of_the_types(said: Reply) -> None:
    script = Script([])
    _, wire = read_messages({"messages": [USER]}, script.new_id)
    valid = TypeAdapter(anthropic.types.RawMessageStreamEvent)
    for event in script.events(wire, said):
        valid.validate_json(event.split(b"data: ")[1])
    anthropic.types.Message.model_validate(wire.whole(said))


async def test_a_stop_text_is_told() -> None:
    said = Reply(Message(Role.ASSISTANT, "one"), Finish.STOP, 3, 0, [1], [-1.0], ["one"], stop="\n\n")
    script = Script([said])
    async with client_of(script) as client:
        message = await client.messages.create(**ASKED, messages=[USER], stop_sequences=["\n\n"])
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "\n\n")
    assert script.asked[0].stop == ("\n\n",)


async def test_a_refusal_says_why() -> None:
    async with client_of(Script([])) as client:
        image = {"type": "image", "source": {"type": "url", "url": "http://localhost/x.png"}}
        with pytest.raises(
            anthropic.BadRequestError, match=r"messages\[0\]\.content\[0\] is of type 'image'"
        ) as caught:
            await client.messages.create(**ASKED, messages=[{"role": "user", "content": [image]}])
        assert caught.value.body["error"]["details"]["error_code"] == "unsupported_content"
        for thread in ({"type": "fork"}, {"type": "continue"}, {"type": "continue", "previous_message_id": ""}):
            with pytest.raises(anthropic.BadRequestError, match=r"thread\.\w+ is "):
                await client.messages.create(**ASKED, messages=[USER], extra_body={"thread": thread})


async def test_no_stream_that_breaks_off_is_taken_for_an_answer() -> None:
    script = Script([DONE], breaks=ApiError(500, "the engine died", code="engine_error"))
    async with client_of(script) as client:
        with pytest.raises(anthropic.APIStatusError, match="the engine died"):
            async with client.messages.stream(**ASKED, messages=[USER]) as stream:
                await stream.get_final_message()
