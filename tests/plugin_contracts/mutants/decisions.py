"""Honest filters, shapers and transforms, and each way of breaking them."""

import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence

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


def sorts_samples(group: Group, ctx: FilterContext) -> Decision:
    group.samples.reverse()
    return spread(group, ctx)


def alternates() -> Callable[..., Decision]:
    turns = itertools.cycle((Keep(), Drop("turn")))
    return lambda group, ctx: next(turns)


def no_rewards(group: Group, ctx: FilterContext) -> Decision:
    return Keep() if max(group.rewards) > min(group.rewards) else Drop("zero_std")


def numbers_in_reasons(group: Group, ctx: FilterContext) -> Decision:
    return Keep() if not group.id.draw else Drop(f"draw {group.id.draw}")


def drops_all(group: Group, ctx: FilterContext) -> Decision:
    return Drop("never")


# --- sample filters


def short_only(groups: Sequence[Group], ctx: FilterContext) -> list[Removal]:
    return [
        Removal(group.id, position, "long")
        for group in groups
        for position, sample in enumerate(group.samples)
        if sample.response_length > 10
    ]


def removes_twice(groups: Sequence[Group], ctx: FilterContext) -> list[Removal]:
    return short_only(groups, ctx) * 2


def marks_samples(groups: Sequence[Group], ctx: FilterContext) -> list[Removal]:
    for group in groups:
        group.samples[0].remove_sample = True
    return []


def removes_any(groups: Sequence[Group], ctx: FilterContext) -> list[Removal]:
    return [Removal(group.id, 0, "unlucky") for group in groups if random.random() < 0.5]


def needs_rewards(groups: Sequence[Group], ctx: FilterContext) -> list[Removal]:
    return [Removal(group.id, 0, "bad") for group in groups if min(group.rewards) < 0]


def removes_by_index(groups: Sequence[Group], ctx: FilterContext) -> Sequence[Removal]:
    return [Removal(group.id, each.index or 0, "short") for group in groups for each in group.samples]


def counts_tokens(groups: Sequence[Group], ctx: FilterContext) -> list[Removal]:
    return [Removal(each.group, each.position, f"long {each.group}") for each in short_only(groups, ctx)]


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


def flat(groups: Sequence[Group], ctx: ShapeContext) -> object:
    return [reward for row in ctx.rewards for reward in row]


def writes_rewards(groups: Sequence[Group], ctx: ShapeContext) -> Rows:
    for group in groups:
        group.samples[0].reward = 0.0
    return halves(groups, ctx)


def noisy(groups: Sequence[Group], ctx: ShapeContext) -> Rows:
    return [[None if reward is None else reward + random.random() for reward in row] for row in ctx.rewards]


def none_is_zero(groups: Sequence[Group], ctx: ShapeContext) -> Rows:
    return [[(reward or 0.0) / 2 for reward in row] for row in ctx.rewards]


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


def one_too_few(sample: Sample, group: Group, ctx: ShapeContext) -> Columns:
    return {**places(sample, group, ctx), "turn": [0.0] * (sample.response_length - 1)}


def another_column(sample: Sample, group: Group, ctx: ShapeContext) -> Columns:
    return {**places(sample, group, ctx), "extra": 1.0}


def notes_it(sample: Sample, group: Group, ctx: ShapeContext) -> Columns:
    group.metadata["seen"] = True
    return places(sample, group, ctx)


def draws(sample: Sample, group: Group, ctx: ShapeContext) -> Columns:
    return {**places(sample, group, ctx), "place": random.random()}


def mean_of_rewards(sample: Sample, group: Group, ctx: ShapeContext) -> Columns:
    return {**places(sample, group, ctx), "place": sum(group.rewards) / len(group.rewards)}


def transform(made: object, **columns: Grain) -> type[Contract]:
    spec = BatchTransformSpec("subject", lambda settings, setup: made, columns=columns)  # type: ignore[arg-type,return-value]

    class Subject(BatchTransformContract):
        choice = spec

    return Subject


def placed(made: object) -> type[Contract]:
    return transform(made, place=Grain.SAMPLE, turn=Grain.TOKEN)


GOOD = [group_filter(spread), sample_filter(short_only), shaper(halves), placed(places)]
MUTANTS = {
    "GFL-001": [group_filter(asynchronous(spread)), group_filter(lambda group: Keep()), group_filter(None)],
    "GFL-002": [group_filter(lambda group, ctx: True), group_filter(lambda group, ctx: Drop(""))],
    "GFL-003": [group_filter(sorts_samples)],
    "GFL-004": [group_filter(alternates())],
    "GFL-005": [group_filter(sleepy(spread))],
    "GFL-006": [group_filter(no_rewards)],
    "GFL-007": [group_filter(numbers_in_reasons), group_filter(numbers_in_reasons, groups=[make_group()])],
    "GFL-008": [group_filter(drops_all)],
    "SFL-001": [sample_filter(asynchronous(short_only)), sample_filter([])],
    "SFL-002": [
        sample_filter(removes_twice),
        sample_filter(lambda groups, ctx: None),
        sample_filter(removes_by_index),
    ],
    "SFL-003": [sample_filter(marks_samples)],
    "SFL-004": [sample_filter(removes_any)],
    "SFL-005": [sample_filter(sleepy(short_only))],
    "SFL-006": [sample_filter(needs_rewards)],
    "SFL-007": [sample_filter(counts_tokens)],
    "SHP-001": [shaper(asynchronous(halves)), shaper(lambda groups: [])],
    "SHP-002": [shaper(divides_by_the_spread), shaper(flat)],
    "SHP-003": [shaper(writes_rewards)],
    "SHP-004": [shaper(noisy)],
    "SHP-005": [shaper(sleepy(halves))],
    "SHP-006": [shaper(none_is_zero)],
    "SHP-007": [shaper(starts_from_raw)],
    "BTR-001": [placed(asynchronous(places)), placed(lambda sample: {})],
    "BTR-002": [placed(one_too_few), placed(another_column)],
    "BTR-003": [placed(notes_it)],
    "BTR-004": [placed(draws)],
    "BTR-005": [placed(sleepy(places))],
    "BTR-006": [placed(mean_of_rewards)],
}
