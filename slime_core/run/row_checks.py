"""RowChecks: what a run sees of its rows before anything starts: whether labels can be scored, whether prompts fit.

Example:

    with RowChecks(builder, choices, tokenizer) as checks:
        source = builder.data_source(tokenizer, checks.of_training())       # rows that fail a check are bad rows
        checks.reports                                                      # what was read, by data set
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol

from slime_core.catalog.checks import blaming
from slime_core.config import Chosen, EvalSetArgs, read_positions
from slime_core.data import name_files, read_rows
from slime_core.data.left_out import NO_ROOM
from slime_core.errors import ConfigError, DataError, PluginError, SlimeError, UnknownName
from slime_core.isolation import CallFailure, LabelCheck, may_check_labels
from slime_core.roles import GeneratorSpec, Reward, RewardSpec, Tokenizer
from slime_core.rollout import SingleTurn, UsedReward
from slime_core.run.setup import Builder
from slime_core.sample import Json, Message, Sample

LIMIT_S = 2.0
"""Seconds of checks after which every second row is checked, after as many more every fourth, and so on."""
SHOWN = 60
"""Characters of a label that a reason quotes."""
BYTES = 4
"""Most bytes of a character; no token has less than one."""

RowCheck = Callable[[Sample], str | None]
"""Returns why a run cannot use a row, given as a pending sample; None if it can."""


class FindsRewards(Protocol):
    """Builds a reward by its name, once."""

    def reward(self, name: str) -> UsedReward[Reward]:
        """The reward of that name."""
        ...


@dataclass(slots=True)
class DataSetReport:
    """What was read of one data set, without the rows that were left out."""

    name: str
    """Its file's name, `eval:NAME` for an evaluation set."""
    prompts: int = 0
    """Rows that were read and can be used."""
    epoch: int | None = None
    """Prompts in an epoch, where a source makes rows and only its first ones were read."""
    first_prompt: str | list[Message] = ""
    """The first one's prompt, rendered if the run renders prompts."""
    label: Json = None
    """The first one's label, or the answer of a dialog."""
    lengths: list[int] = field(default_factory=list)
    """Tokens of prompts that are texts, or of dialogs; empty unless measured, and of a part where that takes long."""
    unchecked: int = 0
    """Rows whose labels were not checked, because checks took long."""
    unit: Literal["prompt", "dialog"] = "prompt"
    """What its rows are."""


