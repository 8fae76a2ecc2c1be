"""An agent with a calculator, over OpenAI's chat API: nothing of slime is in it but a URL and a key.

What it answers is in the conversation, where the run's reward reads it: it returns None.
"""

import json
import re

from openai import AsyncOpenAI

from slime_agent_openai import Task

SUM = re.compile(r"\d{1,6}([+-]\d{1,6}){0,9}")
TURNS = 4
SCHEMA = {"type": "object", "properties": {"e": {"type": "string"}}, "required": ["e"]}
TOOLS = [{"type": "function", "function": {"name": "calc", "description": "value of a sum", "parameters": SCHEMA}}]


async def solve(task: Task) -> None:
    """Ask until the model calls no tool any more."""
    messages = [{"role": "system", "content": "solve"}, {"role": "user", "content": str(task.prompt)}]
    async with AsyncOpenAI(base_url=task.openai_base_url, api_key=task.api_key) as client:
        for _ in range(TURNS):
            said = await client.chat.completions.create(model=task.model, messages=messages, tools=TOOLS)
            message = said.choices[0].message
            if not message.tool_calls:
                return
            messages.append(message.model_dump(exclude_none=True))
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": value_of(call.function.arguments)}
                for call in message.tool_calls
            ]


def value_of(arguments: str) -> str:
    """The calculator, of what the model wrote."""
    try:
        terms = str(json.loads(arguments)["e"])
    except (ValueError, KeyError, TypeError):
        return "error"
    return str(sum(map(int, re.findall(r"[+-]?\d+", terms)))) if SUM.fullmatch(terms) else "error"
