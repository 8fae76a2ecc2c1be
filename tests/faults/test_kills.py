"""A run killed at any boundary, or at any instant, ends like one that was not: instant engine, toy trainer."""

import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import islice
from queue import SimpleQueue

import pytest

from slime_core.sample import Json
from tests.faults.figures import ALL, WHOLE, Figures
from tests.faults.nursery import Nursery
from tests.faults.stories import World

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks")

SCENES: dict[str, tuple[int, dict[str, Json]]] = {
    "fifo": (1, {}),
    "async save": (1, {"async_save": True}),
    "replay": (
        3,
        {
            "buffer": {
                "use": "priority",
                "priority": {"max_uses": 3, "replay_ratio": 2.0, "max_staleness": 3, "capacity": 6},
            }
        },
    ),
}
"""Most uses of a group, and the run file's changes."""
WORKERS = 2
BOUNDARIES = None if WHOLE else 30
"""Of a fresh and of a resumed run each; None for all."""
INSTANTS = 1000 if WHOLE else 60

MakeWorld = Callable[[str], World]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeWorld]:
    """`world("fifo")`: a scene, made once."""
    root, nurseries = tmp_path_factory.mktemp("kills"), SimpleQueue[Nursery]()

    @cache
    def make(scene: str) -> World:
        max_uses, changes = SCENES[scene]
        return World.make(root / scene.replace(" ", "-"), nurseries, WORKERS, max_uses, changes)

    with ExitStack() as stack:
        for number in range(WORKERS):
            nurseries.put(stack.enter_context(Nursery(root, number)))
        yield make


@pytest.mark.parametrize("scene", list(SCENES))
def test_killed_at_a_boundary_it_ends_like_one_that_was_not(world: MakeWorld, scene: str) -> None:
    figures, started = Figures(f"SIGKILL at boundaries, {scene}"), time.monotonic()
    here = world(scene)
    here.tell(here.at_boundaries(random.Random(7), BOUNDARIES), figures)
    figures.seconds = time.monotonic() - started
    ALL.append(figures)
    assert figures.problems == []
    assert figures.tried >= (BOUNDARIES or 200)


@pytest.mark.parametrize("scene", list(SCENES))
def test_killed_at_any_instant_it_ends_like_one_that_was_not(world: MakeWorld, scene: str) -> None:
    figures, started = Figures(f"SIGKILL at random instants, {scene}"), time.monotonic()
    here = world(scene)
    here.tell(islice(here.at_instants(random.Random(11)), 20 * INSTANTS), figures, INSTANTS)
    figures.seconds = time.monotonic() - started
    ALL.append(figures)
    assert figures.problems == []
    assert figures.tried >= INSTANTS
