"""Checks before a run starts: Ray is installed, the head answers, and a local cluster has room for the run's groups.

Room on a running cluster is checked when the first group starts, since other runs share the cluster.
"""

import importlib.util
import os
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from slime_core.errors import ConfigError, did_you_mean
from slime_core.processes import own_cores
from slime_core.roles import WorkerGroupSpec
from slime_launcher_ray.settings import RaySettings

INSTALL = "pip install 'ray[default]>=2.55,<3'"


def has_ray() -> bool:
    """Whether Ray is installed."""
    return importlib.util.find_spec("ray") is not None


def require_ray(what: str) -> None:
    """Raise ConfigError unless Ray is installed."""
    if not has_ray():
        raise ConfigError(f"{what} needs Ray, which is not installed here. Run `{INSTALL}`")


def check_use(settings: RaySettings, groups: Sequence[WorkerGroupSpec]) -> None:
    """Check that a run's groups can start. Raises ConfigError: they cannot."""
    require_ray("the launcher 'ray'")
    from slime_launcher_ray.cluster import ClusterResources, Node, address_of, resolve_head
    from slime_launcher_ray.placement import check_room, resources

    _check_environment(settings.runtime_env)
    if (address := address_of(settings)) is not None:
        resolve_head(address)
        return
    has = {"CPU": float(own_cores()), "GPU": float(gpus_here(settings)), "memory": float(_memory_bytes())}
    room = ClusterResources("a Ray cluster on this machine", [Node("", "127.0.0.1", has)], shares_cores=True)
    held: dict[str, dict[str, float]] = {}
    for use in groups:
        if use.colocate_with is None and use.size:
            share = resources(use.needs, shared_cores=True)
            check_room(use, room, share, held)
            held[use.name] = {name: amount * use.size for name, amount in share.items()}


def _check_environment(runtime_env: Mapping[str, JsonValue]) -> None:
    """Check the keys of a runtime environment, since Ray ignores unknown ones."""
    from ray.runtime_env import RuntimeEnv

    known = RuntimeEnv.known_fields
    for key in runtime_env:
        if key not in known:
            raise ConfigError(
                f"[launcher.ray] runtime_env has an unknown key {key!r}.{did_you_mean(key, known)} Ray accepts: "
                f"{', '.join(sorted(each for each in known if not each.startswith('_')))}"
            )
    try:
        RuntimeEnv(**runtime_env)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"[launcher.ray] runtime_env: {error}") from error


def gpus_here(settings: RaySettings) -> int:
    """Number of GPUs of a cluster on this machine, from the settings or detected by Ray."""
    if settings.num_gpus is not None:
        return settings.num_gpus
    from ray._private.accelerators import get_accelerator_manager_for_resource

    manager = get_accelerator_manager_for_resource("GPU")
    if manager is None:
        return 0
    found, visible = manager.get_current_node_num_accelerators(), manager.get_current_process_visible_accelerator_ids()
    return int(found) if visible is None else min(int(found), len(visible))


def _memory_bytes() -> int:
    """Bytes of main memory; Ray counts at most this many."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
