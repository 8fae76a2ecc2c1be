"""Prepares a draw for training, and checks what shapers, batch transforms and trainers return. No torch.

Preparation shapes rewards, adds columns and replaces masks; the groups stay unchanged. The core's own columns and the
limits on log-prob mismatch between trainer and sampler are also here.

Example:

    prepared = Preparation(shapers, columns).prepare(draw, rollout_id=3)
"""

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import cast

from slime_core.catalog.catalog import BuiltChoice
from slime_core.catalog.checks import check_list, plugin_errors, refuse
from slime_core.config import TEACHER_COLUMN
from slime_core.errors import ContractError, MismatchError
from slime_core.roles import (
    LOSS_MASK,
    BatchTransform,
    Draw,
    Grain,
    RewardShaper,
    ShapeContext,
    StepResult,
    WeightSlot,
)
from slime_core.sample import Group, Sample, scalar_reward

# Checks of results from reward shapers, batch transforms and trainers.

Rewards = Sequence[Sequence[float | None]]
"""One row per group with one number per sample, None for a sample without a reward."""


def check_shaped(
    returned: object, *, plugin: str, groups: Sequence[Group], before: Rewards
) -> list[list[float | None]]:
    """Return a reward shaper's result after checks against the rewards that it received, `before`.

    Raises:
        ContractError: the shape is wrong, a value is not finite, or None is not where `before` has it.
    """
    where = f"reward shaper of plugin {plugin}"
    rows = check_list(where, "one row of rewards per group", returned)
    if len(rows) != len(groups):
        raise ContractError(f"{where}: {len(rows)} rows for {len(groups)} groups; return one row per group")
    made: list[list[float | None]] = []
    for group, shaped, was in zip(groups, rows, before, strict=True):
        row = check_list(f"{where}, group {group.id}", "a row of rewards", shaped)
        if len(row) != len(was):
            raise ContractError(
                f"{where}, group {group.id}: {len(row)} rewards for {len(was)} samples; return one number per sample"
            )
        made.append([])
        for position, (reward, old) in enumerate(zip(row, was, strict=True)):
            here = f"{where}, group {group.id}, sample {position}"
            if old is None and reward is not None:
                raise ContractError(f"{here}: shaped to {reward!r}, but it has no reward: leave it None")
            if old is not None and reward is None:
                raise ContractError(f"{here}: shaped to None, but it has a reward; a sample filter takes samples out")
            made[-1].append(None if reward is None else _number(here, reward))
    return made


def check_columns(
    returned: object, *, plugin: str, sample: Sample, grains: Mapping[str, Grain]
) -> dict[str, float | Sequence[float]]:
    """Return a batch transform's values for one sample: a float per sample column, a list per token column.

    Raises:
        ContractError: columns are missing or undeclared, a list does not have one value per response token, a value
            is not finite, or a loss mask adds tokens.
    """
    where = f"batch transform of plugin {plugin}, sample {sample.index} of group {sample.group_index}"
    if not isinstance(returned, Mapping):
        refuse(where, f"a dict of {', '.join(grains)}", returned)
    if returned.keys() != grains.keys():
        raise ContractError(
            f"{where}: made columns {', '.join(map(str, returned)) or 'none'}; its spec declares {', '.join(grains)}"
        )
    made: dict[str, float | Sequence[float]] = {}
    for name, grain in grains.items():
        here = f"{where}, column {name!r}"
        if grain is Grain.SAMPLE:
            made[name] = _number(here, returned[name])
            continue
        values = check_list(here, "one number per response token", returned[name])
        if len(values) != sample.response_length:
            raise ContractError(f"{here}: {len(values)} values for {sample.response_length} response tokens")
        made[name] = array("f", [_number(here, value) for value in values])
        if name == LOSS_MASK:
            _check_mask(here, made[name], sample)  # type: ignore[arg-type]  # the branch of sequences
    return made


def check_step_result(returned: object, *, plugin: str, rank: int, groups: Collection[int]) -> StepResult:
    """Return a trainer rank's report on a step, after checks; `groups` are the group numbers that it received.

    Raises:
        ContractError: the report is not a `StepResult`, a value is not a number, `over_all_tokens` names an unknown
            metric, or scores are of other groups.
    """
    where = f"trainer of plugin {plugin}, rank {rank}"
    if not isinstance(returned, StepResult):
        refuse(where, "a StepResult", returned)
    for kind, values in (("metrics", returned.metrics), ("scalars", returned.scalars)):
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                refuse(f"{where}, {kind} {name!r}", "a float", value)
    if unknown := sorted(set(returned.over_all_tokens) - returned.metrics.keys()):
        raise ContractError(f"{where}, over_all_tokens: names {', '.join(unknown)}, which is not among its metrics")
    tokens: object = returned.tokens
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        refuse(f"{where}, tokens", "a count", tokens)
    if set(returned.scores) != set(groups):
        raise ContractError(f"{where}: scores of groups {sorted(returned.scores)}; it was given {sorted(set(groups))}")
    for number, score in returned.scores.items():
        _number(f"{where}, score of group {number}", score)
    return returned


