"""Preparation: what a draw becomes before it is split: shaped rewards, extra columns, replaced masks. No torch.

The groups themselves stay as they are: raw rewards and masks remain in their samples.

Example:

    prepared = Preparation(shapers, columns).of(draw, rollout_id=3)
    batches = split_step(prepared, ranks=2, rollout_id=3)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from slime_core.catalog.checks import blaming, check_columns, check_shaped
from slime_core.catalog.used import Used
from slime_core.roles import LOSS_MASK, BatchTransform, Draw, Grain, RewardShaper, ShapeContext
from slime_core.sample import Group, Sample, scalar_reward


@dataclass(frozen=True, slots=True)
class TrainSample:
    """One sample of a group that is about to be trained on."""

    sample: Sample
    """As it was generated and scored."""
    reward: float | None
    """Its reward, shaped; None where it has none, and is left out."""
    loss_mask: Sequence[int]
    """1 where trained on; zeros for a removed sample: [response_length]."""
    columns_S: Mapping[str, float]
    """Its numbers of the sample columns."""
    columns_T: Mapping[str, Sequence[float]]
    """Its numbers of the token columns: [response_length] each."""


@dataclass(frozen=True, slots=True)
class TrainGroup:
    """One group of a draw, prepared."""

    group: Group
    """As the buffer handed it out."""
    weight: float
    """Its importance weight."""
    samples: Sequence[TrainSample]
    """All of its samples, in their order."""


@dataclass(frozen=True, slots=True)
class ColumnMaker:
    """A batch transform in use."""

    use: Used[BatchTransform]
    """The transform."""
    columns: Mapping[str, Grain]
    """What its spec declares."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """The run's reward shapers and batch transforms."""

    shapers: Sequence[Used[RewardShaper]] = ()
    """Applied one after another."""
    makers: Sequence[ColumnMaker] = ()
    """Each makes columns of its own."""

    def of(self, draw: Draw, rollout_id: int) -> list[TrainGroup]:
        """Prepare what the buffer handed out for a rollout's training.

        Raises:
            ContractError: what a shaper or a transform returned breaks its contract.
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
            with blaming("reward shaper", use.plugin):
                answer = use.part(groups, context)
            rewards = check_shaped(answer, plugin=use.plugin, groups=groups, before=rewards)
        return rewards

    def _sample(self, sample: Sample, reward: float | None, group: Group, context: ShapeContext) -> TrainSample:
        columns_S: dict[str, float] = {}
        columns_T: dict[str, Sequence[float]] = {}
        for maker in self.makers:
            with blaming("batch transform", maker.use.plugin):
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
    """Mean of the shaped rewards; nothing when there are none."""
    rewards = [sample.reward for group in groups for sample in group.samples if sample.reward is not None]
    return {"rollout/shaped_reward": sum(rewards) / len(rewards)} if rewards else {}
