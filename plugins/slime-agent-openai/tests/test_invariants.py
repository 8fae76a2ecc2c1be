"""Sessions of agents that do at random what agents do: what is trained on is what the engine saw and made.

A session is a function of its number: one that fails is seen again by `played(worlds[...], number)`.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import pytest
from chat import CHATML, MOVES_TOOLS, load_chat
from invariants import Ended, contents
from random_agent import Agent, Echo
from random_engine import RandomEngine
from session_clients import DirectClient, HttpClient

from slime_agent_openai.bridge import Bridge
from slime_agent_openai.gateway import Gateway
from slime_agent_openai.parsers.families import HERMES
from slime_agent_openai.session import Session, SessionLimits
from slime_core.data import HfTokenizer

MOST_TURNS = 21


@dataclass(frozen=True, slots=True)
class World:
    """A template, and what is made of it."""

    tokenizer: HfTokenizer
    bridge: Bridge
    keeps_template: bool = False
    appends: bool = True  # Whether each turn goes on from the last, as long as nobody changes anything

    def session(self, engine: RandomEngine, draw: random.Random) -> Session:
        """One that may end at its limits."""
        budget = 100_000 if draw.random() < 0.95 else draw.randint(20, 400)
        limits = SessionLimits(keeps_template=self.keeps_template)
        return Session(engine.context(max_new_tokens=budget), limits, self.bridge, HERMES)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[World]:
    chatml, moving = (load_chat(tmp_path_factory.mktemp("chat"), template) for template in (CHATML, MOVES_TOOLS))
    plain = World(chatml, Bridge(chatml))
    own = World(chatml, plain.bridge, keeps_template=True, appends=False)
    return [plain, own, plain, World(moving, Bridge(moving), appends=False)]


def played(world: World, number: int, order: int | None = None) -> Ended:
    """A session without HTTP; in an order that is given, no two answers say the same."""
    draw, is_ordered = random.Random(number), order is not None
    shuffled = random.Random(order)
    engine = RandomEngine(world.tokenizer, dawdles=shuffled if is_ordered else None, is_unlike=is_ordered)
    session = world.session(engine, draw)
    echo = draw.choice(list(Echo))
    client, luck = DirectClient(session, engine), random.Random(number)
    # Of two answers that were cut to the same few tokens nobody could say which is which.
    agent = Agent(client, engine, draw, shuffled, luck, echo, cut_rate=0.0 if is_ordered else 0.1)
    asyncio.run(agent.play(draw.randint(1, MOST_TURNS)))
    return Ended(session, engine, agent, appends=world.appends)


async def played_over_http(
    world: World, number: int, gateway: Gateway, http: aiohttp.ClientSession, fault_rate: float
) -> Ended:
    """One over HTTP."""
    draw, engine = random.Random(number), RandomEngine(world.tokenizer)
    session = world.session(engine, draw)
    async with gateway.open_session(session) as url:
        client = HttpClient(url, http, engine, draw, random.Random(number))
        echo, luck = draw.choice(list(Echo)), random.Random(number)
        agent = Agent(client, engine, draw, random.Random(number), luck, echo, fault_rate=fault_rate)
        await agent.play(draw.randint(1, MOST_TURNS))
    return Ended(session, engine, agent, appends=world.appends)


async def all_over_http(worlds: Sequence[World], numbers: Sequence[int], fault_rate: float) -> list[Ended]:
    """Some, one after the other."""
    gateway = Gateway()
    await gateway.start()
    try:
        async with aiohttp.ClientSession() as http:
            return [
                await played_over_http(worlds[number % len(worlds)], number, gateway, http, fault_rate)
                for number in numbers
            ]
    finally:
        await gateway.close()


def play(worlds: Sequence[World], scale: int) -> Counter[str]:
    """Counts of what `142 * scale` sessions did: without HTTP, over it, in two orders, with and without faults."""
    total: Counter[str] = Counter()
    for number in range(80 * scale):
        total += played(worlds[number % len(worlds)], number).checked()
    for number in range(8 * scale):
        one, two = (played(worlds[number % len(worlds)], number, order) for order in (1, 2))
        total += one.checked() + two.checked()
        assert Counter(map(contents, one.samples)) == Counter(map(contents, two.samples)), number  # I7
    for some in _batches(30 * scale):
        for ended in asyncio.run(all_over_http(worlds, some, 0.2)):
            total += ended.checked()
    for some in _batches(8 * scale):
        calm, hurt = (asyncio.run(all_over_http(worlds, some, rate)) for rate in (0.0, 0.5))
        for number, one, two in zip(some, calm, hurt, strict=True):
            total += one.checked() + two.checked()
            assert Counter(map(contents, one.samples)) == Counter(map(contents, two.samples)), number  # I8
    return total


def _batches(count: int, size: int = 50) -> list[range]:
    return [range(begin, min(begin + size, count)) for begin in range(0, count, size)]


def require_all(total: Counter[str], sessions: int, turns: int) -> None:
    """Each move and each fault occurred."""
    assert total["sessions"] == sessions
    assert total["turns"] >= turns
    moves = {"votes", "at once", "sub-agents", "asked again", "gone back", "edits", "cut", "forks", "samples"}
    faults = {"disconnect", "engine error", "interrupt", "sent twice", "sent again", "cut off"}
    assert {name for name in moves | faults if not total[name]} == set()


@pytest.mark.parametrize(
    "scale", [1, pytest.param(72, marks=[pytest.mark.property, pytest.mark.long, pytest.mark.timeout(3600)])]
)
def test_random_sessions_train_each_token_once(
    worlds: list[World], caplog: pytest.LogCaptureFixture, scale: int
) -> None:
    total = play(worlds, scale)
    print("".join(f"\n{count:>12,} {name}" for name, count in sorted(total.items(), key=lambda each: -each[1])))
    require_all(total, sessions=142 * scale, turns=1_000 * scale)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
