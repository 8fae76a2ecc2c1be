"""What a draw is for training: rewards shaped, columns added, masks replaced, steps checked."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean, stdev

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slime_core.batching.prepare import (
    LARGEST,
    MEAN,
    ColumnMaker,
    MismatchLimits,
    Preparation,
    reward_columns,
    shaping_metrics,
    teacher_column,
)
from slime_core.batching.split import split_step
from slime_core.catalog.catalog import BuiltChoice
from slime_core.config import TEACHER_COLUMN
from slime_core.errors import ContractError, MismatchError, PluginError
from slime_core.roles import LOSS_MASK, BatchTransformSpec, Draw, FilterContext, Grain, ShapeContext
from slime_core.sample import Group, GroupId, Sample, Status
from slime_testing.samples import make_group
from slime_train import Algorithm, GrpoSettings, PolicyLossSettings
from slime_train.algorithm import mismatch, mismatch_extremes
from slime_train.estimators.grpo import Grpo
from slime_train.filters import truncated
from slime_train.losses import PolicyLoss
from tests.ranks import rank_setup
from tests.tables import table
from tests.train.draws import groups_of

Rows = Sequence[Sequence[float | None]]


def plus(amount: float) -> BuiltChoice[object]:
    def shape(groups: Sequence[Group], ctx: ShapeContext) -> Rows:
        return [[None if each is None else each + amount for each in row] for row in ctx.rewards]

    return BuiltChoice(f"plus {amount}", "tests", shape)


def twice(groups: Sequence[Group], ctx: ShapeContext) -> Rows:
    return [[None if each is None else 2 * each for each in row] for row in ctx.rewards]


def identity(sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float | Sequence[float]]:
    """Columns from which each number's sample and token can be told."""
    own = 100 * (sample.group_index or 0) + 10 * (sample.index or 0)
    return {"own": own, "own_T": [own + token for token in range(sample.response_length)]}


def every_other(sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float | Sequence[float]]:
    mask = sample.loss_mask if sample.loss_mask is not None else [1] * sample.response_length
    return {LOSS_MASK: [bit * (place % 2) for place, bit in enumerate(mask)]}


COLUMNS = ColumnMaker(BuiltChoice("identity", "tests", identity), {"own": Grain.SAMPLE, "own_T": Grain.TOKEN})
MASK = ColumnMaker(BuiltChoice("every_other", "tests", every_other), {LOSS_MASK: Grain.TOKEN})


def draw_of(groups: Sequence[Group]) -> Draw:
    return Draw(groups, [1.0] * len(groups))


@given(groups=groups_of())
def test_shapers_follow_one_another_and_raw_rewards_stay(groups: list[Group]) -> None:
    raw = [[sample.reward for sample in group.samples] for group in groups]
    preparation = Preparation([plus(1.0), BuiltChoice("twice", "tests", twice)])  # type: ignore[list-item]
    prepared = preparation.prepare(draw_of(groups), rollout_id=3)
    assert [[each.reward for each in group.samples] for group in prepared] == [
        [None if each is None else 2 * (each + 1.0) for each in row]  # type: ignore[operator]
        for row in raw
    ]
    assert [[sample.reward for sample in group.samples] for group in groups] == raw
    scored = [each.reward for group in prepared for each in group.samples if each.reward is not None]
    expected = {"rollout/shaped_reward": pytest.approx(sum(scored) / len(scored))} if scored else {}
    assert shaping_metrics(prepared) == expected


