"""Protection: puts a plugin's rewards where their specs say, so that everybody else awaits them alike.

Example:

    protection = Protection(plugins=catalog.plugin_set, seed=1, stats=PluginStats())
    reward = protection.protect(registered, settings, lambda: registered.spec.factory(settings, setup), name="math")
    await protection.start()             # a plugin that a worker cannot build is found here
    verdict = await reward(sample, ctx)
    protection.close()
"""

import asyncio
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

from slime_core.catalog import Registered
from slime_core.catalog.checks import as_verdict
from slime_core.errors import PluginError
from slime_core.isolation.lanes import Isolated, IsolatedGroup, Lane, ProcessLane, ThreadLane
from slime_core.isolation.on_loop import OnLoop
from slime_core.isolation.pool import WorkerPool
from slime_core.isolation.process import WORKER, WorkerProcess
from slime_core.isolation.threads import ThreadPool
from slime_core.isolation.wire import plain
from slime_core.processes.server import Server
from slime_core.roles import CallSpec, Isolation, PluginSet, Settings, is_async
from slime_core.roles.foreign_shape import misfit
from slime_core.sample import Json
from slime_core.secrets import REDACTOR
from slime_core.stats import PluginStats

THREADS = 32
"""Threads of a choice that does not say."""


class Protection:
    """Owns the workers of a run's rewards and group rewards."""

    def __init__(self, *, plugins: PluginSet, seed: int, stats: PluginStats) -> None:
        """Nothing is started.

        Args:
            plugins: what workers load: the driver's plugins, in its versions.
            seed: the run's, for factories.
            stats: where calls are counted.
        """
        self._plugins = plugins
        self._seed = seed
        self._stats = stats
        self._lanes: dict[str, Lane] = {}
        self._server = Server(preload=[WORKER])

    def protect(self, registered: Registered, settings: Settings, build: Callable[[], object], *, name: str) -> object:
        """What `build` makes of a choice; a reward or a group reward may be awaited, wherever its calls run.

        What a spec that says PROCESS offers is built in workers only. `name` is what the run calls the choice.

        Raises:
            PluginError: the spec and the object that its factory makes do not fit.
        """
        spec = registered.spec
        if not isinstance(spec, CallSpec):
            return build()
        calls = self._stats.calls(spec.role, name, registered.plugin)
        made = None if spec.isolation is Isolation.PROCESS else build()
        isolation = isolation_of(spec, made)
        if isolation is Isolation.LOOP:
            call = cast(Callable[..., object], made)
            return OnLoop(
                call,  # type: ignore[arg-type]  # it is awaited: `isolation_of` has seen that
                timeout_s=spec.timeout_s,
                max_concurrency=spec.max_concurrency,
                calls=calls,
                convert=as_verdict if spec.role == "reward" else None,
            )
        key = json.dumps([spec.role, registered.qualified, plain(settings)], sort_keys=True)
        if key not in self._lanes:
            self._lanes[key] = self._lane(registered, spec, settings, isolation, made)
        return (IsolatedGroup if spec.role == "group_reward" else Isolated)(self._lanes[key], calls)

    def _lane(
        self, registered: Registered, spec: CallSpec[object], settings: Settings, isolation: Isolation, made: object
    ) -> Lane:
        title = f"{spec.role} {registered.qualified}"
        if isolation is Isolation.THREAD:
            call = cast(Callable[..., object], made)
            pool = ThreadPool(spec.max_concurrency or THREADS, title)
            return ThreadLane(spec, registered.plugin, call, spec.role == "group_reward", pool)
        start: dict[str, Json] = {
            "role": spec.role,
            "name": registered.qualified,
            "plugin": registered.plugin,
            "settings": plain(settings),
            "plugins": {
                "only": plain(self._plugins.only or ()),
                "modules": plain(self._plugins.modules),
                "expected": plain(self._plugins.expected),
                "root": str(self._plugins.root or Path.cwd()),
            },
            "secrets": plain(REDACTOR.within(settings.model_dump())),
            "seed": self._seed,
            "memory_mb": spec.memory_mb,
        }
        launch = partial(WorkerProcess, self._server, start, title=title, memory_mb=spec.memory_mb)
        return ProcessLane(spec, WorkerPool(launch, spec.max_concurrency or _cores()))

    async def start(self) -> None:
        """Start a worker of each choice that runs in processes.

        Raises:
            PluginError: a worker cannot build its plugin; shows what it printed.
        """
        try:
            async with asyncio.TaskGroup() as starting:
                for lane in self._lanes.values():
                    starting.create_task(lane.start())
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    def close(self) -> None:
        """End everything that was started; does nothing the second time."""
        for lane in self._lanes.values():
            lane.close()
        self._server.close()


def _cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def isolation_of(spec: CallSpec[object], made: object) -> Isolation:
    """Where the calls of what a factory made run: as the spec says, else by how it is written.

    Raises:
        PluginError: a plain `def` is to run on the event loop, or an `async def` in threads.
    """
    what = f"{spec.role} {spec.name!r}"
    if spec.isolation is Isolation.PROCESS:
        return Isolation.PROCESS
    if not callable(made):
        raise PluginError(f"{what}: the factory returned {made!r:.80}, which cannot be called")
    if (why := misfit(made, spec.name, spec.role)) is not None:
        raise PluginError(f"{what}: {why}")
    asynchronous = is_async(made)
    if spec.isolation is Isolation.LOOP and not asynchronous:
        raise PluginError(
            f"{what} is a plain `def`, and its spec says isolation=Isolation.LOOP, where it would keep everything else "
            "waiting. Write `async def` and `await` what takes time, or remove the isolation: then it runs in a process"
        )
    if spec.isolation is Isolation.THREAD and asynchronous:
        raise PluginError(
            f"{what} is an `async def`, and its spec says isolation=Isolation.THREAD, which is for a plain `def` that "
            "blocks. Remove the isolation: then it runs on the event loop"
        )
    if spec.isolation is not None:
        return spec.isolation
    return Isolation.LOOP if asynchronous else Isolation.PROCESS
