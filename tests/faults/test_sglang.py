"""Servers of SGLang's wire that are killed and stopped, behind a router that is, too: no answer is lost or another.

The servers are the kit's fake engine in processes of their own, started, watched and ended as SGLang's are, and the
router a stand-in: a hundred falls cost a minute so, not an hour. `pytest -m server` has the real ones.
"""

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from slime_core.catalog.catalog import BuiltChoice
from slime_core.roles import Engine, EngineSetup, GenerateRequest, SamplingParams
from slime_core.rollout import EnginePool, Limits
from slime_engine_sglang.engine import SglangEngine
from slime_engine_sglang.settings import SglangSettings
from slime_testing import make_launcher, publish_model, write_tiny_model
from tests.faults.conftest import running
from tests.faults.figures import WHOLE, Figures, measured

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds the processes of servers in /proc"),
    pytest.mark.timeout(1800),
]

PROGRAMS = Path(__file__).resolve().parents[2] / "plugins/slime-engine-sglang/tests"
SERVERS, AT_ONCE = 3, 24
FALLS = 40 if WHOLE else 4
EVERY_S = 1.0 if WHOLE else 0.5
LIMITS = Limits(silence_s=20.0, restart_s=60.0, probe_s=30.0, load_s=30.0)
GONE_S = 10.0


def python_of(folder: Path, program: str, *, sglang: bool = False) -> Path:
    """A Python that runs one program, whatever it is told to; with an SGLang, as far as can be seen from outside."""
    path = folder / "bin/python"
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAMS / program} "$@"\n', "utf-8")
    path.chmod(0o755)
    if sglang:
        (folder / "pyvenv.cfg").touch()
        (folder / "lib/python3.11/site-packages/sglang-0.5.23.dist-info").mkdir(parents=True)
    return path


def request_of(number: int) -> GenerateRequest:
    """One that no other is like, so that its answer is no other's."""
    return GenerateRequest((5, 6, number % 60), SamplingParams(8, ignore_eos=True), number)


def make(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)


class Servers:
    """A pool of engines, each with a server of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = write_tiny_model(folder / "model")
        self.launcher = make_launcher(folder / "logs")
        self.settings = SglangSettings.model_validate(
            {
                "python": str(python_of(folder / "sglang", "fake_server.py", sglang=True)),
                "router": {"python": str(python_of(folder / "router", "stub_router.py"))},
                "request_timeout_s": 30.0,
            }
        )
        self.pool = EnginePool(self._engine, SERVERS, LIMITS, probe=request_of(0))

    def _engine(self, number: int) -> BuiltChoice[Engine]:
        scratch = self.folder / f"engine-{number}"
        scratch.mkdir(exist_ok=True)
        setup = EngineSetup(
            make,
            0,
            hf_checkpoint=self.model,
            eos_token_ids=frozenset({0}),
            launcher=self.launcher,
            scratch=scratch,
            name=f"engine-{number}",
            number=number,
            count=SERVERS,
        )
        return BuiltChoice("sglang", "tests", SglangEngine(self.settings, setup))

    async def start(self) -> None:
        """Until all serve version 0."""
        await self.pool.start()
        await self.pool.load_weights(await asyncio.to_thread(publish_model, self.model, self.folder, 0), 0)

    async def close(self) -> None:
        await self.pool.close()
        await self.launcher.close()


async def hurt(folder: Path, chance: random.Random, figures: Figures) -> None:
    """Kill or stop a server, or now and then the router, again and again."""
    for fall in range(FALLS):
        await asyncio.sleep(EVERY_S)
        program = "stub_router.py" if fall % 4 == 3 else "fake_server.py"
        number = signal.SIGSTOP if fall % 3 == 2 else signal.SIGKILL
        if pids := running(program, str(folder)):
            os.kill(chance.choice(sorted(pids)), number)
            figures.tried += 1
        await asyncio.sleep(EVERY_S)


async def asked(pool: EnginePool, done: asyncio.Event) -> dict[int, Sequence[int]]:
    """Answers to one request after the other, many at once, until done."""
    answers: dict[int, Sequence[int]] = {}
    numbers = iter(range(10**6))

    async def work() -> None:
        while not done.is_set():
            number = next(numbers)
            answers[number] = (await pool.generate(request_of(number))).tokens

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return answers


def test_servers_and_the_router_are_killed_and_stopped_and_no_answer_is_lost(tmp_path: Path) -> None:
    async def main(figures: Figures) -> None:
        servers = Servers(tmp_path)
        try:
            await servers.start()
            done = asyncio.Event()
            asking = asyncio.create_task(asked(servers.pool, done))
            await hurt(tmp_path, random.Random(0), figures)
            async with asyncio.timeout(60):
                while len(servers.pool.serving) < SERVERS:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            done.set()
            answers = await asking
            figures.lost = len(set(range(max(answers) + 1)) - answers.keys())
            again = await asyncio.gather(*(servers.pool.generate(request_of(number)) for number in answers))
            figures.different = sum(
                list(tokens) != list(output.tokens) for tokens, output in zip(answers.values(), again, strict=True)
            )
            figures.resumed = figures.tried
        finally:
            await servers.close()

    with measured("servers of SGLang's wire and their router, killed and stopped") as figures:
        asyncio.run(main(figures))
    assert figures.tried >= FALLS / 2
    assert (figures.lost, figures.different) == (0, 0)
    end = time.monotonic() + GONE_S
    while left := [*running("fake_server.py", str(tmp_path)), *running("stub_router.py", str(tmp_path))]:
        assert time.monotonic() < end, f"processes {left} are left"
        time.sleep(0.1)
