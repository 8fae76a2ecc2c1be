"""slime's own RayTrainGroup, from its source, beside a group of the launcher: start, calls and end, by turns.

Its actors are slime's class for CPUs, `RayActor`, with the place to meet that its trainer looks for; GPUs are declared.
"""

import argparse
import asyncio
import importlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import remove_placement_group

from ray_bars.calls import SIZE, TARGET, setup_in, show, turns
from slime_core.roles import Needs, WorkerGroupSpec
from slime_launcher_ray.launcher import RayLauncher
from slime_launcher_ray.settings import RaySettings

STARTS = 5


def beside_slime(rounds: int, checkout: Path) -> dict[str, float]:
    """Print it; returns the ratios."""
    sys.path.insert(0, str(checkout))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(checkout), os.environ.get("PYTHONPATH", "")])  # for its actors
    return asyncio.run(_beside_slime(rounds))


async def _beside_slime(rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        own = {"num_cpus": 2 * SIZE, "num_gpus": 2 * SIZE, "include_dashboard": False, "log_to_driver": False}
        ray.init("local", **own)  # of neither side, nor one that runs on this machine already
        ours = RayLauncher(RaySettings(), setup_in(scratch, "ray"))
        spec = WorkerGroupSpec("bench", SIZE, TARGET, {}, needs=Needs(gpus=1.0))
        await (await ours.start(spec)).close()  # a worker's first imports
        _, theirs = _slimes()
        _end(theirs)
        starts: dict[str, list[float]] = {"ray group": [], "slime's group": []}
        ends: dict[str, list[float]] = {"ray group": [], "slime's group": []}
        for _ in range(STARTS):
            began = time.perf_counter()
            group = await ours.start(spec)
            starts["ray group"].append(time.perf_counter() - began)
            began = time.perf_counter()
            await group.close()
            ends["ray group"].append(time.perf_counter() - began)
            took, theirs = _slimes()
            starts["slime's group"].append(took)
            began = time.perf_counter()
            _end(theirs)
            ends["slime's group"].append(time.perf_counter() - began)
        group, (_, theirs) = await ours.start(spec), _slimes()
        train_group = theirs[1]

        async def call() -> object:
            return ray.get(train_group.async_train(1, None))

        took_calls = await turns(
            {"ray group": lambda: group.call("add", [1] * SIZE), "slime's group": call},
            rounds,
        )
        _end(theirs)
        found = {
            "start/slime's": show(f"start of {SIZE} actors", starts, "slime's group"),
            "end/slime's": show("their end", ends, "slime's group"),
            "call/slime's": show(f"call of {SIZE} actors", took_calls, "slime's group"),
        }
        await ours.close()
        ray.shutdown()
    return found


def _slimes() -> tuple[float, tuple[Any, Any]]:
    """Seconds of a start as slime has it, with its placement group and its group."""
    placing = importlib.import_module("slime.ray.placement_group")
    arguments = argparse.Namespace(
        train_env_vars={},
        offload_train=False,
        use_routing_replay=False,
        update_weight_start_version=0,
        train_backend="megatron",
    )
    began = time.perf_counter()
    assign = placing._create_placement_group(SIZE)
    group = placing.allocate_train_group(arguments, 1, SIZE, assign, actor_cls=_actor_class())
    group.create()
    return time.perf_counter() - began, (assign[0], group)


def _end(theirs: tuple[Any, Any]) -> None:
    """End a group of slime's: as its `release` does, but without the five seconds that it sleeps."""
    placement, group = theirs
    for actor in group._actor_handlers:
        ray.kill(actor, no_restart=True)
    remove_placement_group(placement)


def _actor_class() -> type:
    base: Any = importlib.import_module("slime.ray.ray_actor").RayActor

    class CpuActor(base):  # type: ignore[misc]
        def __init__(self, world_size: int, rank: int, master_addr: str | None, master_port: int | None) -> None:
            self.master_addr, self.master_port = master_addr, master_port
            if master_addr is None:
                self.master_addr, self.master_port = self._get_current_node_ip_and_free_port(start_port=20000)

        def init(self, args: object, role: str, *, with_ref: bool, with_opd_teacher: bool) -> int:
            return 0

        def train(self, rollout_id: int, rollout_data_ref: object, external_data: object = None) -> int:
            return rollout_id + 1

    return CpuActor
