"""A run that is stopped at any instants goes on: no group is lost or trained too often, for any policy and buffer."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slime_core.catalog import Catalog
from slime_core.config import parse_config, read_run_file, resolve
from slime_core.run import Outcome, RunFolder, run
from slime_core.sample import Json
from slime_core.telemetry import MetricsLog, make_display
from slime_simulate.clock import VirtualLoop
from slime_view.samples import store
from tests.faults.accounts import Accounts
from tests.faults.toy import write_project

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stops by signals")

HANGS_S = 1000.0
"""Virtual seconds of a life that will not end."""


SHARED = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where a sync takes no time


class AtOnce(ThreadPoolExecutor):
    """Does its work when it is submitted: a real thread would take virtual time, as much as it likes."""

    def submit(self, function: Callable[..., Any], /, *arguments: object, **named: object) -> "Future[Any]":
        """The result, or what was raised."""
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments, **named))
        except Exception as error:
            done.set_exception(error)
        return done


def live(folder: Path, values: dict[str, Json], stop_s: float | None, *, at_once: bool = False) -> Outcome | None:
    """One life of the run: stopped after so many virtual seconds, or left alone; None if it was stopped at once."""
    config = parse_config(values | {"save": str(folder)})
    plan = resolve(config, Catalog.discover(config.plugins))

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        if at_once:
            asyncio.get_running_loop().call_later(0.0, os.kill, os.getpid(), signal.SIGINT)

    async def go() -> Outcome:
        asyncio.get_running_loop().set_default_executor(AtOnce())
        if stop_s is not None:
            asyncio.get_running_loop().call_later(stop_s, stop)
        async with asyncio.timeout(HANGS_S):
            return await run(plan, opened, display)

    with (
        RunFolder.open(folder, plan.config.to_dict()) as opened,
        make_display(progress=False) as display,
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(store, "ThreadPoolExecutor", AtOnce)
        try:
            return runner.run(go())
        except asyncio.CancelledError:
            return None


POLICIES: list[dict[str, Json]] = [
    {"rollout_policy": "sync"},
    {"rollout_policy": "async"},
    {"rollout_policy": "continuous", "max_staleness": 1},
    {"rollout_policy": "continuous", "max_staleness": 3},
    {"rollout_policy": "continuous", "partial_rollout": True, "max_staleness": 2},
    {"rollout_policy": "sync", "partial_rollout": True, "over_sampling_batch_size": 6},
]
seconds = st.sampled_from([0.0, 0.01, 0.3, 1.0, 4.0])


@dataclass(frozen=True)
class Scene:
    """A run file's keys, and how often its buffer may hand out a group."""

    keys: dict[str, Json]
    max_uses: int = 1


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Every policy with every buffer; delays of rewards and steps, and what limits the groups in flight."""
    policy, uses = draw(st.sampled_from(POLICIES)), draw(st.integers(1, 3))
    priority: Json = {
        "max_uses": uses,
        "replay_ratio": draw(st.sampled_from([1.0, (1 + uses) / 2, float(uses)])),
        "max_staleness": int(str(policy.get("max_staleness", 1))) + draw(st.integers(0, 2)),
        "capacity": draw(st.sampled_from([3, 6, 60])),
    }
    replays, filters = draw(st.booleans()), draw(st.booleans())
    keys: dict[str, Json] = {
        "reward": slow(draw(seconds)),
        "launcher": {"use": "in_process", "in_process": {"step_s": draw(seconds)}},
        "max_concurrency": draw(st.sampled_from([3, 9, 4096])),
        "buffer": {"use": "priority", "priority": priority} if replays else {"use": "fifo"},
        "group_filter": {"use": "nonzero_std" if filters else []},
        "over_sampling_batch_size": 6 if filters else None,
        "save_interval": draw(st.sampled_from([1, 2, 100])),
        "async_save": draw(st.booleans()),
    }
    return Scene(keys | policy, uses if replays else 1)


def slow(most_s: float) -> Json:
    """The reward that takes up to so long."""
    return {"use": "slow", "slow": {"most_s": most_s}}


STOPS = st.lists(st.tuples(st.floats(0, 8), st.booleans()), min_size=1, max_size=4)
"""Virtual seconds of each life, and whether it is stopped at once, so that its last steps are lost."""


REPLAYED = Scene(
    {
        "rollout_policy": "continuous",
        "max_staleness": 3,
        "max_concurrency": 3,
        "buffer": {"use": "priority", "priority": {"max_uses": 3, "replay_ratio": 3.0}},
        "group_filter": {"use": []},
        "over_sampling_batch_size": None,
        "reward": slow(0.3),
        "launcher": {"use": "in_process", "in_process": {"step_s": 4.0}},
    },
    max_uses=3,
)
"""Rewards are slow and the buffer can feed a step: after a resume not all that was in flight is drawn again at once."""


@pytest.mark.parametrize("most", [4, pytest.param(25, marks=pytest.mark.long)])
def test_wherever_it_is_stopped_it_resumes_to_its_end(most: int) -> None:
    tried = given(scenes(), STOPS)(ends_as_it_must)
    chosen = settings(max_examples=most, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    chosen(example(REPLAYED, [(2.0, False)])(tried))()


def ends_as_it_must(scene: Scene, stops: list[tuple[float, bool]]) -> None:
    """Stop a run again and again, and look at its end. One that is done is made longer."""
    with tempfile.TemporaryDirectory(dir=SHARED) as name:
        root, folder, rollouts = Path(name), Path(name) / "run", 7
        values = read_run_file(write_project(root, eval_prompt_data=None, eval_interval=None, **scene.keys))
        for stop_s, at_once in (*stops, (None, False)):
            if live(folder, values | {"num_rollout": rollouts}, stop_s, at_once=at_once) is Outcome.DONE:
                rollouts += 2
        accounts = Accounts.of(folder, scene.max_uses)
        assert (accounts.lost, accounts.over_used) == ([], [])
        done = [row.rollout_id for row in MetricsLog.read(folder / "metrics.jsonl")]
        assert done == list(range(rollouts - 2))