class RowChecks:
    """The checks of all data sets of a run."""

    def __init__(self, build: Builder, choices: FindsRewards, tokenizer: Tokenizer, *, measures: bool = False) -> None:
        """Build nothing yet.

        Args:
            build: of the run.
            choices: where rewards come from.
            tokenizer: the policy's.
            measures: whether reports hold the length of every prompt.
        """
        self.reports: dict[str, DataSetReport] = {}
        config = build.plan.config
        self.context = config.rollout.rollout_max_context_len or read_positions(config.run.hf_checkpoint)
        """Tokens of a prompt and its answer together; None where the model names no limit."""
        self._build, self._choices, self._tokenizer, self._measures = build, choices, tokenizer, measures
        self._labels: dict[str, tuple[str, LabelCheck] | None] = {}
        self._open = ExitStack()
        self._spent, self._measured = 0.0, 0.0

    def __enter__(self) -> "RowChecks":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def of_training(self) -> RowCheck:
        """The check of the run's own prompts."""
        roles, data = self._build.plan.roles, self._build.plan.config.data
        rewards = [each.reference for each in roles.all(RewardSpec)]
        files = [path for path, _ in name_files(data.prompt_data)]
        return self._check(rewards, roles.one(GeneratorSpec), files[0] if files else None, data.label_key)

    def of_evaluation(self, own: EvalSetArgs) -> RowCheck:
        """The check of an evaluation set."""
        plan = self._build.plan
        rewards = [own.reward] if own.reward else [each.reference for each in plan.roles.all(RewardSpec)]
        generator = plan.choose(GeneratorSpec, own.generator) if own.generator else plan.roles.one(GeneratorSpec)
        config = plan.config
        key = own.label_key or config.evaluation.eval_label_key or config.data.label_key
        return self._check(rewards, generator, Path(own.path), key, "eval-")

    def _check(
        self,
        rewards: Sequence[str],
        generator: Chosen[GeneratorSpec],
        file: Path | None,
        key: str | None,
        prefix: str = "",
    ) -> RowCheck:
        sends_prompt, renders = generator.registered.qualified == "slime-core/single_turn", SingleTurn()

        def check(sample: Sample) -> str | None:
            report = self.reports.setdefault(sample.source, DataSetReport(sample.source))
            text = sample.prompt if isinstance(sample.prompt, str) else None
            if sends_prompt and sample.generate_function_path is None:
                try:
                    text = renders.prompt_text(sample, self._tokenizer)
                except DataError as error:
                    return str(error)
                if (why := self._misfit(text, prefix)) is not None:
                    return why
            if self._is_due(report):
                began = time.monotonic()
                why = self._unscorable(sample, rewards, file, prefix)
                self._spent += time.monotonic() - began
                if why is not None:
                    return f"{why}{_places(sample.label, key, prefix)}"
            self._note(report, sample, text)
            return None

        return check

    def _is_due(self, report: DataSetReport) -> bool:
        """Whether a row's label is checked: each, where bad rows are left out, for that must not depend on time."""
        if self._build.plan.config.data.bad_rows == "skip" or report.prompts % _stride(self._spent) == 0:
            return True
        report.unchecked += 1
        return False

    def _misfit(self, prompt: str, prefix: str) -> str | None:
        context = self.context
        if (
            context is None
            or len(prompt) * BYTES < context
            or (tokens := len(self._tokenizer.encode(prompt))) < context
        ):
            return None
        config = self._build.plan.config
        evaluated = {each.path for each in config.evaluation.eval_prompt_data.values()}
        # Evaluation sets are read whole, so a file that is one, too, stays refused.
        helps = not prefix and evaluated.isdisjoint(str(path) for path, _ in name_files(config.data.prompt_data))
        advice = f"; --rollout-max-prompt-len {context - 1} leaves such prompts out" if helps else ""
        return (
            f"{NO_ROOM}{tokens} tokens, and prompt and answer together may have {context} "
            f"(rollout_max_context_len, or the model's positions){advice}"
        )

    def _unscorable(self, sample: Sample, rewards: Sequence[str], file: Path | None, prefix: str) -> str | None:
        own = sample.custom_rm_path or sample.metadata.get("rm_type")
        for name in [own] if isinstance(own, str) else rewards:
            if (why := self._label(name, sample)) is None:
                continue
            if sample.label is None and self._label(name, replace(sample, label="1")) != why:
                raise ConfigError(
                    f"reward {name!r} needs a gold answer, and label_key is not set: give --{prefix}label-key "
                    f"COLUMN{_columns(file)}"
                )
            shown = repr(sample.label)
            shown = shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 3]}..."
            return f"reward {name!r} cannot score its label {shown}: {why}"
        return None

    def _label(self, name: str, sample: Sample) -> str | None:
        if name not in self._labels:
            self._labels[name] = self._label_check(name)
        if (found := self._labels[name]) is None:
            return None
        plugin, check = found
        with blaming(f"check_label of reward {name!r}", plugin):
            try:
                return check(sample)
            except CallFailure as failure:
                raise PluginError(f"check_label of reward {name!r} failed: {failure.detail}") from None

    def _label_check(self, name: str) -> tuple[str, LabelCheck] | None:
        """The plugin and the check of a reward; None where it has none, or cannot be built yet."""
        try:
            chosen = self._build.plan.choose(RewardSpec, name)
        except (UnknownName, ConfigError):
            return None  # the reader of the rows names the first row that asks for it
        if not may_check_labels(chosen.spec):
            return None
        try:
            reward = self._choices.reward(name)
        except SlimeError:
            if chosen.spec.models(chosen.settings) and not self._build.models:
                return None  # it needs models that are not served yet
            raise
        return chosen.plugin, self._open.enter_context(LabelCheck(reward.part))

    def _note(self, report: DataSetReport, sample: Sample, text: str | None) -> None:
        if not report.prompts:
            report.first_prompt, report.label = sample.prompt if text is None else text, sample.label
        if self._measures and text is not None and report.prompts % _stride(self._measured) == 0:
            began = time.monotonic()
            report.lengths.append(len(self._tokenizer.encode(text)))
            self._measured += time.monotonic() - began
        report.prompts += 1


def _stride(spent: float) -> int:
    """Which rows still get what has taken so many seconds: each, every second, every fourth, and so on."""
    return 1 << int(spent / LIMIT_S)


def _places(label: Json, key: str | None, prefix: str) -> str:
    """What names a value in a label that is an object, as the end of a sentence."""
    if not isinstance(label, dict):
        return ""
    places = " or ".join(f"{key}.{each}" for each in label)
    return f". It is an object: name a value in it, --{prefix}label-key {places}"


def _columns(file: Path | None) -> str:
    """The columns of a file's first row, as the end of a sentence."""
    try:
        row = next(read_rows(file), None) if file is not None else None
    except DataError:
        row = None
    return f"; {file} has {', '.join(row.values)}" if row is not None else ""
