"""What a plan's worker groups need of their machines, by group: the sums that `slime plan` prints.

Example:

    for group in worker_groups(plan):
        print(group.name, group.workers, group.needs)       # engine 2 2 cores
"""

from collections.abc import Iterator
from dataclasses import dataclass

from slime_core.config.plan import Plan
from slime_core.roles import EngineSpec, GroupUse, Needs, TrainerSpec


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
    found: dict[str, GroupNeeds] = {}
    for kind, use in _uses(plan):
        workers = use.size + (found[kind].workers if kind in found else 0)
        found[kind] = GroupNeeds(kind, workers, use.needs * workers)
    return list(found.values())


def group_uses(plan: Plan) -> list[GroupUse]:
    """Each group by itself, in the order in which they start."""
    return [use for _, use in _uses(plan)]


def _uses(plan: Plan) -> Iterator[tuple[str, GroupUse]]:
    """Each group that a run starts, with the name that it is counted under."""
    trains = not plan.config.debug.debug_rollout_only
    if trains:
        trainer = plan.roles.one(TrainerSpec)
        size, needs = trainer.spec.world_size(trainer.settings), trainer.spec.needs(trainer.settings)
        yield "trainer", GroupUse("trainer", size, needs)
    if plan.config.finetunes or plan.config.debug.load_debug_rollout_data is not None:
        return
    beside = "trainer" if trains and plan.config.cluster.colocate else None
    engines = [("engine", "engine", plan.roles.one(EngineSpec), plan.config.rollout.rollout_num_engines, beside)]
    engines += [
        (f"model {name}", f"model-{name}", each.engine, each.engines, None) for name, each in plan.served.items()
    ]
    for kind, name, engine, count, shared in engines:
        size, needs = engine.spec.workers(engine.settings), engine.spec.needs(engine.settings)
        for number in range(count):
            yield kind, GroupUse(f"{name}-{number}" if count > 1 else name, size, needs, shared)
