"""Trains agents that speak OpenAI's or Anthropic's protocol, unmodified: they are given a URL and a key.

async def agent(task: Task) -> float:
    client = openai.AsyncOpenAI(base_url=task.openai_base_url, api_key=task.api_key)
    ...
"""

from slime_agent_openai.task import Result, Task

__all__ = ["Result", "Task"]
