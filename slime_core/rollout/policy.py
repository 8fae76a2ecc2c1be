"""The settings of a rollout, and which generator, rewards and served models each sample uses.

A choice in a sample's row takes precedence over its data set's choice, and that over the run's. A row chooses with
slime's names: `metadata["rm_type"]`, `sample.custom_rm_path`, `sample.generate_function_path`.

Example:

    reward = choices.reward_of(sample)          # None: use the run's rewards
    lifecycle = Lifecycle("agent", "slime-agent-openai", generator, limit_s=600.0)
    await lifecycle.start()                     # once per run, even if only a row names the generator
    await lifecycle.close()
"""

import asyncio
import enum
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from slime_core.aio import limited
from slime_core.catalog.catalog import BuiltChoice
from slime_core.catalog.checks import plugin_errors
from slime_core.config import TEACHER_EXTRAS
from slime_core.errors import ContractError, ModelError, PluginError, UnknownName, error_text
from slime_core.roles import (
    Extra,
    GenerateRequest,
    Generator,
    GroupReward,
    Reward,
    SamplingParams,
    ServedModel,
    StartsAndStops,
)
from slime_core.sample import Sample, Status

CLOSE_S = 30.0
"""Seconds that a generator has to close."""

log = logging.getLogger(__name__)


class Lifecycle:
    """Starts a generator once, before its first sample, and closes it. A start may take `limit_s` seconds."""

    def __init__(self, name: str, plugin: str, part: StartsAndStops, limit_s: float) -> None:
        self._name, self._plugin, self._part, self._limit_s = name, plugin, part, limit_s
        self._lock = asyncio.Lock()
        self._began = self._is_up = False

    async def start(self) -> None:
        """Start the generator, unless it is started already.

        Raises:
            PluginError: it raised, or took too long.
        """
        async with self._lock:
            if self._is_up:
                return
            self._began = True
            with plugin_errors(f"start of generator {self._name!r}", self._plugin):
                try:
                    await limited(self._part.start(), self._limit_s)
                except TimeoutError as error:
                    raise PluginError(
                        f"start of generator {self._name!r} of plugin {self._plugin}: {error_text(error)}; raise "
                        "sample_timeout_s if it may take longer"
                    ) from None
            self._is_up = True

    async def close(self) -> None:
        """Close the generator if a start was tried; an error is logged."""
        if not self._began:
            return
        self._began = self._is_up = False
        try:
            await limited(self._part.close(), CLOSE_S)
        except Exception as error:
            log.warning(
                "generator %s of plugin %s could not be closed: %s", self._name, self._plugin, error_text(error)
            )


ScorerT = TypeVar("ScorerT", bound=Reward | GroupReward, covariant=True)


class RewardOnError(enum.Enum):
    """What to do with a sample that could not be generated or scored."""

    DROP = "drop"
    """Remove it from its group; drop a group with fewer than two samples left."""
    MASK = "mask"
    """Keep it in its group, so that it can be inspected, but out of the normalisation and the loss."""
    RAISE = "raise"
    """End the run."""


@dataclass(frozen=True, slots=True)
class UsedGenerator(BuiltChoice[Generator]):
    """A generator, called within its limits."""

    lifecycle: Lifecycle | None = None
    """Starts and closes the generator, if it has such methods."""


@dataclass(frozen=True, slots=True)
class UsedReward(BuiltChoice[ScorerT]):
    """A reward or group reward, called within its limits; its name is also its metrics' name."""

    weight: float = 1.0
    """Factor in the weighted sum; 0 only measures."""
    each_sample: bool = False
    """Whether it scores each sample; else it scores the main sample of each execution."""
    reads_own: bool = False
    """Whether it is the reward that reads the generator's own score."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """All rewards that score a sample; its reward is their weighted sum."""

    rewards: Sequence[UsedReward[Reward]] = ()
    """Rewards that score one sample at a time."""
    group_rewards: Sequence[UsedReward[GroupReward]] = ()
    """Rewards that score all finished samples of a group together."""
    keeps_parts: bool = False
    """Whether a sample's reward keeps each reward's score next to the sum, for an estimator that reads it."""

    @property
    def reads_own(self) -> bool:
        """Whether the generator's own score has a weight."""
        return any(each.reads_own for each in self.rewards)


