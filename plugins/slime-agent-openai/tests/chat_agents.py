"""Agents that talk to the model, for tests of the generator; of the standard library, to start fast."""

import json
import os
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from slime_agent_openai import Result, Task


def ask(task: Task, messages: list[dict[str, object]], agent: str = "") -> dict[str, object]:
    body = json.dumps({"model": task.model, "messages": messages}).encode()
    headers = {"x-claude-code-agent-id": agent} if agent else {}
    request = urllib.request.Request(f"{task.openai_base_url}/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return dict(json.load(answer)["choices"][0]["message"])


def one_turn(task: Task) -> float:
    ask(task, [{"role": "user", "content": task.prompt}])
    return 1.0


def two_turns(task: Task) -> float:
    asked: list[dict[str, object]] = [{"role": "user", "content": task.prompt}]
    ask(task, [*asked, ask(task, asked), {"role": "user", "content": "Sure?"}])
    return 1.0


def rewards_turns(task: Task) -> Result:
    """Two turns, with the rewards that the label has."""
    two_turns(task)
    return Result(0.5, turn_rewards=task.label, metadata={"seen": ["17", 25]})  # type: ignore[arg-type]


def ends_with_two_at_once(task: Task) -> float:
    """A second turn of its conversation, and another question, which the model is asked at the same time."""
    asked: list[dict[str, object]] = [{"role": "user", "content": task.prompt}]
    more = [*asked, ask(task, asked), {"role": "user", "content": "Sure?"}]
    with ThreadPoolExecutor() as pool:
        list(pool.map(partial(ask, task), (more, [{"role": "user", "content": "short"}])))
    return 0.5


def has_sub_agents(task: Task) -> Result:
    """Two, of which one has a reward of its own."""
    for agent in ("scout", "clerk"):
        ask(task, [{"role": "user", "content": f"You are the {agent}."}], agent=agent)
    one_turn(task)
    return Result(1.0, agents={"scout": 0.25})


def raises_after_a_turn(task: Task) -> float:
    one_turn(task)
    raise KeyError("no such river")


def asks_and_may_exit(task: Task) -> float:
    """Ends its process, and those of others, if its prompt says so."""
    one_turn(task)
    if task.prompt == "exit":
        time.sleep(0.5)
        os._exit(3)
    time.sleep(1.5)
    return 1.0


def asks_nothing(task: Task) -> float:
    return 1.0


def insists(task: Task) -> float:
    """An agent that takes no error for an answer."""
    while True:
        try:
            return one_turn(task)
        except urllib.error.HTTPError:
            time.sleep(0.05)


def offers_tools(task: Task) -> float:
    """Asks with a tool, until it is answered."""
    body = json.dumps({"messages": [{"role": "user", "content": "Add!"}], "tools": [ADD]}).encode()
    while True:
        with suppress(urllib.error.HTTPError):
            urllib.request.urlopen(f"{task.openai_base_url}/chat/completions", body, timeout=30).close()
            return 1.0
        time.sleep(0.05)


ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
