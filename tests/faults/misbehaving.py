"""Agents of the standard library, so that a worker starts fast."""

import asyncio
import json
import urllib.request

from slime_agent_openai import Task


def ask(task: Task, messages: list[dict[str, object]]) -> dict[str, object]:
    """A reply."""
    body = json.dumps({"model": task.model, "messages": messages}).encode()
    request = urllib.request.Request(f"{task.openai_base_url}/chat/completions", body)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return dict(json.loads(answer.read())["choices"][0]["message"])


def two_turns(task: Task) -> float:
    """A conversation; its reward is whether there is an odd number of letters in it."""
    asked: list[dict[str, object]] = [{"role": "user", "content": task.prompt}]
    asked += [ask(task, asked), {"role": "user", "content": "!!"}]
    said = f"{asked[1]['content']}{ask(task, asked)['content']}"
    return float(len(said.replace(" ", "")) % 2)


async def waits(task: Task) -> float:
    """A conversation, and a moment in which its process can be killed."""
    reward = await asyncio.to_thread(two_turns, task)
    await asyncio.sleep(1.0)
    return reward
