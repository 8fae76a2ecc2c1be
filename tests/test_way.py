"""The way of a token, as a run goes it, against the page that draws it: docs/design/0024-way-of-a-token.md."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Project, Slime = Any, Callable[..., Any]
ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "design" / "0024-way-of-a-token.md"

ENDS = ("filter", "engine", "reward", "loss")

PARTS = '''
import json
import sys
from dataclasses import replace

from slime_core import Score
from slime_core.roles import Keep, LossSpec
from slime_local.plugin import slime_engines

PACKAGES, OUTSIDE = ("slime_core.", "slime_local.", "slime_train."), ("slime_core.cli.", "slime_core.processes.server:")


def note(end):
    """Who called whom, up to the bottom of this task or process."""
    stack, frame = [], sys._getframe(2)
    while frame is not None:
        place = f"{frame.f_globals['__name__']}:{frame.f_code.co_qualname}"
        # From Python 3.12 on a comprehension has no frame.
        if place.startswith(PACKAGES) and not place.startswith(OUTSIDE) and not place.endswith("<listcomp>"):
            stack.insert(0, place)
        frame = frame.f_back
    with open("way.jsonl", "a") as file:
        file.write(json.dumps([end, stack]) + "\\n")


def seen_engine(settings, setup):
    engine = LOCAL.factory(LOCAL.model(workers=1), setup)
    generate = engine.generate

    async def seen(request):
        note("engine")
        return await generate(request)

    engine.generate = seen
    return engine


def seen_loss(settings, setup):
    loss = setup.make("loss", "policy_loss")

    def seen(batch):
        note("loss")
        return loss(batch)

    return seen


[LOCAL] = slime_engines()
ENGINE = replace(LOCAL, name="seen", factory=seen_engine, workers=lambda settings: 1)
LOSS = LossSpec("seen", seen_loss)


def keep(group, ctx):
    note("filter")
    return Keep()


async def reward(sample, ctx):
    note("reward")
    return Score(float(len(sample.response)))
'''


@pytest.fixture
def stacks(project: Project, slime: Slime) -> dict[str, list[str]]:
    """What stood on the stack where an engine, a reward and a loss were called, outermost first."""
    (project.root / "seen.py").write_text(PARTS)
    parts = {role: {"use": f"./seen.py:{name}"} for role, name in (("engine", "ENGINE"), ("loss", "LOSS"))}
    functions = {role: {"use": f"./seen.py:{name}"} for role, name in (("reward", "reward"), ("group_filter", "keep"))}
    project.write_run(num_rollout=1, **parts, **functions)
    ran = slime("train", "run.toml")
    assert ran.code == 0, ran.err
    return dict(map(json.loads, (project.root / "way.jsonl").read_text().splitlines()))


def on_the_page(end: str) -> list[str]:
    """The lines of the block of the page that ends there."""
    [block] = re.findall(rf"```text {end}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return [line.split()[0] for line in block.splitlines()]


def test_the_page_names_every_function_between_the_loop_and_the_plugins(stacks: dict[str, list[str]]) -> None:
    assert stacks == {end: on_the_page(end) for end in ENDS}
