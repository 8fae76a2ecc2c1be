"""Reads a run's prompts and evaluation sets, and checks each row before anything starts.

The checks find labels that no reward can score and prompts that are too long.

Example:

    checks = RowChecks(builder)
    source, eval_sets = checks.read()           # rows that fail a check are bad rows
    checks.reports                              # what was read, by data set
"""

from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from slime_core.catalog import load_part
from slime_core.catalog.catalog import BuiltChoice
from slime_core.catalog.checks import plugin_errors
from slime_core.config import EvalSetArgs, Plan, RunConfig, read_positions
from slime_core.data import PromptTable, name_files, read_rows
from slime_core.errors import ConfigError, DataError, PluginError, SlimeError, UnknownName
from slime_core.processes import CallFailure, check_label, may_check_labels
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
)
from slime_core.rollout import EvalSet, Scoring, SingleTurn
from slime_core.run.build import Builder
from slime_core.sample import Json, Message, Sample

OptionsT = TypeVar("OptionsT", RowFormat, SamplingParams)
CHECKED = 2_000
"""Rows per data set whose labels are checked and whose prompts are measured."""
SHOWN = 60
"""Characters of a label that an error quotes."""
MAX_BYTES_PER_CHAR = 4
"""Most bytes per character; a token has at least one byte."""

RowCheck = Callable[[Sample], str | None]
"""Returns why a run cannot use a row, which it gets as a pending sample; None if the run can."""


@dataclass(slots=True)
class DataSetReport:
    """Statistics of the usable rows of one data set."""

    name: str
    """Name of its file; `eval:NAME` for an evaluation set."""
    prompts: int = 0
    """Number of usable rows."""
    first_prompt: str | list[Message] = ""
    """Prompt of the first row, rendered if the run renders prompts."""
    label: Json = None
    """Label of the first row, or the answer of a dialog."""
    lengths: list[int] = field(default_factory=list)
    """Tokens of the first `CHECKED` text prompts or dialogs; empty unless measured."""
    unit: Literal["prompt", "dialog"] = "prompt"
    """What one row is."""


