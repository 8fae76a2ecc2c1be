"""Which transport a run's weights travel by: what the run file says, or what trainer and engine have in common."""

from slime_core.catalog import Catalog, is_in_project
from slime_core.config.chosen import Chosen
from slime_core.config.run_config import RunConfig
from slime_core.errors import ConfigError
from slime_core.roles import EngineSpec, MemoryTag, TrainerSpec, TransportSpec, agree_transport


def name_transport(
    trainer: TrainerSpec, engine: EngineSpec, catalog: Catalog, forced: Chosen[TransportSpec] | None, nodes: int
) -> str:
    """The name that a run file would choose it by; of a run on several nodes none that is for one machine.

    Raises:
        ConfigError: trainer and engine have none in common, or not the `forced` one, or that is for one machine.
    """
    there = {name: each.spec for name, each in catalog.choices(TransportSpec).items()}
    if forced is not None:
        there.setdefault(forced.registered.qualified, forced.spec)  # one of a project file is not in the catalog
    offered = {name: spec for name, spec in there.items() if nodes == 1 or not spec.one_machine}
    forced_name = forced.registered.qualified if forced else None
    if forced is not None and forced_name in there and forced_name not in offered:
        raise ConfigError(
            f"transport {forced.spec.name!r} is for one machine, and actor_num_nodes = {nodes}: leave it out, or "
            f"choose one of {', '.join(offered) or 'none, there is no other'}"
        )
    agreed = agree_transport(trainer.name, trainer.transports, engine.name, engine.transports, offered, forced_name)
    short = offered[agreed].name
    return short if not is_in_project(agreed) and sum(each.name == short for each in there.values()) == 1 else agreed


def check_interval(config: RunConfig, transport: TransportSpec, engine: EngineSpec) -> None:
    """See that an engine can serve a version while the trainer has newer weights, where the run publishes less often.

    Raises:
        ConfigError: one that comes late, or takes memory back, needs what the trainer has no more.
    """
    asked = f"update_weights_interval = {config.rollout.update_weights_interval}"
    if config.rollout.update_weights_interval == 1:
        return
    if config.debug.debug_rollout_only or config.debug.load_debug_rollout_data is not None:
        raise ConfigError(f"{asked} has no effect here: only one of engine and trainer is started; leave it out")
    if transport.rendezvous:
        raise ConfigError(
            f"{asked}: by transport {transport.name!r} an engine that is replaced gets the weights that the trainer "
            "has at the time, not those that are served: set it to 1, or choose a transport of files, "
            '[transport] use = "disk"'
        )
    if config.cluster.offloads_rollout and MemoryTag.WEIGHTS in engine.releases:
        raise ConfigError(
            f"{asked}: engine {engine.name!r} gives its weights up while the trainer works, and needs them published "
            "after each rollout: set it to 1, or offload_rollout = false"
        )
