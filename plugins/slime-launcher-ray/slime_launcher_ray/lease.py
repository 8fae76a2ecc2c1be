"""Lease: a Ray placement group for a group of workers and for the groups that share its resources.

Example:

    lease = Lease(spec, resources(spec.needs, shared_cores=True))
    await lease.acquire(cluster, timeout_s=300.0)          # waits while other runs use the resources, and logs it
    lease.slots                                         # one for each worker
"""

import asyncio
import logging
import os
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from slime_core.errors import ConfigError
from slime_core.roles import WorkerGroupSpec
from slime_launcher_ray.cluster import Cluster
from slime_launcher_ray.placement import bundles, format_amount, is_requestable

CHECK_S = 1.0
"""Seconds between two checks for room."""
LEAVE_S = 5.0
"""Seconds to wait until the placement group is freed."""
FIRST_LOG_S = 5.0
"""Seconds of waiting before the first log line; each next line comes after twice as long. Ray itself takes 1 to 2 s."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Slot:
    """Placement of one worker."""

    bundle: int
    """Index of its bundle."""
    resources: Mapping[str, float]
    """The worker's share of the bundle, by Ray's resource names; empty for groups that share another's lease."""
    devices: tuple[str, ...] = ()
    """GPUs of the worker that already holds the bundle."""


class Lease:
    """Resources reserved for a group and for colocated groups; freed when the last worker ends."""

    def __init__(self, spec: WorkerGroupSpec, share: Mapping[str, float]) -> None:
        """Plan the bundles; `acquire` reserves them."""
        self.name = spec.name
        self.resources = {name: amount * spec.size for name, amount in share.items()}
        self._bundles, self._indexes, self._strategy = bundles(spec, share)
        self._share = share
        self._users = 0
        self._group: PlacementGroup | None = None
        self.is_lost = False
        """Whether the cluster is lost. Then the group is not freed: Ray would try for a minute."""

    @property
    def group(self) -> PlacementGroup:
        """Ray's placement group."""
        assert self._group is not None, "acquire() ran before"
        return self._group

    @property
    def slots(self) -> list[Slot]:
        """One slot for each worker of the group."""
        return [Slot(bundle, self._share) for bundle in self._indexes]

    async def acquire(self, cluster: Cluster, timeout_s: float) -> None:
        """Reserve the resources. Raises ConfigError: they were not free in time; lists the free resources."""
        title = f"slime {self.name} {os.getpid()} {uuid.uuid4().hex[:8]}"  # names must be unique
        group: PlacementGroup = await asyncio.to_thread(placement_group, self._bundles, self._strategy, title)
        self._group = group
        loop = asyncio.get_running_loop()
        began, next_s = loop.time(), FIRST_LOG_S
        try:
            while not await asyncio.to_thread(group.wait, CHECK_S):
                waited = loop.time() - began
                if waited > timeout_s:
                    raise ConfigError(
                        f"group {self.name!r} got no resources in {timeout_s:g} s ([launcher.ray] "
                        f"placement_timeout_s): {await asyncio.to_thread(self._missing, cluster)}. Wait for other runs "
                        "to end (`ray status` shows them), or request less"
                    )
                if waited >= next_s:
                    next_s *= 2
                    missing = await asyncio.to_thread(self._missing, cluster)
                    log.warning("group %r waits for resources, %.0f of %g s: %s", self.name, waited, timeout_s, missing)
        except BaseException:
            await asyncio.to_thread(remove_placement_group, group)
            raise

    def _missing(self, cluster: Cluster) -> str:
        free = ray.available_resources()
        listed = ", ".join(format_amount(name, each) for name, each in sorted(free.items()) if is_requestable(name))
        bundle = ", ".join(format_amount(name, each) for name, each in self._bundles[0].items())
        return (
            f"it needs {len(self._bundles)} times {bundle} ({self._strategy}); the cluster at {cluster.address} "
            f"({len(cluster.nodes())} nodes) has {listed or 'nothing'} free"
        )

    def join(self) -> None:
        """Count one more worker."""
        self._users += 1

    async def leave(self) -> None:
        """Count one worker less; the last one frees the group."""
        self._users -= 1
        if not self._users and self._group is not None and not self.is_lost and ray.is_initialized():
            removing = threading.Thread(target=remove_placement_group, args=(self._group,), daemon=True)
            removing.start()
            await asyncio.to_thread(removing.join, LEAVE_S)
