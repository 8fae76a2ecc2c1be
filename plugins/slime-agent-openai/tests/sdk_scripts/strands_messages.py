"""Strands Agents, over Anthropic's Messages, which it always streams: python strands_messages.py URL stream|whole."""

import sys

from strands import Agent, tool
from strands.models.anthropic import AnthropicModel

url, _ = sys.argv[1:]


@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


model = AnthropicModel(client_args={"base_url": url, "api_key": "any"}, model_id="policy", max_tokens=500)
print(Agent(model=model, tools=[add], callback_handler=None)("What is 17 + 25, and twice that?"))
