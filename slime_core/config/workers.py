"""Workers: where the counts of `ClusterArgs` belong, whichever trainer and engine are chosen.

They say in one way what each trainer and engine has a setting of its own for; both may be given where they agree.

Example:

    place_workers({"actor_num_gpus_per_node": 2}, cluster, flat_keys)["trainer"]      # {"local": {"ranks": 2}}
"""

from collections.abc import Iterator, Mapping
from typing import cast

from slime_core.catalog import Registered
from slime_core.config.cluster import ClusterArgs
from slime_core.config.flat_keys import FlatKeys, Path, put
from slime_core.errors import ConfigError
from slime_core.roles import EngineSpec, TrainerSpec
from slime_core.sample import Json


def place_workers(values: Mapping[str, Json], cluster: ClusterArgs, flat_keys: FlatKeys) -> dict[str, Json]:
    """The values with the counts in the sections of trainer and engine, and in `rollout_num_engines`.

    Args:
        values: with flat keys at their places.
        cluster: their counts.
        flat_keys: what is offered.

    Raises:
        ConfigError: a count contradicts what is there, or has no effect on what is chosen.
    """
    flat = dict(values)
    chosen = {role: (name, registered) for (role, name), registered in flat_keys.chosen(values).items()}
    if "trainer" in chosen:
        for said, path, count in _ranks(cluster, *chosen["trainer"]):
            put(flat, said, path, count)
    if "engine" in chosen:
        for said, path, count in _engines(cluster, values, *chosen["engine"]):
            put(flat, said, path, count)
    return flat


def spellings(key: str, values: Mapping[str, Json], flat_keys: FlatKeys) -> tuple[Path, ...]:
    """What else of a run file says the same as a count on the command line, or is counted by it."""
    counted = {
        role: (((role, name, own),) if (own := _workers_key(each)) else ())
        for (role, name), each in flat_keys.chosen(values).items()
        if role in ("trainer", "engine")
    }
    ranks, workers = counted.get("trainer", ()), counted.get("engine", ())
    return {
        "actor_num_nodes": ranks,
        "actor_num_gpus_per_node": ranks,
        "rollout_num_gpus": (("rollout_num_engines",),),
        "rollout_num_gpus_per_engine": (("rollout_num_engines",), *workers)
        if "rollout_num_gpus" in values
        else workers,
        "rollout_num_engines": (("rollout_num_gpus",),),
    }.get(key, ())


def _ranks(cluster: ClusterArgs, name: str, trainer: Registered) -> Iterator[tuple[str, Path, int]]:
    nodes, each = cluster.actor_num_nodes, cluster.actor_num_gpus_per_node
    if each is None:
        if nodes is not None:
            raise ConfigError(
                "actor_num_nodes has no effect here: give actor_num_gpus_per_node, the ranks on each node"
            )
        return
    key = _workers_key(trainer)
    if not key:
        raise ConfigError(
            f"actor_num_gpus_per_node has no effect here: trainer {name!r} has no setting that says how many ranks "
            "there are; leave it out"
        )
    count = (nodes or 1) * each
    yield f"actor_num_nodes * actor_num_gpus_per_node = {count}", ("trainer", name, key), count


def _engines(
    cluster: ClusterArgs, values: Mapping[str, Json], name: str, engine: Registered
) -> Iterator[tuple[str, Path, int]]:
    total, each = cluster.rollout_num_gpus, cluster.rollout_num_gpus_per_engine
    key = _workers_key(engine)
    if each is not None and not key:
        raise ConfigError(
            f"rollout_num_gpus_per_engine has no effect here: engine {name!r} has no setting that says how many "
            "workers it has; leave it out"
        )
    if each is None and total is not None:
        each = _written(values, name, key) or 1
    if each is not None and key:
        yield f"rollout_num_gpus_per_engine = {each}", ("engine", name, key), each
    if total is None or each is None:
        return
    if total % each:
        raise ConfigError(
            f"rollout_num_gpus = {total} is not a multiple of rollout_num_gpus_per_engine = {each}: "
            f"{total // each} engines leave {total % each} over"
        )
    yield f"rollout_num_gpus / rollout_num_gpus_per_engine = {total // each}", ("rollout_num_engines",), total // each


def _written(values: Mapping[str, Json], name: str, key: str) -> int | None:
    """How many workers the engine's own section says, where it does and well."""
    match values.get("engine"):
        case {**sections} if isinstance(section := sections.get(name), dict) and isinstance(section.get(key), int):
            return cast(int, section[key]) or None
    return None


def _workers_key(registered: Registered) -> str:
    return cast(EngineSpec | TrainerSpec, registered.spec).workers_key
