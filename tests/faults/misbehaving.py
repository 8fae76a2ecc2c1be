"""Agents that do what agents of users do: of the standard library, so that a worker starts fast."""

import asyncio
import json
import os
import signal
import time
import urllib.request
from contextlib import suppress

from slime_agent_openai import Task


def post(
    task: Task, messages: list[dict[str, object]], *, stream: bool = False, retry: int = 0, most: int | None = None
) -> bytes:
    """All bytes of an answer, or the first of it."""
    body = json.dumps({"model": task.model, "messages": messages, "stream": stream}).encode()
    headers = {"x-stainless-retry-count": str(retry)}
    request = urllib.request.Request(f"{task.openai_base_url}/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read(most))


def ask(task: Task, messages: list[dict[str, object]]) -> dict[str, object]:
    """A reply."""
    return dict(json.loads(post(task, messages))["choices"][0]["message"])


def two_turns(task: Task) -> float:
    """A conversation; its reward is whether there is an odd number of letters in it."""
    asked: list[dict[str, object]] = [{"role": "user", "content": task.prompt}]
    asked += [ask(task, asked), {"role": "user", "content": "!!"}]
    said = f"{asked[1]['content']}{ask(task, asked)['content']}"
    return float(len(said.replace(" ", "")) % 2)


async def as_asked(task: Task) -> float:
    """A conversation, and then what the prompt says."""
    reward = await asyncio.to_thread(two_turns, task)
    match task.prompt:
        case "raises":
            raise KeyError("no such river")
        case "is not a number":
            return float("nan")
        case "exits":
            os._exit(3)
        case "kills itself":
            os.kill(os.getpid(), signal.SIGKILL)
        case "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hangs":
            await asyncio.sleep(600)
        case "blocks":
            time.sleep(600)  # noqa: ASYNC251  # it is not to do so
        case "fills memory":
            await _fill()
        case "forks":
            _fork()
        case "leaves":
            await asyncio.to_thread(_leave, task)
    return reward


async def waits(task: Task) -> float:
    """A conversation, and a moment in which its process can be killed."""
    reward = await asyncio.to_thread(two_turns, task)
    await asyncio.sleep(1.0)
    return reward


async def _fill() -> None:
    eaten = []
    while True:
        eaten.append(b"x" * (32 << 20))
        await asyncio.sleep(0.02)


def _fork() -> None:
    """Leaves a child in a session of its own."""
    if not os.fork():
        os.setsid()
        time.sleep(600)
        os._exit(0)


def _leave(task: Task) -> None:
    """Goes away in the middle of a stream, and asks the same again, as SDKs do."""
    asked: list[dict[str, object]] = [{"role": "user", "content": "Once more."}]
    with suppress(OSError):
        post(task, asked, stream=True, most=20)
    assert post(task, asked, stream=True, retry=1).endswith(b"data: [DONE]\n\n")
