"""Turns: engine and trainer share devices or memory, and whoever waits gives its memory up.

Example:

    check_turns(config, engine, trainer)        # ConfigError: colocate = true: engine 'x' cannot give up memory; ...
"""

from slime_core.config.run_config import RunConfig
from slime_core.errors import ConfigError
from slime_core.roles import EngineSpec, TrainerSpec


def check_turns(config: RunConfig, engine: EngineSpec, trainer: TrainerSpec) -> None:
    """See that engine and trainer can take turns where the run wants them to.

    Raises:
        ConfigError: they work at once, or one of them gives no memory up.
    """
    cluster, policy, debug = config.cluster, config.rollout.rollout_policy, config.debug
    wanted = {
        "colocate": cluster.colocate,
        "offload_train": bool(cluster.offload_train),
        "offload_rollout": bool(cluster.offload_rollout),
    }
    asked = [f"{key} = true" for key, value in wanted.items() if value]
    if not asked:
        return
    if config.finetunes or debug.debug_rollout_only or debug.load_debug_rollout_data is not None:
        raise ConfigError(f"{asked[0]} has no effect here: only one of engine and trainer is started")
    if policy != "sync":
        raise ConfigError(
            f'{asked[0]}: with rollout_policy = "{policy}" engines generate while the ranks train, so neither can give '
            'up its memory; leave it out, or set rollout_policy = "sync"'
        )
    for offloads, role, spec in (
        (cluster.offloads_rollout, "engine", engine),
        (cluster.offloads_train, "trainer", trainer),
    ):
        if offloads and not spec.releases:
            key = "offload_rollout" if role == "engine" else "offload_train"
            raise ConfigError(
                f"{asked[0]}: {role} {spec.name!r} cannot give up memory; set {key} = false, or choose another {role}"
            )
