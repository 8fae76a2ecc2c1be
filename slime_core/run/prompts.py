"""What a run reads of its prompts: how many rollouts they are, the choices that rows name, and the evaluation sets.

Generators and rewards that rows and evaluation sets name are built once each, before anything starts.

Example:

    choices = RowChoices(builder)
    choices.check(source)                                           # every name that its rows use
    sets = read_eval_sets(builder, tokenizer, choices)
"""

from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from slime_core.config import EvalSetArgs, Plan, RolloutArgs, RunConfig
from slime_core.data import every_prompt
from slime_core.errors import ConfigError, DataError, UnknownName
from slime_core.roles import (
    DataSource,
    DescribesData,
    GeneratorSpec,
    NamesChoices,
    PromptFile,
    Reward,
    RewardSpec,
    RowFormat,
    SamplingParams,
    Tokenizer,
)
from slime_core.rollout import EvalSet, Lifecycle, Scoring, UsedGenerator, UsedReward
from slime_core.run.row_checks import DataSetReport, RowChecks
from slime_core.run.setup import Builder
from slime_core.run.stored import StoredRollouts

T = TypeVar("T")


class RowChoices:
    """Builds what rows name, each once; what the run itself chose is not built a second time."""

    def __init__(self, build: Builder) -> None:
        """Nothing is built yet."""
        self._build = build
        self._generators: dict[str, UsedGenerator] = {}
        self._rewards: dict[str, UsedReward[Reward]] = {}

    def generator(self, name: str) -> UsedGenerator:
        """The generator of that name.

        Raises:
            UnknownName: there is none.
        """
        if name not in self._generators:
            chosen = self._build.plan.choose(GeneratorSpec, name)
            qualified = chosen.registered.qualified
            self._generators[name] = self._generators.get(qualified) or self._build.generator(chosen)
            self._generators[qualified] = self._generators[name]
        return self._generators[name]

    def reward(self, name: str) -> UsedReward[Reward]:
        """The reward of that name, with weight 1.

        Raises:
            UnknownName: there is none.
        """
        if name not in self._rewards:
            chosen = self._build.plan.choose(RewardSpec, name)
            qualified = chosen.registered.qualified
            self._rewards[name] = self._rewards.get(qualified) or self._build.reward(chosen)
            self._rewards[qualified] = self._rewards[name]
        return self._rewards[name]

    @property
    def lifecycles(self) -> list[Lifecycle]:
        """Of the generators that were built, each once."""
        found = (use.lifecycle for use in self._generators.values())
        return list(dict.fromkeys(each for each in found if each is not None))

    def check(self, source: DataSource) -> None:
        """Build what the rows of a data source name, if it can say so before it draws."""
        if isinstance(source, NamesChoices):
            self.check_rows(source.named_choices())

    def check_rows(self, named: Mapping[tuple[str, str], str]) -> None:
        """Build what rows name.

        Raises:
            DataError: there is no such choice; names the first row that wants it.
        """
        for (role, name), where in named.items():
            try:
                if role == "generator":
                    self.generator(name)
                else:
                    self.reward(name)
            except (UnknownName, ConfigError) as error:
                raise DataError(f"{where}: {error}") from None


def read_eval_sets(
    builder: Builder, tokenizer: Tokenizer, choices: RowChoices, checks: RowChecks
) -> list[tuple[EvalSet, Sequence[str]]]:
    """Every evaluation set of the run, each with a sentence about each kind of row that was left out.

    Raises:
        DataError: a file cannot be read, a row cannot be used, or a row names a choice that does not exist.
        ConfigError: a set's sampling contradicts itself, or its reward needs a label and there is no label_key.
    """
    given = builder.plan.config.evaluation.eval_prompt_data
    return [_eval_set(name, own, builder, tokenizer, choices, checks) for name, own in given.items()]


def _eval_set(
    name: str, own: EvalSetArgs, builder: Builder, tokenizer: Tokenizer, choices: RowChoices, checks: RowChecks
) -> tuple[EvalSet, Sequence[str]]:
    config = builder.plan.config
    size = _first(own.n_samples_per_eval_prompt, config.evaluation.n_samples_per_eval_prompt)
    file = replace(eval_file(name, own, config, builder.row_format()), check=checks.of_evaluation(own))
    read = every_prompt(file, tokenizer, size)
    choices.check_rows(read.named)
    made = EvalSet(
        name,
        read.groups,
        eval_sampling(name, own, config, builder.sampling()),
        choices.generator(own.generator) if own.generator else None,
        Scoring([choices.reward(own.reward)]) if own.reward else None,
    )
    return made, read.notes


