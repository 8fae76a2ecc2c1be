"""Agents that misbehave, and some that do not, for tests of those who run them."""

import asyncio
import os
import time
from pathlib import Path

from slime_agent_openai import Task


async def gives_a_reward(task: Task) -> float:
    return float(str(task.label))


async def raises(task: Task) -> float:
    print("looked everywhere")
    raise KeyError("no such river")


async def exits_where_asked(task: Task) -> float:
    """Ends its process where the prompt says so, and else is still at work when another does."""
    if task.prompt == "exit":
        await asyncio.sleep(0.2)
        os._exit(3)
    await asyncio.sleep(0.5)
    return 1.0


async def ends_as_asked(task: Task) -> float:
    """Returns, ends its process, or keeps all in it from their work, as the prompt says."""
    match task.prompt:
        case "return":
            return 1.0
        case "exit":
            await asyncio.sleep(0.2)
            os._exit(3)
        case "block":
            await asyncio.sleep(0.2)
            time.sleep(600)  # noqa: ASYNC251  # it is not to do so
    await asyncio.sleep(1.0)
    return 1.0


def forks(task: Task) -> float:
    """Leaves a child behind in a session of its own, and then waits."""
    child = os.fork()
    if not child:
        os.setsid()
        time.sleep(600)
        os._exit(0)
    Path(str(task.prompt)).write_text(str(child))
    time.sleep(600)
    return 1.0


async def sleeps(task: Task) -> float:
    await asyncio.sleep(float(str(task.prompt)))
    return 1.0


def hangs(task: Task) -> float:
    """Hangs, or is away for as long as the prompt says; returns which process it was in."""
    time.sleep(600 if task.prompt == "hang" else float(str(task.prompt or 0)))
    return os.getpid()


async def fills_memory(task: Task) -> float:
    eaten = []
    while True:
        eaten.append(b"x" * (32 << 20))
        await asyncio.sleep(0.02)


async def counts_itself(task: Task) -> float:
    """How many are at work with it at most."""
    global running
    running += 1
    await asyncio.sleep(0.5)
    most = running
    await asyncio.sleep(0.1)
    running -= 1
    return most


running = 0
