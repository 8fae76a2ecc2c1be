"""A run killed at any boundary, or at any instant, ends like one that was not: instant engine, toy trainer."""

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice

import pytest

from slime_core.sample import Json
from tests.faults.figures import WHOLE, measured
from tests.faults.nursery import nurseries
from tests.faults.stories import World

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks")

PRIORITY: Json = {"max_uses": 3, "replay_ratio": 2.0, "max_staleness": 3, "capacity": 6}


@dataclass(frozen=True)
class Scene:
    """What a run is like."""

    changes: dict[str, Json]
    """Of the toys' run file."""
    max_uses: int = 1
    exact: bool = True
    """Reproducible to the bit, else exactly once."""
    thorough: bool = False
    """Cut at every boundary, and at a thousand instants; when the whole is tried."""


SLOW: dict[str, Json] = {"reward": {"use": "slow", "slow": {"most_s": 0.03}}, "max_concurrency": 6}
"""More groups wait for their rewards than can be generated at once."""
REPLAY: dict[str, Json] = {"buffer": {"use": "priority", "priority": PRIORITY}}
SCENES = {
    "sync": Scene({}, thorough=True),
    "async save": Scene({"async_save": True}),
    "sync replay": Scene(REPLAY, max_uses=3),
    "slow async": Scene({"rollout_policy": "async", **SLOW}, exact=False),
    "slow partial": Scene({"partial_rollout": True, "over_sampling_batch_size": 6, **SLOW}, exact=False),
    "slow continuous replay": Scene(
        {"rollout_policy": "continuous", "max_staleness": 2, **SLOW, **REPLAY}, max_uses=3, exact=False
    ),
}
WORKERS = 2
MOST = 200 if WHOLE else 5
"""Boundaries of a fresh and of a resumed run each that are tried, where not all are."""
INSTANTS = 300 if WHOLE else 4
"""Random instants that are tried."""

MakeWorld = Callable[[str], World]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeWorld]:
    """`world("fifo")`: a scene, made once."""
    root = tmp_path_factory.mktemp("kills")
    with nurseries(root, WORKERS) as free:

        @cache
        def make(scene: str) -> World:
            about, folder = SCENES[scene], root / scene.replace(" ", "-")
            return World.make(folder, free, WORKERS, about.changes, max_uses=about.max_uses, exact=about.exact)

        yield make


OFTEN = ("sync", "slow continuous replay")
"""Looked at with every change; the others are between these two."""


each_scene = pytest.mark.parametrize(
    "scene", [pytest.param(scene, marks=() if scene in OFTEN else pytest.mark.long) for scene in SCENES]
)


@pytest.mark.timeout(3600)
@each_scene
def test_killed_at_a_boundary_it_ends_like_one_that_was_not(world: MakeWorld, scene: str) -> None:
    here = world(scene)
    most = None if WHOLE and SCENES[scene].thorough else MOST
    with measured(f"SIGKILL at boundaries, {scene}") as figures:
        here.run_stories(here.at_boundaries(random.Random(7), most), figures)
    assert figures.tried >= (most or 200)


@pytest.mark.timeout(3600)
@each_scene
def test_killed_at_any_instant_it_ends_like_one_that_was_not(world: MakeWorld, scene: str) -> None:
    here = world(scene)
    most = 1000 if WHOLE and SCENES[scene].thorough else INSTANTS
    with measured(f"SIGKILL at random instants, {scene}") as figures:
        here.run_stories(islice(here.at_instants(random.Random(11)), 20 * most), figures, most)
    assert figures.tried >= most
