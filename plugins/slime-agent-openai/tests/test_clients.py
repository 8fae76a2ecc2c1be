"""Unmodified clients against the gateway: one sample each, and every token of the model in it."""

import asyncio
import json

import agents
import anthropic
import openai
from serving import There, served
from talker import Talker
from three_turns import CALLS, QUESTION, run

from slime_core.data import HfTokenizer
from tests.tables import table

ADD = {
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
}


def talker_of(tokenizer: HfTokenizer) -> Talker:
    """Three turns, with reasoning, two calls at once, and JSON as models write it."""
    return Talker(tokenizer, lambda text, turn: CALLS[turn])


def total(arguments: str) -> str:
    values = json.loads(arguments)
    return str(values["a"] + values["b"])


@table("stream", [False, True])
def test_openai_chat(tokenizer: HfTokenizer, stream: bool) -> None:
    async def client(there: There) -> str:
        tools = [{"type": "function", "function": ADD}]
        messages: list[object] = [{"role": "user", "content": QUESTION}]
        async with openai.AsyncOpenAI(base_url=f"{there.url}/v1", api_key="any") as ask:
            while True:
                if stream:
                    async with ask.chat.completions.stream(model="policy", messages=messages, tools=tools) as told:
                        made = await told.get_final_completion()
                else:
                    made = await ask.chat.completions.create(model="policy", messages=messages, tools=tools)
                said = made.choices[0].message
                if not said.tool_calls:
                    return str(said.content)
                messages.append(said.model_dump(exclude_none=True, exclude={"parsed"}))
                messages += [
                    {"role": "tool", "tool_call_id": call.id, "content": total(call.function.arguments)}
                    for call in said.tool_calls
                ]

    run(talker_of(tokenizer), client)


@table("stream, by_id", [(False, False), (True, True)])
def test_openai_responses(tokenizer: HfTokenizer, stream: bool, by_id: bool) -> None:
    async def client(there: There) -> str:
        tools = [{"type": "function", **ADD}]
        items: list[object] = [{"role": "user", "content": QUESTION}]
        more: dict[str, object] = {}
        async with openai.AsyncOpenAI(base_url=f"{there.url}/v1", api_key="any") as ask:
            while True:
                if stream:
                    async with ask.responses.stream(model="policy", input=items, tools=tools, **more) as told:
                        made = await told.get_final_response()
                else:
                    made = await ask.responses.create(model="policy", input=items, tools=tools, **more)
                calls = [item for item in made.output if item.type == "function_call"]
                if not calls:
                    return str(made.output_text)
                results = [
                    {"type": "function_call_output", "call_id": call.call_id, "output": total(call.arguments)}
                    for call in calls
                ]
                echoed = [item.model_dump(exclude_none=True) for item in made.output]
                more, items = (
                    ({"previous_response_id": made.id}, results) if by_id else ({}, [*items, *echoed, *results])
                )

    run(talker_of(tokenizer), client)


@table("stream", [False, True])
def test_anthropic_messages(tokenizer: HfTokenizer, stream: bool) -> None:
    async def client(there: There) -> str:
        tools = [{"name": "add", "description": "Adds.", "input_schema": ADD["parameters"]}]
        messages: list[object] = [{"role": "user", "content": QUESTION}]
        async with anthropic.AsyncAnthropic(base_url=there.url, api_key="any") as ask:
            while True:
                asked = {"model": "policy", "max_tokens": 200, "messages": messages, "tools": tools}
                if stream:
                    async with ask.messages.stream(**asked) as told:
                        made = await told.get_final_message()
                else:
                    made = await ask.messages.create(**asked)
                calls = [block for block in made.content if block.type == "tool_use"]
                if not calls:
                    return str(made.content[-1].text)
                messages.append({"role": "assistant", "content": [block.model_dump() for block in made.content]})
                results = [
                    {"type": "tool_result", "tool_use_id": call.id, "content": total(json.dumps(call.input))}
                    for call in calls
                ]
                messages.append({"role": "user", "content": results})

    run(talker_of(tokenizer), client)


@table("stream", [False, True])
def test_anthropic_threads(tokenizer: HfTokenizer, stream: bool) -> None:
    @anthropic.beta_async_tool
    async def add(a: int, b: int) -> str:
        """Adds."""
        return str(a + b)

    async def client(there: There) -> str:
        async with anthropic.AsyncAnthropic(base_url=there.url, api_key="any") as ask:
            runner = ask.beta.messages.tool_runner(
                model="policy",
                max_tokens=200,
                system="Be brief.",
                messages=[{"role": "user", "content": QUESTION}],
                tools=[add],
                stream=stream,
            )
            return str((await runner.until_done()).content[-1].text)

    run(talker_of(tokenizer), client)


def test_a_thread_that_is_lost_is_begun_anew_by_its_client(tokenizer: HfTokenizer) -> None:
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


@table("stream, kind", [(False, "chat"), (True, "responses")])
def test_openai_agents(tokenizer: HfTokenizer, kind: str, stream: bool) -> None:
    @agents.function_tool
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    async def client(there: There) -> str:
        agents.set_tracing_disabled(True)
        async with openai.AsyncOpenAI(base_url=f"{there.url}/v1", api_key="any") as ask:
            made = agents.OpenAIChatCompletionsModel if kind == "chat" else agents.OpenAIResponsesModel
            agent = agents.Agent("adder", instructions="Add.", tools=[add], model=made("policy", ask))
            if not stream:
                return str((await agents.Runner.run(agent, QUESTION)).final_output)
            told = agents.Runner.run_streamed(agent, QUESTION)
            async for _ in told.stream_events():
                pass
            return str(told.final_output)

    run(talker_of(tokenizer), client)