@given(groups=groups_of(), ranks=st.integers(1, 3))
def test_columns_travel_with_their_sample_and_token(groups: list[Group], ranks: int) -> None:
    prepared = Preparation(makers=[COLUMNS, MASK]).prepare(draw_of(groups), rollout_id=3)
    for batch in split_step(prepared, ranks, rollout_id=3):
        assert batch.columns_S.keys() == {"own"}
        assert batch.columns_T.keys() == {"own_T"}
        assert len(batch.columns_S["own"]) == len(batch.rewards_S)
        starts = [0, *accumulate(batch.response_lengths_S)]
        for place, (start, stop) in enumerate(pairwise(starts)):
            own = batch.columns_S["own"][place]
            assert own // 100 == batch.group_index_S[place]
            assert list(batch.columns_T["own_T"][start:stop]) == [own + token for token in range(stop - start)]


@given(groups=groups_of(), ranks=st.integers(1, 3))
def test_a_replaced_mask_decides_what_is_trained_and_counted(groups: list[Group], ranks: int) -> None:
    batches = split_step(Preparation(makers=[MASK]).prepare(draw_of(groups), rollout_id=3), ranks, rollout_id=3)
    kept = [
        [0 if sample.remove_sample else bit * (place % 2) for place, bit in enumerate(sample.loss_mask or ())]
        for group in groups
        for sample in group.samples
        if sample.reward is not None
    ]
    for batch in batches:
        assert batch.step_tokens == sum(map(sum, kept))
        assert batch.step_samples == sum(map(any, kept))
    assert sum(sum(batch.loss_mask_T) for batch in batches) == sum(map(sum, kept))


def test_a_sample_without_a_reward_has_columns_and_is_left_out() -> None:
    sample = Sample(group_index=0, index=0, tokens=[7])
    sample.append_response_tokens(tokens=[8], log_probs=[-0.5], weight_version="0")
    [group] = Preparation(makers=[COLUMNS]).prepare(draw_of([Group(GroupId("made", 0, 0, 0), [sample])]), rollout_id=0)
    assert group.samples[0].columns_S == {"own": 0.0}
    [batch] = split_step([group], 1, rollout_id=0)
    assert len(batch.rewards_S) == 0
    assert shaping_metrics([group]) == {}


def two_groups() -> list[Group]:
    """Rewards 1, 2 and 3 in two groups."""
    return [
        Group(
            GroupId("made", 0, number, number),
            [Sample(group_index=number, index=place, reward=reward) for place, reward in enumerate(row)],
        )
        for number, row in enumerate([[1.0, 2.0], [3.0]])
    ]


def test_shapers_and_transforms_are_told_the_rollout_and_the_rewards_so_far() -> None:
    seen: list[tuple[int, list[list[float | None]]]] = []

    def shape(groups: Sequence[Group], ctx: ShapeContext) -> Rows:
        seen.append((ctx.rollout_id, [list(row) for row in ctx.rewards]))
        assert [len(group.samples) for group in groups] == [2, 1]
        return [[None if each is None else -each for each in row] for row in ctx.rewards]

    def transform(sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float]:
        seen.append((ctx.rollout_id, [list(row) for row in ctx.rewards]))
        assert any(each is sample for each in group.samples)
        return {"size": len(group.samples)}

    shaper, maker = (
        BuiltChoice("shape", "tests", shape),
        ColumnMaker(BuiltChoice("made", "tests", transform), {"size": Grain.SAMPLE}),
    )
    found = Preparation([shaper, shaper], [maker]).prepare(draw_of(two_groups()), rollout_id=5)
    raw: list[list[float | None]] = [[1.0, 2.0], [3.0]]
    assert seen == [(5, raw), (5, [[-1.0, -2.0], [-3.0]]), *[(5, raw)] * 3]
    assert [[each.columns_S["size"] for each in group.samples] for group in found] == [[2.0, 2.0], [1.0]]


def test_a_sample_without_a_mask_is_trained_on_all_of_its_response() -> None:
    plain = Sample(group_index=0, index=0, tokens=[7, 8, 9], response_length=2, reward=1.0)
    removed = Sample(group_index=0, index=1, tokens=[7, 8, 9], response_length=2, reward=1.0, remove_sample=True)
    assert plain.loss_mask is None
    [group] = Preparation().prepare(draw_of([Group(GroupId("made", 0, 0, 0), [plain, removed])]), rollout_id=0)
    assert [list(each.loss_mask) for each in group.samples] == [[1, 1], [0, 0]]


