"""Honest filters, shapers and transforms, and each way of breaking them."""

import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from slime_core import Group, Sample
from slime_core.roles import (
    BatchTransformSpec,
    Decision,
    Drop,
    FilterContext,
    Grain,
    GroupFilterSpec,
    Keep,
    KeepIfShort,
    Removal,
    RewardShaperSpec,
    SampleFilterSpec,
    ShapeContext,
)
from slime_testing import (
    BatchTransformContract,
    Contract,
    GroupFilterContract,
    RewardShaperContract,
    SampleFilterContract,
    make_group,
)


def asynchronous(function: Callable[..., object]) -> object:
    """The same function as `async def`."""

    async def waits(*arguments: object) -> object:
        return function(*arguments)

    return waits


def sleepy(function: Callable[..., object]) -> object:
    """The same function, slowly."""

    def slow(*arguments: object) -> object:
        time.sleep(0.3)
        return function(*arguments)

    return slow


def subject(contract: type[Contract], kind: Callable[..., object]) -> Callable[..., type[Contract]]:
    """Makes the contract of what a factory returns."""

    def of(made: object, **attributes: object) -> type[Contract]:
        return type("Subject", (contract,), {"choice": kind("subject", lambda settings, setup: made), **attributes})

    return of


group_filter = subject(GroupFilterContract, GroupFilterSpec)
sample_filter = subject(SampleFilterContract, SampleFilterSpec)
shaper = subject(RewardShaperContract, RewardShaperSpec)


# --- group filters


def spread(group: Group, ctx: FilterContext) -> Decision:
    if not group.rewards:
        return Drop("unscored")
    return Keep() if max(group.rewards) > min(group.rewards) else KeepIfShort("zero_std")


def alternates() -> Callable[..., Decision]:
    turns = itertools.cycle((Keep(), Drop("turn")))
    return lambda group, ctx: next(turns)


# --- sample filters


def short_only(groups: Sequence[Group], ctx: FilterContext) -> list[Removal]:
    return [
        Removal(group.id, position, "long")
        for group in groups
        for position, sample in enumerate(group.samples)
        if sample.response_length > 10
    ]


def removal(group: Group, position: int | None = 0) -> Removal:
    return Removal(group.id, position or 0, "short")


def marks_samples(groups: Sequence[Group], ctx: FilterContext) -> list[Removal]:
    for group in groups:
        group.samples[0].remove_sample = True
    return []


# --- reward shapers

Rows = Sequence[Sequence[float | None]]


def halves(groups: Sequence[Group], ctx: ShapeContext) -> Rows:
    return [[None if reward is None else reward / 2 for reward in row] for row in ctx.rewards]


def divides_by_the_spread(groups: Sequence[Group], ctx: ShapeContext) -> Rows:
    spreads = [max(values) - min(values) for row in ctx.rewards if (values := [each or 0.0 for each in row])]
    return [
        [None if each is None else each / spread if spread else float("inf") for each in row]
        for row, spread in zip(ctx.rewards, spreads, strict=True)
    ]


def writes_rewards(groups: Sequence[Group], ctx: ShapeContext) -> Rows:
    for group in groups:
        group.samples[0].reward = 0.0
    return halves(groups, ctx)


def starts_from_raw(groups: Sequence[Group], ctx: ShapeContext) -> Rows:
    return [
        [None if each is None else sample.reward for sample, each in zip(group.samples, row, strict=True)]  # type: ignore[misc]
        if not any(isinstance(sample.reward, dict) for sample in group.samples)
        else row
        for group, row in zip(groups, ctx.rewards, strict=True)
    ]


# --- batch transforms

Columns = Mapping[str, object]


def places(sample: Sample, group: Group, ctx: ShapeContext) -> Columns:
    return {"place": float(sample.index or 0), "turn": [float(number) for number in range(sample.response_length)]}


def notes_it(sample: Sample, group: Group, ctx: ShapeContext) -> Columns:
    group.metadata["seen"] = True
    return places(sample, group, ctx)