@dataclass(frozen=True, slots=True)
class RolloutPolicy:
    """Settings of the rollouts."""

    seed: int
    """The run's seed."""
    sampling: SamplingParams
    """Sampling parameters of training samples."""
    over_sampling_batch_size: int | None = None
    """Groups per draw when there is a group filter; None: as many as are wanted."""
    max_concurrency: int = 4096
    """Most samples generated at once."""
    max_filter_waves: int = 16
    """Waves of draws before a rollout that still lacks groups raises an error."""
    reward_on_error: RewardOnError = RewardOnError.DROP
    """What to do with failed samples."""
    max_error_rate: float = 0.05
    """Largest share of failed samples in a rollout; the run stops above it."""
    max_staleness: int = 1
    """Most versions that a group's oldest trainable token may lag when training takes the group. It applies while
    generation continues during weight changes."""
    partial_rollout: bool = False
    """Whether samples in flight are interrupted before the weights change, and continue with the new ones."""
    mask_offpolicy_in_partial_rollout: bool = False
    """Whether tokens from older weights are then left out of the loss."""
    wanted_extras: frozenset[Extra] = frozenset()
    """Engine extras that training needs beyond tokens and log-probs; evaluation needs none."""
    max_context: int | None = None
    """Most tokens of a prompt and its answer together; None: the engine's limit."""
    max_turns: int | None = None
    """Most engine calls per sample; None: no limit."""
    vocab_size: int | None = None
    """Vocabulary size of the model; a sample with a token outside it fails. None: unknown, not checked."""


class ServedTeacher:
    """Fills samples with log-probs of `served_models.NAME`, at the temperature of `sampling`, for distillation."""

    def __init__(self, name: str, model: ServedModel, sampling: SamplingParams) -> None:
        self._name, self._model, self._sampling = name, model, sampling

    async def teach(self, samples: Sequence[Sample]) -> None:
        """Fill `teacher_log_probs` of trainable samples that have none.

        Raises:
            ExceptionGroup: errors of the model; `ModelError` if its context has no room for a sample.
        """
        async with asyncio.TaskGroup() as tasks:
            for sample in samples:
                if sample.status in (Status.FAILED, Status.ABORTED) or sample.remove_sample:
                    continue
                if sample.response_length and sample.teacher_log_probs is None:
                    tasks.create_task(self._teach(sample))

    async def _teach(self, sample: Sample) -> None:
        extras = (
            await self._model.generate(GenerateRequest(sample.tokens, self._sampling, 0, want=TEACHER_EXTRAS))
        ).extras
        if extras is None or extras.prompt_log_probs is None:
            raise ModelError(
                f"the context of teacher {self._name!r} has no room for a sample of {len(sample.tokens)} tokens: lower "
                "rollout_max_context_len, or serve the teacher with a longer context"
            )
        sample.teacher_log_probs = list(extras.prompt_log_probs[-sample.response_length :])


RM_TYPE = "rm_type"
"""Metadata key of a row that names the reward of its samples."""
UseT = TypeVar("UseT")


def _no_choice(name: str) -> NoReturn:
    raise UnknownName(f"there is no choice {name!r}: rows choose nothing here")


@dataclass(frozen=True, slots=True)
class Choices:
    """The generator and rewards of the run, and lookups for the ones that rows name."""

    generator: UsedGenerator
    """The run's generator."""
    scoring: Scoring
    """The run's rewards and group rewards."""
    find_generator: Callable[[str], UsedGenerator] = _no_choice
    """Returns the generator that a row names; raises UnknownName if there is none."""
    find_reward: Callable[[str], UsedReward[Reward]] = _no_choice
    """Returns the reward that a row names, with weight 1; raises UnknownName if there is none."""
    teacher: ServedTeacher | None = None
    """Adds its log-probs to the samples that are trained on."""

    def generator_of(self, drawn: Sample) -> UsedGenerator | None:
        """Return the generator that a drawn sample names, or None.

        Raises:
            ContractError: no generator has that name.
        """
        return _find(drawn, drawn.generate_function_path, self.find_generator)

    def reward_of(self, drawn: Sample) -> UsedReward[Reward] | None:
        """Return the reward that a drawn sample names, which alone scores it, or None.

        Raises:
            ContractError: no reward has that name.
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
