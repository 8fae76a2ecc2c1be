"""Choices: which generator and which rewards a sample meets: its row's own, else its data set's, else the run's.

A row chooses with slime's names: `metadata["rm_type"]`, `sample.custom_rm_path`, `sample.generate_function_path`.

Example:

    reward = choices.reward_of(sample)          # None: the run's
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from slime_core.errors import ContractError, UnknownName
from slime_core.roles import Reward
from slime_core.rollout.policy import Scoring, UsedGenerator, UsedReward
from slime_core.rollout.teacher import ServedTeacher
from slime_core.sample import Sample

RM_TYPE = "rm_type"
"""Key of a row's metadata that names the reward of its samples."""
UseT = TypeVar("UseT")


def _nobody(name: str) -> NoReturn:
    raise UnknownName(f"there is no choice {name!r}: rows choose nothing here")


@dataclass(frozen=True, slots=True)
class Choices:
    """What the run chose, and a way to what rows choose."""

    generator: UsedGenerator
    """The run's generator."""
    scoring: Scoring
    """The run's rewards and group rewards."""
    find_generator: Callable[[str], UsedGenerator] = _nobody
    """The generator that a row names; raises UnknownName where there is none."""
    find_reward: Callable[[str], UsedReward[Reward]] = _nobody
    """The reward that a row names, with weight 1; raises UnknownName where there is none."""
    teacher: ServedTeacher | None = None
    """Tells its log-probs of the samples that are trained on."""

    def generator_of(self, drawn: Sample) -> UsedGenerator | None:
        """The generator that a drawn sample names.

        Raises:
            ContractError: there is none of that name.
        """
        return _find(drawn, drawn.generate_function_path, self.find_generator)

    def reward_of(self, drawn: Sample) -> UsedReward[Reward] | None:
        """The reward that a drawn sample names; it is scored by that alone.

        Raises:
            ContractError: there is none of that name.
        """
        return _find(drawn, drawn.custom_rm_path or drawn.metadata.get(RM_TYPE), self.find_reward)


def _find(drawn: Sample, name: object, find: Callable[[str], UseT]) -> UseT | None:
    if name is None:
        return None
    where = f"sample {drawn.index} of group {drawn.group_index}, drawn from {drawn.source or 'the data source'}"
    if not isinstance(name, str):
        raise ContractError(f"{where}: names a choice by {name!r}; expected a text")
    try:
        return find(name)
    except UnknownName as error:
        raise ContractError(f"{where}: {error}") from None