def test_the_culprit_is_named() -> None:
    def raises(*_: object) -> Rows:
        raise KeyError("turn")

    groups = [Group(GroupId("made", 0, 0, 0), [Sample(group_index=0, index=0, reward=1.0)])]
    with pytest.raises(PluginError, match=r"^reward shaper of plugin odd raised KeyError: 'turn'"):
        Preparation([BuiltChoice("odd", "odd", raises)]).prepare(draw_of(groups), rollout_id=0)  # type: ignore[arg-type]
    with pytest.raises(PluginError, match=r"^batch transform of plugin odd raised KeyError: 'turn'"):
        Preparation(makers=[ColumnMaker(BuiltChoice("odd", "odd", raises), {"a": Grain.SAMPLE})]).prepare(  # type: ignore[arg-type]
            draw_of(groups), rollout_id=0
        )
    short = BuiltChoice("short", "odd", lambda sample, group, ctx: {})
    with pytest.raises(ContractError, match=r"^batch transform of plugin odd, sample 0 of group 0: made columns none"):
        Preparation(makers=[ColumnMaker(short, {"a": Grain.SAMPLE})]).prepare(draw_of(groups), rollout_id=0)  # type: ignore[arg-type]
    with pytest.raises(ContractError, match=r"^reward shaper of plugin odd: expected one row of rewards per group"):
        Preparation([BuiltChoice("odd", "odd", lambda groups, ctx: None)]).prepare(draw_of(groups), rollout_id=0)  # type: ignore[arg-type]


