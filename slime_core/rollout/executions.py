"""Executions: one drawn sample run once, whatever number of samples it fanned out into; they share `rollout_id`.

What is counted (rewards, passes, failures) is counted by execution: an agent with three samples is one success.

Example:

    for siblings in executions(group.samples):
        reward = main_of(siblings).reward
"""

from collections.abc import Iterable, Sequence

from slime_core.sample import Sample, scalar_reward

__all__ = ["MAIN", "execution_rewards", "executions", "main_of"]

MAIN = "main"
"""Key of a sample's metadata: true for the one that its execution is judged by."""


def executions(samples: Iterable[Sample]) -> list[list[Sample]]:
    """Samples by execution, in order; one without `rollout_id` is one of its own."""
    found: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        key = ("sample", id(sample)) if sample.rollout_id is None else ("execution", sample.rollout_id)
        found.setdefault(key, []).append(sample)
    return list(found.values())


def main_of(siblings: Sequence[Sample]) -> Sample:
    """The one marked by `metadata["main"]`, else the last."""
    return next((sample for sample in siblings if sample.metadata.get(MAIN) is True), siblings[-1])


def execution_rewards(samples: Iterable[Sample]) -> list[float]:
    """The reward of each execution of which any sample is scored: that of its main one, if it is among them."""
    scored = executions(sample for sample in samples if sample.reward is not None)
    return [scalar_reward(main_of(siblings)) for siblings in scored]
