"""One conversation with tools by each client in Python: python clients.py URL stream|whole NAME.

A client is imported where it is used, since each environment has only one of them.
"""

import asyncio
import json
import sys

QUESTION = "What is 17 + 25, and twice that?"
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
FUNCTION = {"name": "add", "description": "Adds.", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def answer_calls(calls: list, messages: list) -> None:
    """Append the results of a chat completion's calls."""
    for call in calls:
        result = add(**json.loads(call["function"]["arguments"]))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(result)})


def openai_chat(url: str, stream: bool) -> str:
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        messages = [{"role": "user", "content": QUESTION}]

        def joined() -> dict:
            text, calls = "", []
            for chunk in client.chat.completions.create(model="policy", messages=messages, tools=TOOLS, stream=True):
                delta = chunk.choices[0].delta
                text += delta.content or ""
                for call in delta.tool_calls or ():
                    if call.id:
                        function = {"name": call.function.name, "arguments": ""}
                        calls.append({"id": call.id, "type": "function", "function": function})
                    calls[call.index]["function"]["arguments"] += call.function.arguments or ""
            return {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})

        while True:
            if stream:
                reply = joined()
            else:
                made = client.chat.completions.create(model="policy", messages=messages, tools=TOOLS)
                reply = made.choices[0].message.model_dump(exclude_none=True)
            messages.append(reply)
            if not reply.get("tool_calls"):
                return reply["content"]
            answer_calls(reply["tool_calls"], messages)


def openai_responses(url: str, stream: bool) -> str:
    import openai

    items = [{"role": "user", "content": QUESTION}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        while True:
            asked = {"model": "policy", "input": items, "tools": [{"type": "function", **FUNCTION, "strict": False}]}
            if stream:
                events = list(client.responses.create(**asked, stream=True))
                (made,) = (event.response for event in events if event.type == "response.completed")
            else:
                made = client.responses.create(**asked)
            items += [item.model_dump(exclude_none=True) for item in made.output]
            calls = [item for item in made.output if item.type == "function_call"]
            if not calls:
                return made.output_text
            for call in calls:
                result = str(add(**json.loads(call.arguments)))
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


def anthropic_messages(url: str, stream: bool) -> str:
    import anthropic

    tools = [{"name": "add", "description": "Adds.", "input_schema": PARAMETERS}]
    messages = [{"role": "user", "content": QUESTION}]
    with anthropic.Anthropic(base_url=url, api_key="any") as client:
        while True:
            asked = {"model": "policy", "max_tokens": 200, "messages": messages, "tools": tools}
            if stream:
                with client.messages.stream(**asked) as events:
                    made = events.get_final_message()
            else:
                made = client.messages.create(**asked)
            content = [block.model_dump(exclude_none=True) for block in made.content]
            messages.append({"role": "assistant", "content": content})
            calls = [block for block in made.content if block.type == "tool_use"]
            if not calls:
                return made.content[-1].text
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": str(add(**call.input))} for call in calls
            ]
            messages.append({"role": "user", "content": results})


def openai_agents(url: str, stream: bool) -> str:
    import agents
    import openai

    async def run() -> str:
        agents.set_tracing_disabled(True)
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any") as client:
            model = agents.OpenAIResponsesModel("policy", client)
            agent = agents.Agent(name="adder", instructions="Add.", tools=[agents.function_tool(add)], model=model)
            if not stream:
                return (await agents.Runner.run(agent, QUESTION)).final_output
            streamed = agents.Runner.run_streamed(agent, QUESTION)
            async for _ in streamed.stream_events():
                pass
            return streamed.final_output

    return asyncio.run(run())


def langchain_chat(url: str, stream: bool) -> str:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="policy", base_url=f"{url}/v1", api_key="any").bind_tools([tool(add)])
    messages = [HumanMessage(QUESTION)]
    while True:
        if stream:
            reply, *parts = model.stream(messages)
            for part in parts:
                reply += part
        else:
            reply = model.invoke(messages)
        messages.append(reply)
        if not reply.tool_calls:
            return reply.content
        messages += [ToolMessage(str(add(**call["args"])), tool_call_id=call["id"]) for call in reply.tool_calls]


def langchain_agent(url: str, stream: bool) -> str:
    from langchain.agents import create_agent
    from langchain_anthropic import ChatAnthropic

    agent = create_agent(ChatAnthropic(model="policy", base_url=url, api_key="any", max_tokens=500), [add])
    asked = {"messages": [{"role": "user", "content": QUESTION}]}
    if not stream:
        return agent.invoke(asked)["messages"][-1].text
    parts = agent.stream(asked, stream_mode=["messages", "values"])
    *_, ended = (values for mode, values in parts if mode == "values")
    return ended["messages"][-1].text


def litellm_chat(url: str, stream: bool) -> str:
    import litellm

    messages = [{"role": "user", "content": QUESTION}]
    asked = {"model": "openai/policy", "api_base": f"{url}/v1", "api_key": "any", "tools": TOOLS}
    while True:
        made = litellm.completion(**asked, messages=messages, stream=stream)
        if stream:
            made = litellm.stream_chunk_builder(list(made), messages=messages)
        reply = made.choices[0].message.model_dump(exclude_none=True)
        messages.append(reply)
        if not reply.get("tool_calls"):
            return reply["content"]
        answer_calls(reply["tool_calls"], messages)


def pydantic_ai_chat(url: str, stream: bool) -> str:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async def drain(context: object, events: object) -> None:  # with a handler of events, requests are streamed
        async for _ in events:
            pass

    agent = Agent(OpenAIChatModel("policy", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="any")))
    agent.tool_plain(add)
    return agent.run_sync(QUESTION, event_stream_handler=drain if stream else None).output


def autogen_chat(url: str, stream: bool) -> str:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    can = dict.fromkeys(("vision", "json_output", "structured_output"), False)
    info = {**can, "function_calling": True, "family": "unknown"}

    async def run() -> str:
        model = OpenAIChatCompletionClient(model="policy", base_url=f"{url}/v1", api_key="any", model_info=info)
        agent = AssistantAgent("adder", model, tools=[add], max_tool_iterations=5, model_client_stream=stream)
        return (await agent.run(task=QUESTION)).messages[-1].content

    return asyncio.run(run())


def haystack_chat(url: str, stream: bool) -> str:
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import tool
    from haystack.utils import Secret

    model = OpenAIChatGenerator(model="policy", api_base_url=f"{url}/v1", api_key=Secret.from_token("any"))
    agent = Agent(chat_generator=model, tools=[tool(add)], streaming_callback=(lambda chunk: None) if stream else None)
    return agent.run(messages=[ChatMessage.from_user(QUESTION)])["messages"][-1].text


def strands_messages(url: str, stream: bool) -> str:
    """Strands streams every request."""
    from strands import Agent, tool
    from strands.models.anthropic import AnthropicModel

    model = AnthropicModel(client_args={"base_url": url, "api_key": "any"}, model_id="policy", max_tokens=500)
    return str(Agent(model=model, tools=[tool(add)], callback_handler=None)(QUESTION))


if __name__ == "__main__":
    print(globals()[sys.argv[3]](sys.argv[1], sys.argv[2] == "stream"))