@table(
    "columns, says",
    [
        ({}, "declare its columns"),
        ({"a b": Grain.TOKEN}, "'a b' is not an identifier"),
        ({LOSS_MASK: Grain.SAMPLE}, r"'loss_mask' is a column of Grain\.TOKEN"),
    ],
)
def test_a_spec_declares_what_it_makes(columns: Mapping[str, Grain], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        BatchTransformSpec("odd", lambda settings, setup: identity, columns=columns)


# The column of a teacher's log-probs that samples bring along; what lacks them, and who may.


def taught(log_probs: list[float] | None, *, reward: float | None = 1.0, length: int = 2) -> Sample:
    sample = Sample(index=4, group_index=3, tokens=[1, *[2] * length], response_length=length, reward=reward)
    sample.teacher_log_probs = log_probs
    return sample


def column_of(sample: Sample) -> list[float]:
    draw = Draw([Group(GroupId("made", 0, 0, 0), [sample])], [1.0])
    [group] = Preparation(makers=[teacher_column()]).prepare(draw, rollout_id=0)
    return list(group.samples[0].columns_T[TEACHER_COLUMN])


def removed() -> Sample:
    sample = taught(None)
    sample.remove_sample = True
    return sample


def test_a_teachers_log_probs_are_a_column_of_tokens() -> None:
    assert column_of(taught([-0.5, -0.25])) == [-0.5, -0.25]
    assert teacher_column().columns == {TEACHER_COLUMN: Grain.TOKEN}
    assert reward_columns(["a"]).columns == {"reward/a": Grain.SAMPLE}


@table("sample", [lambda: taught(None, reward=None), removed, lambda: taught(None, length=0)])
def test_what_is_not_trained_on_needs_no_teacher(sample: Callable[[], Sample]) -> None:
    made = sample()
    assert column_of(made) == [0.0] * made.response_length


def test_a_trained_sample_without_a_teacher_is_named() -> None:
    with pytest.raises(ContractError, match=r"^sample 4 of group 3 has no teacher_log_probs, which use_opd needs"):
        column_of(taught(None))


# What a sample filter left out: its reward is one of its group's, its tokens are in no sum and no denominator.

REWARDS = ((1.0, 0.0, 0.5), (0.0, 0.0, 1.0))
LENGTHS = ((2, 5, 3), (4, 1, 2))
CUT = {(0, 1), (1, 2)}
OVER_SAMPLES: dict[str, object] = {"calculate_per_token_loss": False}
WAYS = [OVER_SAMPLES, {"calculate_per_token_loss": True}, {**OVER_SAMPLES, "constant_loss_length": 6}]


def groups() -> list[Group]:
    """Two groups of three samples; those of `CUT` were cut off, and the filter has seen it."""
    made = [make_group(draw, rewards=rewards) for draw, rewards in enumerate(REWARDS)]
    for draw, group in enumerate(made):
        for at, sample in enumerate(group.samples):
            sample.tokens = [11, 12, *range(20, 20 + LENGTHS[draw][at])]
            sample.response_length = LENGTHS[draw][at]
            sample.loss_mask, sample.rollout_log_probs = [1] * LENGTHS[draw][at], [-0.5] * LENGTHS[draw][at]
            sample.status = Status.TRUNCATED if (draw, at) in CUT else Status.COMPLETED
    for removal in truncated(made, FilterContext(rollout_id=0)):
        made[removal.group.draw].samples[removal.position].remove_sample = True
    return made


def grpo(way: dict[str, object]) -> Algorithm:
    """GRPO and its clipped loss, on one rank."""
    return Algorithm(
        rank_setup(Path(), Path(), **way),  # type: ignore[arg-type]
        BuiltChoice("grpo", "tests", Grpo(GrpoSettings())),
        BuiltChoice("policy_loss", "tests", PolicyLoss(PolicyLossSettings())),
        None,
        zero_without_advantage=True,
        sum_over_shares=lambda tensor: tensor,
    )


def gradient(draw: int, at: int, way: dict[str, object]) -> float:
    """Of the step's loss by a token's log-prob, where the policy is the sampler: -A times the token's weight."""
    if (draw, at) in CUT:
        return 0.0
    left = [LENGTHS[one][other] for one in range(2) for other in range(3) if (one, other) not in CUT]
    advantage = (REWARDS[draw][at] - fmean(REWARDS[draw])) / (stdev(REWARDS[draw]) + 1e-6)
    if way["calculate_per_token_loss"]:
        return -advantage / sum(left)
    return -advantage / int(str(way.get("constant_loss_length", LENGTHS[draw][at]))) / len(left)


@table("way", WAYS)
@table("shares", [1, 2])
def test_a_truncated_sample_counts_in_its_groups_baseline_alone(way: dict[str, object], shares: int) -> None:
    prepared = Preparation().prepare(Draw(groups(), [1.0, 1.0]), rollout_id=0)
    for batch in split_step(prepared, shares, rollout_id=0):
        algorithm = grpo(way)
        (share,) = algorithm.estimate([algorithm.share(batch)])
        live = share.samples_with(algorithm.signal(share))
        assert all((batch.group_index_S[each], each % 3) not in CUT for each in live)
        leaf_T = torch.full((len(batch.tokens_T),), -0.5, requires_grad=True)
        everything = range(len(share.lengths_S))
        part = algorithm.micro_batch(share, list(everything), leaf_T, torch.zeros_like(leaf_T))
        part.loss.backward()  # type: ignore[no-untyped-call]
        assert leaf_T.grad is not None
        expected = [
            gradient(batch.group_index_S[each], each % 3, way)
            for each in everything
            for _ in range(batch.response_lengths_S[each])
        ]
        assert leaf_T.grad.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-9)
        assert part.tokens == sum(
            LENGTHS[batch.group_index_S[each]][each % 3]
            for each in everything
            if (batch.group_index_S[each], each % 3) not in CUT
        )


# Train/rollout mismatch: estimators that are unbiased for the KL divergence, and quantiles of the ratio.

