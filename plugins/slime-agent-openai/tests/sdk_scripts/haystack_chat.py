"""Haystack's Agent, over chat completions: python haystack_chat.py URL stream|whole."""

import sys

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret

url, how = sys.argv[1:]


@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


model = OpenAIChatGenerator(model="policy", api_base_url=f"{url}/v1", api_key=Secret.from_token("any"))
agent = Agent(chat_generator=model, tools=[add], streaming_callback=(lambda chunk: None) if how == "stream" else None)
asked = [ChatMessage.from_user("What is 17 + 25, and twice that?")]
print(agent.run(messages=asked)["messages"][-1].text)
