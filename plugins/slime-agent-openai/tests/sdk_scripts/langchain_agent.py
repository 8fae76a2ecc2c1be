"""LangChain's agents, over Anthropic's Messages: python langchain_agent.py URL stream|whole."""

import sys

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic

url, how = sys.argv[1:]


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


agent = create_agent(ChatAnthropic(model="policy", base_url=url, api_key="any", max_tokens=500), [add])
asked = {"messages": [{"role": "user", "content": "What is 17 + 25, and twice that?"}]}
if how == "stream":
    *_, (_, ended) = (each for each in agent.stream(asked, stream_mode=["messages", "values"]) if each[0] == "values")
else:
    ended = agent.invoke(asked)
print(ended["messages"][-1].text)
