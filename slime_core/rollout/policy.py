"""The settings of a rollout, and which generator, rewards and served models each sample uses.

A choice in a sample's row comes first, then its data set's choice, then the run's choice. A row chooses with slime's
names: `metadata["rm_type"]`, `sample.custom_rm_path`, `sample.generate_function_path`.

Example:

    reward = choices.reward_of(sample)          # None: the run's
    lifecycle = Lifecycle("agent", "slime-agent-openai", generator, limit_s=600.0)
    await lifecycle.start()                     # once in a run, also for a generator that only a row names
    await lifecycle.close()
"""

import asyncio
import enum
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from slime_core.aio import limited
from slime_core.catalog.catalog import Used
from slime_core.catalog.checks import blaming
from slime_core.config import TEACHES
from slime_core.data.settings import JudgeSettings
from slime_core.data.tokenizer import with_bos
from slime_core.errors import ConfigError, ContractError, ModelError, PluginError, UnknownName, said_by
from slime_core.roles import (
    Extra,
    GenerateRequest,
    Generator,
    GroupReward,
    Reward,
    RewardContext,
    SamplingParams,
    ServedModel,
    Setup,
    StartsAndStops,
)
from slime_core.sample import Sample, Status
from slime_core.score import Score, Unscored, Verdict

CLOSE_S = 30.0
"""Seconds that a generator has to close."""

log = logging.getLogger(__name__)


class Lifecycle:
    """Starts a generator once, before its first sample, and closes it; `limit_s` is how long a start may take."""

    def __init__(self, name: str, plugin: str, part: StartsAndStops, limit_s: float) -> None:
        self._name, self._plugin, self._part, self._limit_s = name, plugin, part, limit_s
        self._lock = asyncio.Lock()
        self._began = self._is_up = False

    async def start(self) -> None:
        """Start it, unless it is up.

        Raises:
            PluginError: it raised, or took too long.
        """
        async with self._lock:
            if self._is_up:
                return
            self._began = True
            with blaming(f"start of generator {self._name!r}", self._plugin):
                try:
                    await limited(self._part.start(), self._limit_s)
                except TimeoutError as error:
                    raise PluginError(
                        f"start of generator {self._name!r} of plugin {self._plugin}: {said_by(error)}; raise "
                        "sample_timeout_s if it may take longer"
                    ) from None
            self._is_up = True

    async def close(self) -> None:
        """Close it, if its start was tried; an error is logged."""
        if not self._began:
            return
        self._began = self._is_up = False
        try:
            await limited(self._part.close(), CLOSE_S)
        except Exception as error:
            log.warning("generator %s of plugin %s could not be closed: %s", self._name, self._plugin, said_by(error))


ScorerT = TypeVar("ScorerT", bound=Reward | GroupReward, covariant=True)


class RewardOnError(enum.Enum):
    """What becomes of a sample that could not be generated or scored."""

    DROP = "drop"
    """It leaves its group; a group of which fewer than two samples are left is dropped."""
    MASK = "mask"
    """It stays in its group, where it can be looked at: not normalised with the others, not trained on."""
    RAISE = "raise"
    """It ends the run."""


@dataclass(frozen=True, slots=True)
class UsedGenerator(Used[Generator]):
    """A generator, within its own limits."""

    lifecycle: Lifecycle | None = None
    """Starts and closes it, if it has something to start."""


@dataclass(frozen=True, slots=True)
class UsedReward(Used[ScorerT]):
    """A reward or a group reward, within its own limits; its name is that of its metrics."""

    weight: float = 1.0
    """Its factor in the weighted sum; 0 only measures."""
    each_sample: bool = False
    """Whether it is asked about each sample; else once an execution."""
    reads_own: bool = False
    """Whether it is what reads a generator's own score."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """All that scores a sample: a weighted sum over both."""

    rewards: Sequence[UsedReward[Reward]] = ()
    """Each asked about the sample alone."""
    group_rewards: Sequence[UsedReward[GroupReward]] = ()
    """Each asked about all finished samples of its group."""
    keeps_parts: bool = False
    """Whether a sample's reward keeps what each of them said beside the sum, for an estimator that reads it."""

    @property
    def reads_own(self) -> bool:
        """Whether a generator's own score has a weight."""
        return any(each.reads_own for each in self.rewards)


