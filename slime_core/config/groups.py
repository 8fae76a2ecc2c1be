"""What a plan's worker groups need of their machines, by group: the sums that `slime plan` prints.

Example:

    for group in worker_groups(plan):
        print(group.name, group.workers, group.needs)       # engine 2 2 cores
"""

from dataclasses import dataclass
from typing import cast

from slime_core.config.plan import Plan
from slime_core.roles import EngineSpec, Needs, TrainerSpec


@dataclass(frozen=True, slots=True)
class GroupNeeds:
    """The workers of a role."""

    name: str
    """"trainer" or "engine"; several engines are counted together."""
    workers: int
    """Processes."""
    needs: Needs
    """What all of them need together."""


def worker_groups(plan: Plan) -> list[GroupNeeds]:
    """The groups that a run of this plan starts."""
    found: list[GroupNeeds] = []
    if not plan.config.debug.debug_rollout_only:
        chosen = plan.one("trainer")
        trainer = cast(TrainerSpec, chosen.registered.spec)
        ranks = trainer.world_size(chosen.settings)
        found.append(GroupNeeds("trainer", ranks, trainer.needs(chosen.settings) * ranks))
    if not plan.config.finetunes and plan.config.debug.load_debug_rollout_data is None:
        chosen = plan.one("engine")
        engine = cast(EngineSpec, chosen.registered.spec)
        workers = plan.config.rollout.rollout_num_engines * engine.workers(chosen.settings)
        found.append(GroupNeeds("engine", workers, engine.needs(chosen.settings) * workers))
        for name, each in plan.served.items():
            engine, settings = cast(EngineSpec, each.engine.registered.spec), each.engine.settings
            workers = each.engines * engine.workers(settings)
            found.append(GroupNeeds(f"model {name}", workers, engine.needs(settings) * workers))
    return found
