"""What calls of a group cost: under Ray, of bare actors, under the local launcher, by turns in one event loop."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import ray

from slime_core.processes.launcher import LocalLauncher
from slime_core.roles import LauncherSetup, Setup, WorkerGroupSpec
from slime_launcher_ray.launcher import RayLauncher
from slime_launcher_ray.settings import RaySettings

TARGET = "slime_core.testing.launched:Worker"
SIZE = 2
LARGE = 32 * 2**20
"""Bytes that go, and come back as twice as many."""
LARGE_ROUNDS = 10

Way = Callable[[], Awaitable[object]]


class Bare:
    """An actor as Ray's own pages have it."""

    def add(self, number: int) -> int:
        return number

    def double(self, data: bytes) -> bytes:
        return data * 2


async def calls(rounds: int) -> dict[str, float]:
    """Print it; returns the ratios."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        ours, local = RayLauncher(RaySettings(), _setup(scratch, "ray")), LocalLauncher(_setup(scratch, "local"))
        spec = WorkerGroupSpec("bench", SIZE, TARGET, {"start": 0})
        began = time.perf_counter()
        group = await ours.start(spec)
        print(f"cluster and first group  {time.perf_counter() - began:6.1f} s")
        began = time.perf_counter()
        await (await ours.start(spec)).close()
        print(f"a group, start and end   {time.perf_counter() - began:6.1f} s")
        plain = await local.start(spec)
        actors = [ray.remote(Bare).options(num_cpus=0).remote() for _ in range(SIZE)]
        data = b"x" * LARGE

        async def bare_large() -> object:
            carried = await asyncio.to_thread(ray.put, data)
            return await asyncio.wrap_future(actors[0].double.remote(carried).future())

        small: Mapping[str, Way] = {
            "ray group": lambda: group.call("add", [1, 2]),
            "bare actors": lambda: asyncio.gather(*(each.add.remote(1) for each in actors)),
            "local group": lambda: plain.call("add", [1, 2]),
        }
        large: Mapping[str, Way] = {
            "ray group": lambda: group.call_one(0, "double", data),
            "bare actor, ray.put": bare_large,
            "local group": lambda: plain.call_one(0, "double", data),
        }
        of_calls = _show(f"call of {SIZE} workers", await _turns(small, rounds), "bare actors")
        title = f"{LARGE >> 20} MiB there, {LARGE >> 19} back"
        of_bytes = _show(title, await _turns(large, LARGE_ROUNDS), "bare actor, ray.put")
        await local.close()
        began = time.perf_counter()
        await ours.close()
        closing = time.perf_counter() - began
        print(f"end of all               {closing:6.1f} s")
    return {"call/bare": of_calls, "large/ray.put": of_bytes, "close_s": closing}


async def _turns(ways: Mapping[str, Way], rounds: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 2):
        for name, way in ways.items():
            began = time.perf_counter()
            await way()
            if number >= 2:  # the first ones import
                took[name].append(time.perf_counter() - began)
    return took


def _show(what: str, took: Mapping[str, list[float]], against: str) -> float:
    medians = {name: statistics.median(each) for name, each in took.items()}
    print(what)
    for name, median in medians.items():
        print(f"  {name:<20} {1e3 * median:9.2f} ms, {median / medians[against]:5.2f} times {against}")
    return medians["ray group"] / medians[against]


def _setup(scratch: str, name: str) -> LauncherSetup:
    def make(role: str, name: str, **settings: object) -> object:
        raise LookupError(f"{role} {name}")

    return LauncherSetup(Setup(make, 1).make, 1, scratch=Path(scratch) / name)