def transform(made: object, **columns: Grain) -> type[Contract]:
    spec = BatchTransformSpec("subject", lambda settings, setup: made, columns=columns)  # type: ignore[arg-type,return-value]

    class Subject(BatchTransformContract):
        choice = spec

    return Subject


def placed(made: object) -> type[Contract]:
    return transform(made, place=Grain.SAMPLE, turn=Grain.TOKEN)


def changed(**columns: Callable[[Sample, Group], object]) -> type[Contract]:
    """The contract of `places` with other columns."""

    def transform_of(sample: Sample, group: Group, ctx: ShapeContext) -> Columns:
        return {**places(sample, group, ctx), **{name: column(sample, group) for name, column in columns.items()}}

    return placed(transform_of)


def each_reward(change: Callable[[float | None], float | None]) -> type[Contract]:
    """The contract of a shaper that changes each reward alone."""
    return shaper(lambda groups, ctx: [[change(reward) for reward in row] for row in ctx.rewards])


def reasoned(group: Group, ctx: FilterContext) -> Decision:
    return Keep() if not group.id.draw else Drop(f"draw {group.id.draw}")


GOOD = [group_filter(spread), sample_filter(short_only), shaper(halves), placed(places)]
MUTANTS = {
    "GFL-001": [group_filter(asynchronous(spread)), group_filter(lambda group: Keep()), group_filter(None)],
    "GFL-002": [group_filter(lambda group, ctx: True), group_filter(lambda group, ctx: Drop(""))],
    "GFL-003": [group_filter(lambda group, ctx: group.samples.reverse() or spread(group, ctx))],
    "GFL-004": [group_filter(alternates())],
    "GFL-005": [group_filter(sleepy(spread))],
    "GFL-006": [
        group_filter(lambda group, ctx: Keep() if max(group.rewards) > min(group.rewards) else Drop("zero_std"))
    ],
    "GFL-007": [group_filter(reasoned), group_filter(reasoned, groups=[make_group()])],
    "GFL-008": [group_filter(lambda group, ctx: Drop("never"))],
    "SFL-001": [sample_filter(asynchronous(short_only)), sample_filter([])],
    "SFL-002": [
        sample_filter(lambda groups, ctx: short_only(groups, ctx) * 2),
        sample_filter(lambda groups, ctx: None),
        sample_filter(lambda groups, ctx: [removal(group, each.index) for group in groups for each in group.samples]),
    ],
    "SFL-003": [sample_filter(marks_samples)],
    "SFL-004": [sample_filter(lambda groups, ctx: [removal(group) for group in groups if random.random() < 0.5])],
    "SFL-005": [sample_filter(sleepy(short_only))],
    "SFL-006": [sample_filter(lambda groups, ctx: [removal(group) for group in groups if min(group.rewards) < 0])],
    "SFL-007": [
        sample_filter(lambda groups, ctx: [replace(each, reason=f"{each.group}") for each in short_only(groups, ctx)])
    ],
    "SHP-001": [shaper(asynchronous(halves)), shaper(lambda groups: [])],
    "SHP-002": [
        shaper(divides_by_the_spread),
        shaper(lambda groups, ctx: [reward for row in ctx.rewards for reward in row]),
    ],
    "SHP-003": [shaper(writes_rewards)],
    "SHP-004": [each_reward(lambda reward: None if reward is None else reward + random.random())],
    "SHP-005": [shaper(sleepy(halves))],
    "SHP-006": [each_reward(lambda reward: (reward or 0.0) / 2)],
    "SHP-007": [shaper(starts_from_raw)],
    "BTR-001": [placed(asynchronous(places)), placed(lambda sample: {})],
    "BTR-002": [
        changed(turn=lambda sample, group: [0.0] * (sample.response_length - 1)),
        changed(extra=lambda sample, group: 1.0),
    ],
    "BTR-003": [placed(notes_it)],
    "BTR-004": [changed(place=lambda sample, group: random.random())],
    "BTR-005": [placed(sleepy(places))],
    "BTR-006": [changed(place=lambda sample, group: sum(group.rewards) / len(group.rewards))],
}