def check_slots(returned: object, *, plugin: str) -> Sequence[WeightSlot]:
    """Return the weight slots of a trainer's rank, after checks.

    Raises:
        ContractError: not a sequence of `WeightSlot`, no slots, or two slots with one name.
    """
    where = f"trainer of plugin {plugin}, weight_slots"
    slots = check_list(where, "WeightSlots", returned)
    names: set[str] = set()
    for slot in slots:
        if not isinstance(slot, WeightSlot):
            refuse(where, "WeightSlots", slot)
        if slot.name in names:
            raise ContractError(f"{where}: there are two of {slot.name!r}; each weight travels once")
        names.add(slot.name)
    if not names:
        raise ContractError(f"{where}: the trainer returned no weight slots")
    return [slot for slot in slots if isinstance(slot, WeightSlot)]


def _check_mask(where: str, mask: Sequence[float], sample: Sample) -> None:
    before = sample.loss_mask if sample.loss_mask is not None else [1] * sample.response_length
    for position, (bit, was) in enumerate(zip(mask, before, strict=True)):
        if bit not in (0.0, 1.0):
            raise ContractError(f"{where}: token {position} is {bit:g}; a mask is 0 or 1")
        if bit > was:
            raise ContractError(
                f"{where}: token {position} is 1 where the sample's mask is 0; tokens are only taken out"
            )


