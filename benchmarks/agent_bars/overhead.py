"""Bar 2: what a turn of an agent costs the driver, against a gateway that writes the history anew each turn.

All sessions talk at once, OpenAI chat with a tool; their clients are a process of their own, and the engine answers
after a while with a call that is given, so what is measured is the gateway: HTTP, matching, template, encoding,
reading. The peer is the same gateway whose forest never goes on from what was there: it renders and encodes the whole
conversation, as most gateways do. Both run in one process, by turns.
"""

import asyncio
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from agent_bars.clients import talk, talked
from agent_bars.dialogs import tokenizer_of
from agent_bars.engines import Tell, context_of
from slime_agent_openai.bridge import Bridge
from slime_agent_openai.forest import Forest, Node, Plan
from slime_agent_openai.gateway import Gateway
from slime_agent_openai.message import Message, Request
from slime_agent_openai.parsers.families import HERMES
from slime_agent_openai.session import Session, SessionLimits
from slime_core.data import HfTokenizer
from slime_core.roles import FinishReason, GenerateChunk, GenerateOutput, SamplingParams
from slime_core.run.session import settled_heap

ANSWER = (
    "<think>\nThe next thing to look up is the river.\n</think>\n\nLooking it up.\n"
    '<tool_call>\n{"name": "look_up", "arguments": {"query": "Rhone", "limit": 3}}\n</tool_call>'
)
RESULT = "The Rhone is 813 km long. " * 22
SYSTEM = "You are an agent that looks things up. " * 16
PART = 8
"""Tokens of a part that the engine tells."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked."""

    sessions: int = 64
    turns: int = 12
    stream: bool = False
    """Whether answers are streamed."""
    delay: float = 0.05
    """Seconds that the engine takes."""
    rounds: int = 3
    """Of each side, by turns; the median counts."""


class Rerendering(Forest):
    """The peer: each turn begins anew."""

    def plan(self, request: Request) -> Plan:
        """Render all of it."""
        text = self._bridge.whole(request.messages, request.tools)
        return Plan(None, request.messages, request.tools, request.agent, 0, text)


class Timed:
    """A forest, and how long each turn after the first took: finding, rendering and noting, without the encoding."""

    def __init__(self, forest: Forest, seconds: list[float]) -> None:
        self._forest, self._seconds, self._begun, self._is_first = forest, seconds, 0.0, True
        self.counts, self.name, self.chains, self.hashed = forest.counts, forest.name, forest.chains, forest.hashed

    def plan(self, request: Request) -> Plan:
        """Find where it goes on."""
        began = time.thread_time()
        plan = self._forest.plan(request)
        self._begun = time.thread_time() - began
        return plan

    def prompt(self, plan: Plan, ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """The whole prompt."""
        began = time.thread_time()
        made = self._forest.prompt(plan, ids)
        self._begun += time.thread_time() - began
        return made

    def commit(self, plan: Plan, new: Sequence[int], message: Message, output: GenerateOutput) -> Node:
        """Note a reply."""
        began = time.thread_time()
        node = self._forest.commit(plan, new, message, output)
        if not self._is_first:  # the first turn of a session is written whole on both sides
            self._seconds.append(self._begun + time.thread_time() - began)
        self._is_first = False
        return node


class Engine:
    """Answers every call alike, after a while."""

    def __init__(self, tokenizer: HfTokenizer, delay_s: float) -> None:
        self._tokens = [*tokenizer.encode(ANSWER), *tokenizer.eos_token_ids]
        self._log_probs, self._delay_s = [-0.5] * len(self._tokens), delay_s
        self.context = context_of(self.answer, tokenizer)
        """What every sample is given."""

    async def answer(self, prompt: Sequence[int], sampling: SamplingParams | None, on_chunk: Tell) -> GenerateOutput:
        """One answer."""
        output = GenerateOutput(self._tokens, self._log_probs, FinishReason.STOP, 0)
        if on_chunk is None:
            await asyncio.sleep(self._delay_s)
            return output
        places = range(0, len(self._tokens), PART)
        for place in places:
            await asyncio.sleep(self._delay_s / len(places))
            end = place + PART
            last = end >= len(self._tokens)
            parts = self._tokens[place:end], self._log_probs[place:end]
            on_chunk(GenerateChunk(*parts, 0, FinishReason.STOP if last else None))
        return output


async def measured(tokenizer: HfTokenizer, options: Load, *, anew: bool) -> dict[str, float]:
    """Figures of all sessions, with the peer's forest or with ours."""
    gateway, seconds = Gateway(), list[float]()
    engine = Engine(tokenizer, options.delay)
    await gateway.start()
    try:
        async with AsyncExitStack() as stack:
            sessions = []
            bridge = Bridge(tokenizer)
            for _ in range(options.sessions):
                session = Session(engine.context, SessionLimits(), bridge, HERMES)
                forest = Rerendering(bridge) if anew else session.forest
                session.forest = Timed(forest, seconds)  # type: ignore[assignment]
                sessions.append(session)
                await stack.enter_async_context(gateway.open_session(session))
            with settled_heap():  # as a run's driver has it
                doors = [(gateway.url, session.key) for session in sessions]
                spent = await talked("agent_bars.overhead", [options.turns, options.stream, *doors])
            cpu = spent.cpu_s
            chains = [list(session.forest.chains()) for session in sessions]
    finally:
        await gateway.close()
    turns = options.sessions * options.turns
    ids = [sum(len(node.ids) for node, _ in made[-1]) for made in chains]
    quantiles = statistics.quantiles(seconds, n=100)
    return {
        "cpu_ms_per_turn": round(cpu / turns * 1e3, 3),
        "forest_p50_ms": round(quantiles[49] * 1e3, 3),
        "forest_p99_ms": round(quantiles[98] * 1e3, 3),
        "turns_per_cpu_s": round(turns / cpu),
        "tokens": max(ids),
        "samples_per_session": round(sum(map(len, chains)) / len(chains), 2),
    }


async def _talk(turns: int, stream: bool, *doors: tuple[str, str]) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        await asyncio.gather(*(_agent(http, url, key, turns, stream=stream) for url, key in doors))


async def _agent(http: aiohttp.ClientSession, url: str, key: str, turns: int, *, stream: bool) -> None:
    schema = {"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": "look_up", "description": "Looks up.", "parameters": schema}}]
    messages: list[dict[str, object]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"How long is the river of {key[-6:]}?"},
    ]
    for _ in range(turns):
        body = {"model": "policy", "messages": messages, "tools": tools, "stream": stream}
        headers = {"Authorization": f"Bearer {key}"}
        async with http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as answer:
            raw = await answer.read()
            if answer.status != 200:
                raise SystemExit(f"the gateway answered {answer.status}: {raw[:500]!r}")
        said = _streamed(raw) if stream else json.loads(raw)["choices"][0]["message"]
        (call,) = said["tool_calls"]
        messages += [said, {"role": "tool", "tool_call_id": call["id"], "content": RESULT}]