def eval_file(name: str, own: EvalSetArgs, config: RunConfig, training: RowFormat) -> PromptFile:
    """A set's file, read by its own keys, else those of all sets, else as in training; of any prompt length."""
    every = config.evaluation
    row_format = replace(
        training,
        input_key=_first(own.input_key, every.eval_input_key, training.input_key),
        label_key=own.label_key or every.eval_label_key or training.label_key,
        metadata_key=_first(own.metadata_key, training.metadata_key),
        tool_key=_first(own.tool_key, training.tool_key),
        multimodal_keys=training.multimodal_keys if own.multimodal_keys is None else own.multimodal_keys,
        apply_chat_template=_first(own.apply_chat_template, training.apply_chat_template),
        apply_chat_template_kwargs=_first(own.apply_chat_template_kwargs, training.apply_chat_template_kwargs, {}),
        final_assistant_message=_first(own.final_assistant_message, training.final_assistant_message),
        max_prompt_len=None,
        flag_prefix="eval-",
    )
    return PromptFile.of(Path(own.path), f"eval:{name}", row_format)


def eval_sampling(name: str, own: EvalSetArgs, config: RunConfig, training: SamplingParams) -> SamplingParams:
    """The set's own keys, else those of all sets, else as in training.

    Raises:
        ConfigError: the least length is above the budget.
    """
    every = config.evaluation
    found = SamplingParams(
        max_new_tokens=_first(own.max_response_len, every.eval_max_response_len, training.max_new_tokens),
        temperature=_first(own.temperature, every.eval_temperature, training.temperature),
        top_p=_first(own.top_p, every.eval_top_p, training.top_p),
        top_k=_first(own.top_k, every.eval_top_k, training.top_k),
        min_p=_first(own.min_p, training.min_p),
        min_new_tokens=_first(own.min_new_tokens, every.eval_min_new_tokens),
        stop=training.stop if own.stop is None else tuple(own.stop),
        stop_token_ids=training.stop_token_ids if own.stop_token_ids is None else frozenset(own.stop_token_ids),
        no_stop_trim=_first(own.no_stop_trim, training.no_stop_trim),
        skip_special_tokens=_first(own.skip_special_tokens, training.skip_special_tokens),
        repetition_penalty=_first(own.repetition_penalty, training.repetition_penalty),
        presence_penalty=_first(own.presence_penalty, training.presence_penalty),
        frequency_penalty=_first(own.frequency_penalty, training.frequency_penalty),
    )
    if found.min_new_tokens > found.max_new_tokens:
        raise ConfigError(
            f"eval set {name!r} asks for at least {found.min_new_tokens} tokens (min_new_tokens) and at most "
            f"{found.max_new_tokens} (max_response_len): raise the one or lower the other"
        )
    return found


def _first(*values: T | None) -> T:
    """The first that is given."""
    return next(value for value in values if value is not None)


def count_rollouts(rollout: RolloutArgs, prompts: Callable[[], Sized]) -> int:
    """Rollouts of a run; `prompts` is called only where it is said in epochs.

    Raises:
        ConfigError: the epochs are less than one rollout.
    """
    if rollout.num_rollout is not None:
        return rollout.num_rollout
    assert rollout.num_epoch is not None, "refused by the config"
    size = len(prompts())
    if count := size * rollout.num_epoch // rollout.rollout_batch_size:
        return count
    raise ConfigError(
        f"num_epoch = {rollout.num_epoch} over {size} prompts is less than one rollout of "
        f"rollout_batch_size = {rollout.rollout_batch_size}: give num_rollout, or a smaller batch"
    )


@dataclass(frozen=True, slots=True)
class DataRead:
    """What a run would read."""

    notes: Sequence[str]
    """A sentence about each kind of row that was left out."""
    reports: Sequence[DataSetReport] = ()
    """Each data set that was read whole."""
    context: int | None = None
    """Tokens of a prompt and its answer together; None where the model names no limit."""


def read_all_prompts(plan: Plan) -> DataRead:
    """Read the tokenizer, the prompts and the evaluation sets as a run would, to find what is wrong with them.

    Raises:
        DataError: a prompt file cannot be read, a row cannot be used, or one names a choice that does not exist.
        ConfigError: a reward needs labels, and there is no label_key.
        ModelError: the tokenizer cannot be read.
        RunFolderError: kept samples are to be trained on, and cannot be.
    """
    if (kept := plan.config.debug.load_debug_rollout_data) is not None:
        return DataRead([f"{kept} has samples of {len(StoredRollouts(kept))} rollouts"])
    builder = Builder.of(plan)
    tokenizer, choices = builder.tokenizer(), RowChoices(builder)
    with closing(builder.protection), RowChecks(builder, choices, tokenizer, measures=True) as checks:
        choices.check(source := builder.data_source(tokenizer, checks.of_training()))
        sets = read_eval_sets(builder, tokenizer, choices, checks)
    for report in checks.reports.values():
        if (
            not report.name.startswith("eval:")
            and len(checks.reports) - len(sets) == 1
            and report.prompts < len(source)
        ):
            report.epoch = len(source)
    notes = [*source.data_notes()] if isinstance(source, DescribesData) else []
    notes += [note for _, left_out in sets for note in left_out]
    notes += [
        f"{each.name}: the labels of {each.unchecked} of {each.prompts} rows were not checked, which would take long"
        for each in checks.reports.values()
        if each.unchecked
    ]
    return DataRead(notes, [*checks.reports.values()], checks.context)