class RowChecks:
    """Reads all data sets of a run and checks their rows."""

    def __init__(self, build: Builder, *, measures: bool = False) -> None:
        """Prepare the checks; with `measures`, reports contain prompt lengths."""
        self.reports: dict[str, DataSetReport] = {}
        config = build.plan.config
        self.context = config.rollout.rollout_max_context_len or read_positions(config.run.hf_checkpoint)
        """Most tokens of a prompt and its answer together; None if the model states no limit."""
        self._build, self._tokenizer, self._measures = build, build.tokenizer(), measures
        self._rewards: dict[str, BuiltChoice[Reward] | None] = {}

    def read(self) -> tuple[DataSource, list[tuple[EvalSet, Sequence[str]]]]:
        """Return the data source, and each evaluation set with a sentence per kind of row that was left out.

        Builds the generators and rewards that rows name.

        Raises:
            DataError: a file cannot be read, a row cannot be used, or a row names a choice that does not exist.
            ConfigError: a set's sampling is inconsistent, or its reward needs a label and label_key is not set.
        """
        config = self._build.plan.config
        files = [path for path, _ in name_files(config.data.prompt_data)]
        check = self._check(None, None, self._build.row_format(), files[0] if files else None)
        source = self._build.data_source(check)
        if isinstance(source, NamesChoices):
            self._build_named(source.named_choices())
        sets = config.evaluation.eval_prompt_data
        return source, [self._eval_set(name, own) for name, own in sets.items()]

    def _build_named(self, named: Mapping[tuple[str, str], str]) -> None:
        for (role, name), where in named.items():
            try:
                if role == "generator":
                    self._build.generator(name)
                else:
                    self._build.reward(name)
            except (UnknownName, ConfigError) as error:
                raise DataError(f"{where}: {error}") from None

    def _eval_set(self, name: str, own: EvalSetArgs) -> tuple[EvalSet, Sequence[str]]:
        build, config = self._build, self._build.plan.config
        size = own.n_samples_per_eval_prompt or config.evaluation.n_samples_per_eval_prompt
        file = eval_file(name, own, config, build.row_format())
        check = self._check(own.reward, own.generator, file, file.path)
        table = PromptTable([replace(file, check=check)], self._tokenizer)
        self._build_named(table.named)
        made = EvalSet(
            name,
            table.groups(size),
            eval_sampling(name, own, config, config.rollout.sampling()),
            build.generator(own.generator) if own.generator else None,
            Scoring([build.reward(own.reward)]) if own.reward else None,
        )
        return made, table.notes()

    def _check(self, reward: str | None, generator: str | None, form: RowFormat, file: Path | None) -> RowCheck:
        plan, key, prefix = self._build.plan, form.label_key, form.flag_prefix
        rewards = [reward] if reward else [each.reference for each in plan.roles.all(RewardSpec)]
        chosen = plan.choose(GeneratorSpec, generator) if generator else plan.roles.one(GeneratorSpec)
        sends_prompt, renders = chosen.registered.qualified == "slime-core/single_turn", SingleTurn()

        def check(sample: Sample) -> str | None:
            report = self.reports.setdefault(sample.source, DataSetReport(sample.source))
            text = sample.prompt if isinstance(sample.prompt, str) else None
            if sends_prompt and sample.generate_function_path is None:
                try:
                    text = renders.prompt_text(sample, self._tokenizer)
                except DataError as error:
                    return str(error)
                if (why := self._length_problem(text, prefix)) is not None:
                    return why
            # Check all labels if bad rows are left out.
            checks = report.prompts < CHECKED or plan.config.data.max_bad_row_rate > 0
            if checks and (why := self._label_problem(sample, rewards, file, prefix)) is not None:
                return f"{why}{_places(sample.label, key, prefix)}"
            self._note(report, sample, text)
            return None

        return check

    def _length_problem(self, prompt: str, prefix: str) -> str | None:
        context = self.context
        if (
            context is None
            or len(prompt) * MAX_BYTES_PER_CHAR < context
            or (tokens := len(self._tokenizer.encode(prompt))) < context
        ):
            return None
        config = self._build.plan.config
        evaluated = {each.path for each in config.evaluation.eval_prompt_data.values()}
        # The length limit does not apply to evaluation sets, so it cannot help with a file that is also one of them.
        helps = not prefix and evaluated.isdisjoint(str(path) for path, _ in name_files(config.data.prompt_data))
        advice = f"; --rollout-max-prompt-len {context - 1} leaves such prompts out" if helps else ""
        return (
            f"its prompt has {tokens} tokens, and prompt and answer together may have {context} "
            f"(rollout_max_context_len, or the model's positions){advice}"
        )

    def _label_problem(self, sample: Sample, rewards: Sequence[str], file: Path | None, prefix: str) -> str | None:
        own = sample.custom_rm_path or sample.metadata.get("rm_type")
        for name in [own] if isinstance(own, str) else rewards:
            if (why := self._check_label(name, sample)) is None:
                continue
            if sample.label is None and self._check_label(name, replace(sample, label="1")) != why:
                raise ConfigError(
                    f"reward {name!r} needs a gold answer, and label_key is not set: give --{prefix}label-key "
                    f"COLUMN{_columns(file)}"
                )
            shown = repr(sample.label)
            shown = shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 3]}..."
            return f"reward {name!r} cannot score its label {shown}: {why}"
        return None

    def _check_label(self, name: str, sample: Sample) -> str | None:
        if name not in self._rewards:
            self._rewards[name] = self._checking_reward(name)
        if (found := self._rewards[name]) is None:
            return None
        with plugin_errors(f"check_label of reward {name!r}", found.plugin):
            try:
                return check_label(found.part, sample)
            except CallFailure as failure:
                raise PluginError(f"check_label of reward {name!r} failed: {failure.detail}") from None

    def _checking_reward(self, name: str) -> BuiltChoice[Reward] | None:
        try:
            chosen = self._build.plan.choose(RewardSpec, name)
        except (UnknownName, ConfigError):
            return None  # the row reader reports the first row that names it
        if not may_check_labels(chosen.spec):
            return None
        try:
            return self._build.reward(name)
        except SlimeError:
            if chosen.spec.models(chosen.settings) and not self._build.models:
                return None  # needs models that are not served yet
            raise

    def _note(self, report: DataSetReport, sample: Sample, text: str | None) -> None:
        if not report.prompts:
            report.first_prompt, report.label = sample.prompt if text is None else text, sample.label
        if self._measures and text is not None and report.prompts < CHECKED:
            report.lengths.append(len(self._tokenizer.encode(text)))
        report.prompts += 1


