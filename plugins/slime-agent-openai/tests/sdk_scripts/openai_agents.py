"""OpenAI's Agents SDK, over Responses: python openai_agents.py URL stream|whole."""

import asyncio
import sys

import agents
import openai

url, how = sys.argv[1:]


@agents.function_tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def main() -> None:
    """One run."""
    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any")
    model = agents.OpenAIResponsesModel("policy", client)
    agent = agents.Agent(name="adder", instructions="Add.", tools=[add], model=model)
    question = "What is 17 + 25, and twice that?"
    if how == "stream":
        told = agents.Runner.run_streamed(agent, question)
        async for _ in told.stream_events():
            pass
        print(told.final_output)
    else:
        print((await agents.Runner.run(agent, question)).final_output)


asyncio.run(main())
