"""AutoGen's AgentChat, over chat completions: python autogen_chat.py URL stream|whole."""

import asyncio
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

url, how = sys.argv[1:]
CAN = {"vision": False, "function_calling": True, "json_output": False, "structured_output": False, "family": "unknown"}


async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def main() -> None:
    """One run."""
    model = OpenAIChatCompletionClient(model="policy", base_url=f"{url}/v1", api_key="any", model_info=CAN)
    agent = AssistantAgent("adder", model, tools=[add], max_tool_iterations=5, model_client_stream=how == "stream")
    print((await agent.run(task="What is 17 + 25, and twice that?")).messages[-1].content)


asyncio.run(main())