def _places(label: Json, key: str | None, prefix: str) -> str:
    if not isinstance(label, dict):
        return ""
    places = " or ".join(f"{key}.{each}" for each in label)
    return f". It is an object: name a value in it, --{prefix}label-key {places}"


def _columns(file: Path | None) -> str:
    try:
        row = next(read_rows(file), None) if file is not None else None
    except DataError:
        row = None
    return f"; {file} has {', '.join(row.values)}" if row is not None else ""


def eval_file(name: str, own: EvalSetArgs, config: RunConfig, training: RowFormat) -> PromptFile:
    """Return a set's prompt file. Its own keys come first, then keys of all sets, then training's; no length limit."""
    row_format = replace(_overridden(training, own, config), max_prompt_len=None, flag_prefix="eval-")
    return PromptFile.of(Path(own.path), f"eval:{name}", row_format)


def eval_sampling(name: str, own: EvalSetArgs, config: RunConfig, training: SamplingParams) -> SamplingParams:
    """Return a set's sampling. Its own keys come first, then the keys of all sets, then training's.

    Raises:
        ConfigError: `min_new_tokens` is above the token budget.
    """
    found = _overridden(training, own, config, max_new_tokens="max_response_len")
    if found.min_new_tokens > found.max_new_tokens:
        raise ConfigError(
            f"eval set {name!r} asks for at least {found.min_new_tokens} tokens (min_new_tokens) and at most "
            f"{found.max_new_tokens} (max_response_len): raise the one or lower the other"
        )
    return found


def _overridden(training: OptionsT, own: EvalSetArgs, config: RunConfig, **keys: str) -> OptionsT:
    """Return options with the values that a set (KEY) or else all sets (`eval_KEY`) define; `keys` renames fields."""
    found = dict[str, Any]()
    for name in (each.name for each in fields(training)):
        key = keys.get(name, name)
        values = getattr(own, key, None), getattr(config.evaluation, f"eval_{key}", None)
        for value in values:
            if value is not None:  # a list becomes a tuple or a set, like training's
                found[name] = type(getattr(training, name))(value) if isinstance(value, list) else value
                break
    return replace(training, **found)


@dataclass(frozen=True, slots=True)
class DataRead:
    """What a run reads before it starts."""

    notes: Sequence[str]
    """Sentences about surprises of the tokenizer and each kind of row that was left out."""
    reports: Sequence[DataSetReport] = ()
    """Reports of the data sets that were read whole."""
    context: int | None = None
    """Most tokens of a prompt and its answer together; None if the model states no limit."""


def read_all_prompts(plan: Plan) -> DataRead:
    """Read the tokenizer, the prompts and the evaluation sets as a run would, to find errors in them.

    Raises:
        DataError: a prompt file cannot be read, a row cannot be used, or one names a choice that does not exist.
        ConfigError: a reward needs labels, and label_key is not set.
        ModelError: the tokenizer cannot be read.
        RunFolderError: the run trains on kept samples that it cannot use.
    """
    builder = Builder(plan)
    if (kept := plan.config.debug.load_debug_rollout_data) is not None:
        stored = cast(Callable[[Path], Sized], load_part("stored", "slime-view", "load_debug_rollout_data"))
        return DataRead([*builder.tokenizer_notes(), f"{kept} has samples of {len(stored(kept))} rollouts"])
    checks = RowChecks(builder, measures=True)
    with closing(builder.protection):
        source, sets = checks.read()
    notes = [*builder.tokenizer_notes()]
    notes += source.data_notes() if isinstance(source, DescribesData) else ()
    notes += [note for _, left_out in sets for note in left_out]
    return DataRead(notes, [*checks.reports.values()], checks.context)