@dataclass(frozen=True, slots=True)
class RolloutPolicy:
    """How rollouts are run."""

    seed: int
    """The run's seed."""
    sampling: SamplingParams
    """How training samples."""
    over_sampling_batch_size: int | None = None
    """Groups drawn at a time when a group filter is on; None: as many as are wanted."""
    max_concurrency: int = 4096
    """Samples being generated at once."""
    max_filter_waves: int = 16
    """Waves of draws after which a rollout that still comes up short gives up."""
    reward_on_error: RewardOnError = RewardOnError.DROP
    """What becomes of failed samples."""
    max_error_rate: float = 0.05
    """Share of failed samples in a rollout over which it stops."""
    max_staleness: int = 1
    """Where generation goes on while weights change: most versions that a group's oldest trainable token may be behind
    the version that is trained, when it is handed over."""
    partial_rollout: bool = False
    """Whether samples in flight are interrupted before the weights change, and go on with the new ones."""
    mask_offpolicy_in_partial_rollout: bool = False
    """Whether tokens that older weights made are then left out of the loss."""
    want: frozenset[Extra] = frozenset()
    """What training wants of an engine's answers beyond tokens and log-probs; evaluation wants nothing."""
    max_context: int | None = None
    """Tokens of a prompt and its answer together; None: as many as the engine takes."""
    max_turns: int | None = None
    """Engine calls of one sample; None: as many as its generator makes."""
    vocab_size: int | None = None
    """Tokens that the model has; a sample with another one has failed. None: nobody knows."""


class ServedTeacher:
    """Fills samples with the log-probs of `served_models.NAME`, at the temperature of `sampling`, for distillation."""

    def __init__(self, name: str, model: ServedModel, sampling: SamplingParams) -> None:
        self._name, self._model, self._sampling = name, model, sampling

    async def teach(self, samples: Sequence[Sample]) -> None:
        """Fill `teacher_log_probs` of those that can be trained on and have none.

        Raises:
            ExceptionGroup: of the model's errors; of `ModelError` if its context has no room for a sample.
        """
        async with asyncio.TaskGroup() as tasks:
            for sample in samples:
                if sample.status in (Status.FAILED, Status.ABORTED) or sample.remove_sample:
                    continue
                if sample.response_length and sample.teacher_log_probs is None:
                    tasks.create_task(self._teach(sample))

    async def _teach(self, sample: Sample) -> None:
        said = (await self._model.generate(GenerateRequest(sample.tokens, self._sampling, 0, want=TEACHES))).extras
        if said is None or said.prompt_log_probs is None:
            raise ModelError(
                f"the context of teacher {self._name!r} has no room for a sample of {len(sample.tokens)} tokens: lower "
                "rollout_max_context_len, or serve the teacher with a longer context"
            )
        sample.teacher_log_probs = list(said.prompt_log_probs[-sample.response_length :])


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


class Judge:
    """The reward `served_judge`: a served model reads a response and gives a verdict."""

    def __init__(self, settings: JudgeSettings, setup: Setup) -> None:
        self._settings, self._models = settings, setup.models
        self._verdict = re.compile(settings.verdict)
        self._scores = {text.casefold(): value for text, value in settings.scores.items()}

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """The score of its last verdict; Unscored without one.

        Raises:
            ConfigError: the run serves no such model.
        """
        settings = self._settings
        if settings.model not in self._models:
            raise ConfigError(
                f"reward 'served_judge' asks the model {settings.model!r}, which is not served here: a run serves it, "
                f"with [served_models.{settings.model}] hf_checkpoint = PATH"
            )
        model = self._models[settings.model]
        asked = self._asked(sample)
        if settings.apply_chat_template:
            asked = model.tokenizer.apply_chat_template([{"role": "user", "content": asked}])
        else:
            asked = with_bos(asked, model.tokenizer)
        sampling = SamplingParams(settings.max_new_tokens, settings.temperature)
        answer = await model.generate(GenerateRequest(model.tokenizer.encode(asked), sampling, ctx.seed))
        text = model.tokenizer.decode(answer.tokens)
        found = self._verdict.findall(text)
        value = self._worth(found[-1]) if found else None
        if value is None:
            return Unscored("the judge came to no verdict", detail=text[-500:])
        return Score(value)

    def check_label(self, sample: Sample) -> str | None:
        """Require a label if the judge's prompt shows it; see `slime_core.roles.ChecksLabels`."""
        is_asked = "{label}" in self._settings.prompt
        return "no gold answer, which the judge's prompt shows" if is_asked and sample.label in (None, "") else None

    def _asked(self, sample: Sample) -> str:
        prompt, label = sample.prompt, "" if sample.label is None else str(sample.label)
        if not isinstance(prompt, str):
            prompt = "\n\n".join(f"{each.get('role')}: {each.get('content')}" for each in prompt)
        parts = {"prompt": prompt, "response": sample.response, "label": label}
        # In one pass: a response that contains "{label}" does not receive it.
        return re.sub(r"\{(prompt|response|label)\}", lambda found: parts[found[1]], self._settings.prompt)

    def _worth(self, verdict: str) -> float | None:
        plain = verdict.casefold().rstrip(".")
        if plain in self._scores:
            return self._scores[plain]
        try:
            return float(plain)
        except ValueError:
            return None
