"""A launcher with its own event loop, for all tests that need a cluster."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

import ray
from ray.util import placement_group_table

from slime_core.roles import LauncherSetup, Setup, WorkerGroupSpec
from slime_launcher_ray.launcher import RayLauncher
from slime_launcher_ray.settings import RaySettings

ResultT = TypeVar("ResultT")


class Live:
    """A launcher with its own event loop."""

    def __init__(self, scratch: Path, settings: RaySettings) -> None:
        self.loop = asyncio.Runner()
        self.scratch = scratch
        self.launcher = RayLauncher(settings, setup_in(scratch))

    def run(self, call: Awaitable[ResultT]) -> ResultT:
        """Await a call on the launcher's event loop."""

        async def awaited() -> ResultT:
            return await call

        return self.loop.run(awaited())

    def alive(self) -> tuple[set[str], set[str]]:
        """Live actors and placement groups of the cluster; starts the cluster if needed."""
        if not ray.is_initialized():
            first = WorkerGroupSpec("first", 1, "slime_testing.launcher_worker:Worker", {"start": 1})
            self.run(self.run(self.launcher.start(first)).close())
        found = ray._private.state.actors()  # noqa: SLF001  # the public ray.util.state needs a dashboard
        actors = {name for name, each in found.items() if each["State"] != "DEAD"}
        groups = {name for name, each in placement_group_table().items() if each["state"] != "REMOVED"}
        return actors, groups


def setup_in(scratch: Path) -> LauncherSetup:
    """A launcher's setup outside of a run."""

    def make(role: str, name: str, **settings: object) -> object:
        raise AssertionError(f"these tests build no {role}")

    setup = Setup(make, 1)
    return LauncherSetup(setup.make, setup.seed, scratch=scratch)
