"""Runs of agents that are killed: no group is trained on twice, and nothing is lost but the turn."""

import random
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from queue import SimpleQueue

import pytest

from slime_core.sample import Json
from tests.faults.figures import ALL, WHOLE, Figures
from tests.faults.nursery import Nursery
from tests.faults.stories import World

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds the processes of agents in /proc"),
    pytest.mark.timeout(3600),
]

AGENT = '''
import json
import urllib.request


def ask(task, messages):
    """A reply."""
    body = json.dumps({"model": task.model, "messages": messages}).encode()
    request = urllib.request.Request(f"{task.openai_base_url}/chat/completions", body)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())["choices"][0]["message"]


def two_turns(task):
    """A conversation; its reward is whether there is an odd number of letters in it."""
    asked = [{"role": "user", "content": task.prompt}]
    asked += [ask(task, asked), {"role": "user", "content": "!!"}]
    said = f"{asked[1]['content']}{ask(task, asked)['content']}"
    return float(len(said.replace(" ", "")) % 2)
'''
KILLS = 60 if WHOLE else 4
WORKERS = 2


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the agents, at a path by which this test's processes are told from others."""
    path = tmp_path_factory.mktemp("mine") / "two_turns.py"
    path.write_text(AGENT)
    return path


def processes(agent: str) -> list[int]:
    """Those that run this agent, `file:function`, and what they forked."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if agent.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, agents: Path) -> Iterator[World]:
    """Runs of agents of two turns, on the instant engine and the toy trainer."""
    root, nurseries = tmp_path_factory.mktemp("agents"), SimpleQueue[Nursery]()
    with ExitStack() as stack:
        for number in range(WORKERS):
            nurseries.put(stack.enter_context(Nursery(root, number)))
        yield World.make(root / "world", nurseries, WORKERS, _with(agents), max_uses=1)


def test_a_run_of_agents_that_is_killed_and_resumed_ends_like_one_that_was_not(world: World, agents: Path) -> None:
    figures, began = Figures("SIGKILL of runs of agents, at boundaries and at any instant"), time.monotonic()
    draw = random.Random(7)
    world.tell(world.at_boundaries(draw, KILLS // 4), figures)
    world.tell(islice(world.at_instants(draw), 20 * KILLS), figures, KILLS)
    figures.seconds = time.monotonic() - began
    ALL.append(figures)
    assert figures.problems == []
    assert figures.tried >= KILLS
    assert _are_gone(f"{agents}:two_turns")


def _with(agents: Path) -> dict[str, Json]:
    """Changes of the toys' run file: agents of two turns."""
    settings: Json = {"agent": f"{agents}:two_turns", "workers": 1, "agents_per_worker": 32}
    return {
        "plugins": {"only": ["slime-agent-openai"], "modules": [str(Path(__file__).with_name("toy.py"))]},
        "generator": {"use": "agent", "agent": settings},
        "reward": {"use": "environment"},
        "rollout_max_response_len": 60,
    }


def _are_gone(agent: str) -> bool:
    """Whether its processes end within some seconds."""
    for _ in range(200):
        if not processes(agent):
            return True
        time.sleep(0.05)
    return False