def _streamed(raw: bytes) -> dict[str, Any]:
    """The message of a stream."""
    number = name = arguments = text = ""
    for delta in _deltas(raw):
        text += delta.get("content") or ""
        for part in delta.get("tool_calls") or []:
            number = part.get("id") or number
            name = part["function"].get("name") or name
            arguments += part["function"].get("arguments") or ""
    call = {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": text, "tool_calls": [call]}


def _deltas(raw: bytes) -> Iterator[Any]:
    for line in raw.decode().splitlines():
        if line.startswith("data: {"):
            yield from (choice["delta"] for choice in json.loads(line.removeprefix("data: "))["choices"])


def compared(load: Load, verifiers: Path | None = None) -> dict[str, object]:
    """Figures of both, medians over the rounds, and how much more the peer costs.

    Args:
        load: what is asked.
        verifiers: a Python with verifiers, whose server is another peer.
    """
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = tokenizer_of("json", Path(folder))
        rounds = {"ours": list[dict[str, float]](), "anew": list[dict[str, float]]()}
        peers = list[float]()
        for _ in range(load.rounds):
            for name, made in rounds.items():
                made.append(asyncio.run(measured(tokenizer, load, anew=name == "anew")))
                print(name, made[-1], flush=True)
            if verifiers is not None:
                peers.append(_verifiers(verifiers, load)["cpu_ms_per_turn"])
                print("verifiers", peers[-1], flush=True)
    figures: dict[str, object] = {
        name: {key: statistics.median(each[key] for each in made) for key in made[0]} for name, made in rounds.items()
    }
    ratios = [anew["cpu_ms_per_turn"] / ours["cpu_ms_per_turn"] for ours, anew in zip(*rounds.values(), strict=True)]
    if peers:
        figures["verifiers"] = {"cpu_ms_per_turn": statistics.median(peers)}
    asked = {"sessions": load.sessions, "turns": load.turns, "stream": load.stream}
    return {**asked, **figures, "anew_over_ours": round(statistics.median(ratios), 2)}


def _verifiers(python: Path, load: Load) -> dict[str, float]:
    """Figures of verifiers' server, in a process of the Python that has it."""
    root = Path(__file__).resolve().parents[1]
    command = [str(python), "-m", "agent_bars.interception", json.dumps([load.sessions, load.turns, load.delay])]
    env = os.environ | {"PYTHONPATH": str(root)}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"verifiers' server did not run in {python}:\n{ran.stderr[-2000:]}")
    made: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return made


def many(sessions: int = 1000) -> dict[str, float]:
    """A thousand sessions at once: turns a CPU second, and how much a second thousand adds to the memory."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = tokenizer_of("json", Path(folder))
        load = Load(sessions, turns=5)
        first = asyncio.run(measured(tokenizer, load, anew=False))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        asyncio.run(measured(tokenizer, load, anew=False))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"sessions": sessions, "turns_per_cpu_s": first["turns_per_cpu_s"], "grown_mib": round(grown / 1024, 1)}


if __name__ == "__main__":
    talk(_talk)
