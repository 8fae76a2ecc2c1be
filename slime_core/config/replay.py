"""Replay: the run's buffer must take groups as old as the rollout policy makes them."""

from slime_core.catalog.checks import blaming
from slime_core.config.chosen import Chosen
from slime_core.config.families import RolloutArgs
from slime_core.config.run_config import RunConfig
from slime_core.errors import ConfigError
from slime_core.roles import BufferSpec


def check_replay(config: RunConfig, buffer: Chosen[BufferSpec]) -> None:
    """Refuse a buffer that would give up groups before a step can train on them.

    Raises:
        ConfigError: it allows less staleness than the policy makes.
        PluginError: the buffer's `replay` raised.
    """
    with blaming("buffer (replay)", buffer.plugin):
        most = buffer.spec.replay(buffer.settings).max_staleness
    needed, why = _staleness(config.rollout)
    if most is not None and most < needed:
        raise ConfigError(
            f"buffer {buffer.reference!r} gives up groups more than {most} weight versions old, and with {why} a step "
            f"trains on groups that are {needed} old: allow {needed} in [buffer.{buffer.reference}], or change "
            f"{why.partition(' ')[0]}"
        )


def _staleness(rollout: RolloutArgs) -> tuple[int, str]:
    """Weight versions by which a new group may lag when it reaches the buffer, and the key that says so."""
    if rollout.rollout_policy == "continuous" or rollout.partial_rollout:
        most = 1 if rollout.max_staleness is None else rollout.max_staleness
        return most, f"max_staleness = {most}"
    ahead = int(rollout.rollout_policy == "async")
    behind = rollout.update_weights_interval - 1
    key = f"update_weights_interval = {behind + 1}" if behind else f'rollout_policy = "{rollout.rollout_policy}"'
    return ahead + behind, key