LOG_PROB = st.floats(-8, -0.01)


@given(tokens=st.lists(st.tuples(LOG_PROB, LOG_PROB), min_size=1, max_size=12))
def test_it_is_the_formula(tokens: list[tuple[float, float]]) -> None:
    new, rollout = (torch.tensor(each, dtype=torch.float64) for each in zip(*tokens, strict=True))
    found = mismatch(new, rollout)
    differences = [one - other for one, other in tokens]
    assert found["train_rollout_logprob_abs_diff"].tolist() == pytest.approx([abs(each) for each in differences])
    assert found["train_rollout_k1"].tolist() == pytest.approx([-each for each in differences])
    k3 = [math.exp(each) - 1 - each for each in differences]
    assert found["train_rollout_k3"].tolist() == pytest.approx(k3, rel=1e-9, abs=1e-12)


def test_k3_of_tiny_differences_is_no_rounding_noise() -> None:
    """exp(d) - 1 - d of d = 1e-3 in float32 would be off by a tenth; of equal log-probs all are 0."""
    found = mismatch(torch.tensor([-1.0, -1.0]), torch.tensor([-1.001, -1.0]))["train_rollout_k3"]
    assert found[0].item() == pytest.approx(5e-7, rel=2e-2)
    assert found[1].item() == 0.0


@given(differences=st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=300))
def test_quantiles_are_of_the_sorted_ratios(differences: list[float]) -> None:
    found = mismatch_extremes(torch.tensor(differences, dtype=torch.float32))
    ordered = sorted(map(math.exp, differences))
    places = {"min": 0, "p01": 0.01, "p50": 0.5, "p99": 0.99, "max": 1}
    assert found.pop("train_rollout_logprob_abs_diff_max") == max(map(abs, differences))
    assert found == {
        f"train_rollout_ratio_{name}": pytest.approx(ordered[round(share * (len(ordered) - 1))])
        for name, share in places.items()
    }


def test_of_no_tokens_there_is_nothing_to_say() -> None:
    assert mismatch_extremes(torch.empty(0)) == {}


# Limits of the distance between trainer and sampler.

METRICS = {MEAN: 0.02, LARGEST: 0.5}


@table("limits", [MismatchLimits(), MismatchLimits(mean=0.02), MismatchLimits(0.03, 0.5)])
def test_up_to_its_limit_a_run_goes_on(limits: MismatchLimits) -> None:
    limits.check(METRICS, rollout_id=3, tokens=9)


@table(
    "limits, metrics, said",
    [
        (
            MismatchLimits(mean=0.01),
            METRICS,
            r"rollout 3, .*is 0.02 nats, over max_mean_logprob_abs_diff = 0.01 ",
        ),
        (MismatchLimits(0.1, 0.4), METRICS, r"over max_logprob_abs_diff = 0\.4 \(mean 0\.02, largest 0\.5\): trainer"),
        (MismatchLimits(largest=0.4), {LARGEST: 0.5}, r"abs_diff_max is 0.5 .*\(mean unknown, largest 0\.5\): trainer"),
        (MismatchLimits(mean=0.01), {MEAN: 0.02}, r"= 0\.01 \(mean 0\.02, largest unknown\): trainer"),
    ],
)
def test_over_it_the_error_names_step_figures_and_limit(
    limits: MismatchLimits, metrics: dict[str, float], said: str
) -> None:
    with pytest.raises(MismatchError, match=said):
        limits.check(metrics, rollout_id=3, tokens=9)


def test_a_limit_of_what_is_not_reported_is_an_error_unless_nothing_was_computed() -> None:
    limits = MismatchLimits(mean=0.1)
    limits.check({}, rollout_id=0, tokens=0)
    with pytest.raises(
        ContractError, match="limits train/train_rollout_logprob_abs_diff, which the trainer does not report"
    ):
        limits.check({}, rollout_id=0, tokens=1)
