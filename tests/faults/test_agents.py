"""Agents whose processes are killed or whose engines fail, and killed runs of agents: nothing is lost or trained twice.

How each way in which an agent can fail ends is told by slime-agent-openai's test_workers and test_cli_agent.
"""

import asyncio
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from chat import load_chat
from invariants import require_exact
from random_engine import RandomEngine

from slime_agent_openai.gateway import Gateway
from slime_agent_openai.generator import AgentGenerator
from slime_agent_openai.session import SessionLimits
from slime_agent_openai.workers import Workers
from slime_core import Sample, Status
from slime_core.data import HfTokenizer
from slime_core.sample import Json
from slime_core.telemetry import MetricsLog
from slime_testing import make_pending
from tests.faults.accounts import Accounts
from tests.faults.conftest import running
from tests.faults.figures import ALL, WHOLE, Figures, measured
from tests.faults.nursery import nurseries
from tests.faults.stories import World
from tests.faults.toy import train, write_project

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds the processes of agents in /proc"),
    pytest.mark.timeout(3600),
]

HERE = Path(__file__).parent
SECONDS = 20.0 if WHOLE else 15.0
"""That an agent may take."""
ROUNDS = 8 if WHOLE else 1
GROUPS, ROLLOUTS = 12, 25 if WHOLE else 2
KILLS = 60 if WHOLE else 3
WORKERS = 2


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the agents, at a path by which this test's processes are told from others."""
    return Path(shutil.copy(HERE / "misbehaving.py", tmp_path_factory.mktemp("mine")))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    return load_chat(tmp_path_factory.mktemp("chatml"))


async def play(generator: AgentGenerator, tokenizer: HfTokenizer) -> Sample:
    """The main sample of one agent, all of whose samples are as its engine has them."""
    engine = RandomEngine(tokenizer)
    samples = await generator(make_pending(prompt="17 + 25?"), engine.context(max_new_tokens=4_000))
    require_exact(samples, engine)
    return samples[-1]


@pytest.mark.faults_full
def test_agents_whose_processes_are_killed_run_again(tokenizer: HfTokenizer, agents: Path) -> None:
    began, killed, agent = time.monotonic(), 0, f"{agents}:waits"

    async def rounds() -> list[Sample]:
        nonlocal killed
        workers, made = Workers(agent, workers=2, agents_per_worker=4, memory_mb=600), list[Sample]()
        generator = AgentGenerator(workers, Gateway(), SessionLimits(), parser="auto", seconds=SECONDS)
        await generator.start()
        try:
            for _ in range(ROUNDS):
                under_way = asyncio.gather(*(play(generator, tokenizer) for _ in range(8)))
                await asyncio.sleep(0.8)
                for pid in running(agent):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
                made += await under_way
        finally:
            await generator.close()
        return made

    made = asyncio.run(rounds())
    lost = [sample for sample in made if sample.status is not Status.COMPLETED]
    ALL.append(Figures("SIGKILL of processes of agents", killed, killed, len(lost), seconds=time.monotonic() - began))
    assert [(sample.failure_reason, sample.metadata.get("failure_detail")) for sample in lost] == []
    assert killed >= 2 * ROUNDS
    assert _are_gone(agent)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, agents: Path) -> Iterator[World]:
    """Runs of agents of two turns, on the instant engine and the toy trainer."""
    root = tmp_path_factory.mktemp("agents")
    with nurseries(root, WORKERS) as free:
        yield World.make(root / "world", free, WORKERS, _with_agents(agents), max_uses=1)


def test_a_run_of_agents_that_is_killed_and_resumed_ends_like_one_that_was_not(world: World, agents: Path) -> None:
    draw = random.Random(7)
    with measured("SIGKILL of runs of agents, at boundaries and at any instant") as figures:
        world.run_stories(world.at_boundaries(draw, max(1, KILLS // 4)), figures)
        world.run_stories(islice(world.at_instants(draw), 20 * KILLS), figures, KILLS)
    assert figures.tried >= KILLS
    assert _are_gone(f"{agents}:two_turns")


@pytest.mark.faults_full
def test_engines_that_fail_during_conversations_cost_no_group(tmp_path: Path, agents: Path) -> None:
    run_file = write_project(
        tmp_path,
        rows=10_000,
        rollout_batch_size=GROUPS,
        over_sampling_batch_size=None,
        n_samples_per_prompt=4,
        num_rollout=ROLLOUTS,
        rollout_num_engines=4,
        rollout_engine_timeout_s=2.0,
        group_filter=None,
        eval_prompt_data=None,
        eval_interval=None,
        engine={"use": "often_faulty"},
        **_with_agents(agents, "faulty.py"),
    )
    began = time.monotonic()
    run = train(run_file)
    accounts = Accounts.of(run, max_uses=1)
    rows = [row.metrics for row in MetricsLog.read(run / "metrics.jsonl")]
    causes = ("died", "hung", "garbage", "stale")
    tried = int(sum(row.get(f"perf/engine/quarantined/{cause}", 0.0) for row in rows for cause in causes))
    spent = time.monotonic() - began
    what = "engines that die, hang and answer garbage to agents"
    ALL.append(Figures(what, tried, tried, len(accounts.lost), len(accounts.over_used), seconds=spent))
    assert (accounts.drawn, accounts.lost, accounts.over_used) == (ROLLOUTS * GROUPS, [], [])
    assert tried >= ROLLOUTS


def _with_agents(agents: Path, *modules: str) -> dict[str, Json]:
    """Changes of the toys' run file: agents of two turns."""
    return {
        "plugins": {"only": ["slime-agent-openai"], "modules": [str(HERE / name) for name in ("toy.py", *modules)]},
        "generator": {"use": "agent", "agent": {"agent": f"{agents}:two_turns", "workers": 1, "agents_per_worker": 32}},
        "reward": {"use": "environment"},
        "rollout_max_response_len": 60,
    }


def _are_gone(agent: str) -> bool:
    """Whether its processes end within some seconds."""
    for _ in range(200):
        if not running(agent):
            return True
        time.sleep(0.05)
    return False
