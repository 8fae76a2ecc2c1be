"""What calls of a group cost: under Ray, of bare actors, under the local launcher, by turns in one event loop."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import ray

from ray_bars.echo import Echo
from slime_core.processes.launcher import LocalLauncher
from slime_core.roles import LauncherSetup, Setup, WorkerGroupSpec
from slime_launcher_ray.launcher import RayLauncher
from slime_launcher_ray.settings import RaySettings

TARGET = "ray_bars.echo:Echo"
SIZE = 2
LARGE = 64 * 2**20
"""Bytes that go, and come back."""
LARGE_ROUNDS = 10

Way = Callable[[], Awaitable[object]]


async def calls(rounds: int) -> dict[str, float]:
    """Print it; returns the ratios."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        ours, local = RayLauncher(RaySettings(), setup_in(scratch, "ray")), LocalLauncher(setup_in(scratch, "local"))
        spec = WorkerGroupSpec("bench", SIZE, TARGET, {})
        began = time.perf_counter()
        group = await ours.start(spec)
        print(f"cluster and first group  {time.perf_counter() - began:6.1f} s")
        began = time.perf_counter()
        await (await ours.start(spec)).close()
        print(f"a group, start and end   {time.perf_counter() - began:6.1f} s")
        plain = await local.start(spec)
        actors = [ray.remote(Echo).options(num_cpus=0).remote(rank, SIZE) for rank in range(SIZE)]
        data = b"x" * LARGE

        async def bare_large() -> object:
            carried = await asyncio.to_thread(ray.put, data)
            return await asyncio.wrap_future(actors[0].echo.remote(carried).future())

        small: Mapping[str, Way] = {
            "ray group": lambda: group.call("add", [1, 2]),
            "bare actors": lambda: asyncio.gather(*(each.add.remote(1) for each in actors)),
            "local group": lambda: plain.call("add", [1, 2]),
        }
        large: Mapping[str, Way] = {
            "ray group": lambda: group.call_one(0, "echo", data),
            "bare actor, ray.put": bare_large,
            "local group": lambda: plain.call_one(0, "echo", data),
        }
        of_calls = show(f"call of {SIZE} workers", await turns(small, rounds), "bare actors")
        title = f"{LARGE >> 20} MiB there and back"
        of_bytes = show(title, await turns(large, LARGE_ROUNDS), "bare actor, ray.put")
        await local.close()
        began = time.perf_counter()
        await ours.close()
        closing = time.perf_counter() - began
        print(f"end of all               {closing:6.1f} s")
    return {"call/bare": of_calls, "large/ray.put": of_bytes, "close_s": closing}


async def turns(ways: Mapping[str, Way], rounds: int) -> dict[str, list[float]]:
    """Seconds of each way, by turns."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 2):
        for name, way in ways.items():
            began = time.perf_counter()
            await way()
            if number >= 2:  # the first ones import
                took[name].append(time.perf_counter() - began)
    return took


def show(what: str, took: Mapping[str, list[float]], against: str) -> float:
    """Print medians; returns how many times `against` a group under Ray takes."""
    medians = {name: statistics.median(each) for name, each in took.items()}
    print(what)
    for name, median in medians.items():
        print(f"  {name:<20} {1e3 * median:9.2f} ms, {median / medians[against]:5.2f} times {against}")
    return medians["ray group"] / medians[against]


def setup_in(scratch: str, name: str) -> LauncherSetup:
    """A launcher's setup, outside of a run."""

    def make(role: str, name: str, **settings: object) -> object:
        raise LookupError(f"{role} {name}")

    return LauncherSetup(Setup(make, 1).make, 1, scratch=Path(scratch) / name)
