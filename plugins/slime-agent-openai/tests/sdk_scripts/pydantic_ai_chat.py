"""Pydantic AI, over chat completions: python pydantic_ai_chat.py URL stream|whole."""

import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

url, how = sys.argv[1:]
agent = Agent(OpenAIChatModel("policy", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="any")))


@agent.tool_plain
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def hear(context: object, events: object) -> None:
    """With somebody who hears them, requests are streamed."""
    async for _ in events:
        pass


print(agent.run_sync("What is 17 + 25, and twice that?", event_stream_handler=hear if how == "stream" else None).output)
