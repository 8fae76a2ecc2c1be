"""Lease: resources of a cluster, as a Ray placement group, for a group of workers and the groups that share them.

Example:

    lease = Lease(spec, resources(spec.needs, shared_cores=True))
    await lease.take(cluster, timeout_s=300.0)          # waits for room that others have, and says so
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
from slime_launcher_ray.placement import amount_of, bundles, is_counted

LOOK_S = 1.0
"""Seconds between two checks for room."""
LEAVE_S = 5.0
"""Seconds that freeing the placement group may take."""
TOLD_S = 5.0
"""Seconds after which the wait is logged, and again each time it has doubled; Ray may take a second or two anyway."""

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
    """Resources reserved for a group and shared with groups placed next to it; freed when the last worker ends."""

    def __init__(self, spec: WorkerGroupSpec, each: Mapping[str, float]) -> None:
        """Plan the bundles; reserves nothing yet."""
        self.name = spec.name
        self.takes = {name: amount * spec.size for name, amount in each.items()}
        self._bundles, self._dealt, self._strategy = bundles(spec, each)
        self._each = each
        self._users = 0
        self._group: PlacementGroup | None = None
        self.is_lost = False
        """Whether the cluster is lost: Ray would try for a minute to free the group."""

    @property
    def group(self) -> PlacementGroup:
        """Ray's placement group."""
        assert self._group is not None, "taken"
        return self._group

    @property
    def slots(self) -> list[Slot]:
        """One slot for each worker of the group that took the lease."""
        return [Slot(bundle, self._each) for bundle in self._dealt]

    async def take(self, cluster: Cluster, timeout_s: float) -> None:
        """Wait for room.

        Raises:
            ConfigError: there was no room in time; lists what is free.
        """
        title = f"slime {self.name} {os.getpid()} {uuid.uuid4().hex[:8]}"  # no two may have one name
        group: PlacementGroup = await asyncio.to_thread(placement_group, self._bundles, self._strategy, title)
        self._group = group
        loop = asyncio.get_running_loop()
        began, next_s = loop.time(), TOLD_S
        try:
            while not await asyncio.to_thread(group.wait, LOOK_S):
                waited = loop.time() - began
                if waited > timeout_s:
                    raise ConfigError(
                        f"group {self.name!r} waited {timeout_s:g} s for room ([launcher.ray] placement_timeout_s): "
                        f"{await asyncio.to_thread(self._missing, cluster)}. Wait for other runs to end (`ray status` "
                        "shows them), or ask for less"
                    )
                if waited >= next_s:
                    next_s *= 2
                    missing = await asyncio.to_thread(self._missing, cluster)
                    log.warning("group %r waits for room, %.0f of %g s: %s", self.name, waited, timeout_s, missing)
        except BaseException:
            await asyncio.to_thread(remove_placement_group, group)
            raise

    def _missing(self, cluster: Cluster) -> str:
        free = ray.available_resources()
        listed = ", ".join(amount_of(name, each) for name, each in sorted(free.items()) if is_counted(name))
        bundle = ", ".join(amount_of(name, each) for name, each in self._bundles[0].items())
        return (
            f"it needs {len(self._bundles)} times {bundle} ({self._strategy}), and free on the cluster "
            f"at {cluster.address} are {listed or 'none'}, on {len(cluster.nodes())} nodes"
        )

    def join(self) -> None:
        """Count one more worker."""
        self._users += 1

    async def leave(self) -> None:
        """Count one worker less; the last one frees the group, with a short timeout."""
        self._users -= 1
        if not self._users and self._group is not None and not self.is_lost and ray.is_initialized():
            removing = threading.Thread(target=remove_placement_group, args=(self._group,), daemon=True)
            removing.start()
            await asyncio.to_thread(removing.join, LEAVE_S)
