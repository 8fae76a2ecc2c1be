"""RayLauncher: runs worker groups as actors of a Ray cluster. The first group starts or joins the cluster."""

import asyncio
import contextlib
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from slime_core.errors import ConfigError, WorkerError
from slime_core.processes import GroupOfWorkers
from slime_core.roles import LauncherSetup, WorkerGroupSpec
from slime_launcher_ray.actor import CONTROL_GROUP, Actor, Site, WorkerSetup, environment, unwritable_error
from slime_launcher_ray.cluster import Cluster, join
from slime_launcher_ray.lease import Lease, Slot
from slime_launcher_ray.placement import check_room, places, rank_order, resources
from slime_launcher_ray.settings import RaySettings
from slime_launcher_ray.worker import RayWorker, death_reason

LOST_GRACE_S = 5.0
"""Seconds that a start has to fail by itself after its cluster is lost."""


@dataclass(frozen=True, slots=True)
class _RunningGroup:
    name: str
    group: GroupOfWorkers
    workers: Sequence[RayWorker]
    lease: Lease
    owns_lease: bool


class RayLauncher:
    """Implements `slime_core.roles.Launcher`."""

    def __init__(self, settings: RaySettings, setup: LauncherSetup) -> None:
        self._settings, self._logs, self._plugins = settings, setup.scratch, setup.plugins
        self._running: list[_RunningGroup] = []
        self._token = self._logs.absolute() / f".driver-{uuid.uuid4().hex[:12]}"
        self._cluster: Cluster | None = None
        self._lock = asyncio.Lock()
        self._watcher: asyncio.Task[str] | None = None

    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> GroupOfWorkers:
        """Start a group and wait until its workers are built; see `Launcher.start`."""
        async with self._lock:
            if self._cluster is None or self._watcher is None:
                _create_token(self._token)
                self._cluster = await join(self._settings)
                self._watcher = asyncio.create_task(self._watch(self._cluster))
            cluster, watcher = self._cluster, self._watcher
        starting = asyncio.create_task(self._start_group(spec, cluster, timeout_s))
        try:
            await asyncio.wait({starting, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done() and not watcher.cancelled():
                # Ray would wait for a minute and then end this process.
                await asyncio.wait({starting}, timeout=LOST_GRACE_S)
                if not starting.done():
                    raise WorkerError(f"{spec.name} could not be started: {watcher.result()}")
            return await starting
        finally:
            await _cancel_start(starting, watcher)

    async def _start_group(self, spec: WorkerGroupSpec, cluster: Cluster, timeout_s: float | None) -> GroupOfWorkers:
        spec_ref = await asyncio.to_thread(_put_spec, spec)
        lease, slots = await self._reserve(spec, cluster)
        workers = await self._actors(spec, lease, slots, timeout_s)
        group = GroupOfWorkers(workers)
        self._running.append(_RunningGroup(spec.name, group, workers, lease, spec.colocate_with is None))
        for worker, place in zip(workers, places([each.site for each in workers]), strict=True):
            log = (self._logs / f"{spec.name}-{place.rank}.log").absolute()
            variables = environment(spec.needs.cpus, spec.environment)
            worker_setup = WorkerSetup(
                place, self._plugins, str(log), str(self._token), str(Path.cwd()), tuple(sys.path), variables
            )
            worker.assign(worker_setup, spec_ref)
        await group.build(timeout_s)
        return group

    async def close(self) -> None:
        """Stop all groups and leave the cluster."""
        await asyncio.gather(*(each.group.close() for each in self._running))
        async with self._lock:
            if self._watcher is not None:
                self._watcher.cancel()
                self._watcher = None
            if self._cluster is not None:
                cluster, self._cluster = self._cluster, None
                await cluster.leave()
            with contextlib.suppress(OSError):  # creating the file may have failed
                self._token.unlink()

    async def _reserve(self, spec: WorkerGroupSpec, cluster: Cluster) -> tuple[Lease, Sequence[Slot]]:
        self._running = [each for each in self._running if not each.group.is_closed]
        if spec.colocate_with is not None:
            return self._colocated(spec, spec.colocate_with)
        share = resources(spec.needs, shared_cores=cluster.is_own)
        held = {running.name: running.lease.resources for running in self._running if running.owns_lease}
        await asyncio.to_thread(lambda: check_room(spec, cluster.resources(), share, held))
        lease = Lease(spec, share)
        await lease.acquire(cluster, self._settings.placement_timeout_s)
        return lease, lease.slots

    def _colocated(self, spec: WorkerGroupSpec, colocate_with: str) -> tuple[Lease, Sequence[Slot]]:
        for other in self._running:
            if other.name == colocate_with:
                shared = [Slot(worker.bundle, {}, worker.place.devices) for worker in other.workers]
                return other.lease, [shared[rank % len(shared)] for rank in range(spec.size)]
        names = ", ".join(each.name for each in self._running) or "no group"
        raise ConfigError(
            f"group {spec.name!r} shares the devices of {colocate_with!r}, which is not running. Running: {names}"
        )

    async def _actors(
        self, spec: WorkerGroupSpec, lease: Lease, slots: Sequence[Slot], timeout_s: float | None
    ) -> list[RayWorker]:
        started: list[ray.actor.ActorHandle[Actor]] = []
        for _ in slots:
            lease.join()
        try:
            started.extend(self._actor(spec, lease, slot) for slot in slots)  # keeps the actors before a failed one
            async with asyncio.timeout(timeout_s):
                sites: list[Site] = await asyncio.gather(*(_site_of(actor) for actor in started))
        except BaseException as error:
            for actor in started if self._watcher is None or not self._watcher.done() else ():
                await asyncio.to_thread(ray.kill, actor, no_restart=True)
            for _ in slots:
                await lease.leave()
            if isinstance(error, TimeoutError):
                raise WorkerError(f"{spec.name}: the actors did not start within {timeout_s:g} s") from None
            if isinstance(error, RayError):
                raise WorkerError(f"{spec.name}: the actors could not start: {death_reason(error)}") from None
            raise
        sites = [replace(site, devices=slot.devices or site.devices) for site, slot in zip(sites, slots, strict=True)]
        ranks = rank_order(sites) if spec.colocate_with is None else range(len(sites))
        return [RayWorker(spec.name, started[rank], sites[rank], slots[rank].bundle, lease.leave) for rank in ranks]

    def _actor(self, spec: WorkerGroupSpec, lease: Lease, slot: Slot) -> "ray.actor.ActorHandle[Actor]":
        amounts = dict(slot.resources)
        options = {
            "num_cpus": amounts.pop("CPU", 0.0),
            "num_gpus": amounts.pop("GPU", 0.0),
            "memory": amounts.pop("memory", None),
            "resources": amounts or None,
            "max_restarts": 0,
            "runtime_env": self._settings.runtime_env or None,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(lease.group, slot.bundle),
        }
        remote = ray.remote(concurrency_groups={CONTROL_GROUP: 2})(Actor)
        return remote.options(**options).remote()

    async def _watch(self, cluster: Cluster) -> str:
        reason = await cluster.wait_lost()
        for each in self._running:
            each.lease.is_lost = True
            for worker in each.workers:
                worker.mark_lost(reason)
        return reason


async def _cancel_start(starting: "asyncio.Task[GroupOfWorkers]", watcher: "asyncio.Task[str]") -> None:
    """Cancel a start that has not finished and wait for it, only briefly if the cluster is lost."""
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting}, timeout=LOST_GRACE_S if watcher.done() else None)
    if starting.done() and not starting.cancelled():
        starting.exception()  # else asyncio logs that the exception was never retrieved


def _create_token(token: Path) -> None:
    """Create a token file in the run folder. Workers on nodes that do not share the folder do not find it."""
    try:
        token.parent.mkdir(parents=True, exist_ok=True)
        token.touch()
    except OSError as error:
        raise unwritable_error(token.parent, "this machine", error.strerror or str(error)) from error


async def _site_of(actor: "ray.actor.ActorHandle[Actor]") -> Site:
    site: Site = await actor.site.remote()
    return site


def _put_spec(spec: WorkerGroupSpec) -> "ray.ObjectRef[WorkerGroupSpec]":
    try:
        return ray.put(spec)
    except Exception as error:
        for name, value in spec.arguments.items():
            try:
                ray.cloudpickle.dumps(value)
            except Exception as why:
                raise ConfigError(
                    f"group {spec.name!r}: argument {name!r} of {spec.target} cannot be sent to a worker, because it "
                    f"cannot be pickled: {why}. Pass plain data and build other objects in the worker"
                ) from error
        raise