def _number(where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse(where, "a float", value)
    if not isfinite(value):
        raise ContractError(f"{where}: {value} is not finite")
    return float(value)


# Preparation: shaped rewards, added columns, replaced masks.


@dataclass(frozen=True, slots=True)
class TrainSample:
    """One sample of a prepared group."""

    sample: Sample
    """The sample as it was generated and scored."""
    reward: float | None
    """Shaped reward; None for a sample without one, which training leaves out."""
    loss_mask: Sequence[int]
    """1 for trained tokens; all zeros for a removed sample: [response_length]."""
    columns_S: Mapping[str, float]
    """Values of the sample columns."""
    columns_T: Mapping[str, Sequence[float]]
    """Values of the token columns: [response_length] each."""


@dataclass(frozen=True, slots=True)
class TrainGroup:
    """One group of a draw, prepared."""

    group: Group
    """The group as the buffer returned it."""
    weight: float
    """Importance weight of the group."""
    samples: Sequence[TrainSample]
    """All samples, in the group's order."""


@dataclass(frozen=True, slots=True)
class ColumnMaker:
    """A batch transform and its columns."""

    use: BuiltChoice[BatchTransform]
    """The transform."""
    columns: Mapping[str, Grain]
    """Columns that its spec declares."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """The run's reward shapers and batch transforms, in order."""

    shapers: Sequence[BuiltChoice[RewardShaper]] = ()
    """Reward shapers; each receives the rewards of the one before."""
    makers: Sequence[ColumnMaker] = ()
    """Batch transforms, each with different columns."""

    def prepare(self, draw: Draw, rollout_id: int) -> list[TrainGroup]:
        """Prepare a draw from the buffer for a rollout's training.

        Raises:
            ContractError: a shaper or a transform returned something that breaks its contract.
            PluginError: one raised.
        """
        rewards = self._shaped(draw.groups, rollout_id)
        context = ShapeContext(rollout_id, rewards)
        return [
            TrainGroup(
                group,
                weight,
                [
                    self._sample(sample, reward, group, context)
                    for sample, reward in zip(group.samples, row, strict=True)
                ],
            )
            for group, weight, row in zip(draw.groups, draw.weights, rewards, strict=True)
        ]

    def _shaped(self, groups: Sequence[Group], rollout_id: int) -> list[list[float | None]]:
        rewards: list[list[float | None]] = [
            [None if sample.reward is None else scalar_reward(sample) for sample in group.samples] for group in groups
        ]
        for use in self.shapers:
            context = ShapeContext(rollout_id, tuple(map(tuple, rewards)))
            with plugin_errors("reward shaper", use.plugin):
                answer = use.part(groups, context)
            rewards = check_shaped(answer, plugin=use.plugin, groups=groups, before=rewards)
        return rewards

    def _sample(self, sample: Sample, reward: float | None, group: Group, context: ShapeContext) -> TrainSample:
        columns_S: dict[str, float] = {}
        columns_T: dict[str, Sequence[float]] = {}
        for maker in self.makers:
            with plugin_errors("batch transform", maker.use.plugin):
                answer = maker.use.part(sample, group, context)
            made = check_columns(answer, plugin=maker.use.plugin, sample=sample, grains=maker.columns)
            for name, grain in maker.columns.items():
                if grain is Grain.SAMPLE:
                    columns_S[name] = cast(float, made[name])
                else:
                    columns_T[name] = cast(Sequence[float], made[name])
        mask = columns_T.pop(LOSS_MASK, None)
        return TrainSample(sample, reward, _mask(sample, mask), columns_S, columns_T)


def _mask(sample: Sample, replaced: Sequence[float] | None) -> Sequence[int]:
    if sample.remove_sample:
        return bytes(sample.response_length)
    if replaced is not None:
        return bytes(map(int, replaced))
    return sample.loss_mask if sample.loss_mask is not None else b"\1" * sample.response_length


def shaping_metrics(groups: Sequence[TrainGroup]) -> dict[str, float]:
    """Return the mean of the shaped rewards; empty if there are none."""
    rewards = [sample.reward for group in groups for sample in group.samples if sample.reward is not None]
    return {"rollout/shaped_reward": sum(rewards) / len(rewards)} if rewards else {}


# The core's own columns.

CORE_PLUGIN = "slime-core"


def teacher_column() -> ColumnMaker:
    """Return the column of the teacher's log-probs that samples carry."""
    return ColumnMaker(BuiltChoice(TEACHER_COLUMN, CORE_PLUGIN, _teacher_log_probs), {TEACHER_COLUMN: Grain.TOKEN})


def reward_columns(keys: Sequence[str]) -> ColumnMaker:
    """Return columns with the parts of a sample's reward, each named `reward/KEY`."""

    def parts(sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float]:
        reward = sample.reward
        if reward is None:
            return {f"reward/{key}": 0.0 for key in keys}
        there = reward if isinstance(reward, dict) else {}
        for key in keys:
            if key not in there:
                raise ContractError(
                    f"sample {sample.index} of group {sample.group_index} has no part {key!r} of its reward, which the "
                    f"advantage estimator reads: it has {', '.join(there) or f'the one number {reward}'}; name rewards "
                    "of [reward] or [group_reward], NAME/COMPONENT, or keys of a reward that is a dict"
                )
        return {f"reward/{key}": there[key] for key in keys}

    return ColumnMaker(BuiltChoice("reward_parts", CORE_PLUGIN, parts), {f"reward/{key}": Grain.SAMPLE for key in keys})


def _teacher_log_probs(sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, Sequence[float]]:
    if sample.teacher_log_probs is not None:
        return {TEACHER_COLUMN: sample.teacher_log_probs}
    if sample.reward is not None and not sample.remove_sample and sample.response_length:
        raise ContractError(
            f"sample {sample.index} of group {sample.group_index} has no teacher_log_probs, which use_opd needs. Let a "
            "generator or a batch transform set them, or set opd_teacher_model (a served teacher) or opd_teacher_load "
            "(a teacher in the trainer)"
        )
    return {TEACHER_COLUMN: [0.0] * sample.response_length}


# Limits on the log-prob mismatch between trainer and sampler.

MEAN = "train/train_rollout_logprob_abs_diff"
LARGEST = "train/train_rollout_logprob_abs_diff_max"


@dataclass(frozen=True, slots=True)
class MismatchLimits:
    """Largest allowed mismatch in nats, over the trained tokens of an optimizer step; None: no limit."""

    mean: float | None = None
    """Limit of the mean mismatch (`max_mean_logprob_abs_diff`)."""
    largest: float | None = None
    """Limit of the largest mismatch (`max_logprob_abs_diff`)."""

    def check(self, metrics: Mapping[str, float], rollout_id: int, tokens: int) -> None:
        """Check the metrics of a rollout's first optimizer step, whose weights are the sampler's, over `tokens` tokens.

        Raises:
            MismatchError: the mismatch is over a limit.
            ContractError: the trainer does not report a limited metric.
        """
        for key, name, limit in (
            ("max_mean_logprob_abs_diff", MEAN, self.mean),
            ("max_logprob_abs_diff", LARGEST, self.largest),
        ):
            if limit is None or not tokens:
                continue
            if name not in metrics:
                raise ContractError(f"{key} limits {name}, which the trainer does not report: remove {key}")
            if metrics[name] > limit:
                raise MismatchError(
                    f"rollout {rollout_id}, first optimizer step: {name} is {metrics[name]:.3g} nats, over {key} = "
                    f"{limit:g} (mean {_shown(metrics, MEAN)}, largest {_shown(metrics, LARGEST)}): trainer and engine "
                    "disagree about the same tokens. Look for other weights, precision, temperature or chat template "
                    "in one of them; the newest checkpoint is from before this step."
                )


def _shown(metrics: Mapping[str, float], name: str) -> str:
    return f"{metrics[name]:.3g}" if name in metrics else "unknown"
