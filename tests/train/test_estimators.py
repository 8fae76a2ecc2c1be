"""Estimators against their formulas, by sample and by group."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from pydantic import ValidationError

from slime_core.batching.prepare import Preparation, reward_columns
from slime_core.errors import ContractError
from slime_core.roles import Advantage, AdvantageInput, Draw, ShapeContext
from slime_core.sample import Group, GroupId, Sample
from slime_train import gradient_norm
from slime_train.estimators.gdpo import Gdpo, GdpoSettings
from slime_train.estimators.gpg import Gpg
from slime_train.estimators.grpo import Grpo, GrpoSettings
from slime_train.estimators.max_rl import MaxRl
from slime_train.estimators.reinforce_plus_plus import ReinforcePlusPlus, ReinforcePlusPlusSettings
from slime_train.estimators.reinforce_plus_plus_baseline import (
    ReinforcePlusPlusBaseline,
    ReinforcePlusPlusBaselineSettings,
)
from slime_train.estimators.rloo import Rloo
from slime_train.norm import CHUNK
from slime_train.normalization import EstimatorSettings
from slime_train.overlong import Overlong
from slime_train.settings import OverlongSettings
from tests.tables import table
from tests.train.ragged import whitened


@dataclass(frozen=True)
class Scored:
    """A sample: its group, the execution within it that made it, its reward, its loss mask."""

    group: int
    execution: int
    reward: float
    mask: Sequence[int] = (1,)

    @property
    def rollout(self) -> tuple[int, int]:
        return self.group, self.execution


# Differences of one float32 step would measure rounding: two normalisations in a row multiply it by 1e6.
REWARD = st.sampled_from([0.0, 1.0, 0.1, -1.0]) | st.integers(-320, 320).map(lambda number: number / 64)
SAMPLES = st.lists(
    st.builds(
        Scored,
        st.sampled_from([0, 3, 4, 900]),
        st.integers(0, 5),
        REWARD.map(lambda reward: float(torch.tensor(reward, dtype=torch.float32))),
        st.lists(st.integers(0, 1), max_size=4),
    ),
    min_size=1,
    max_size=16,
)


def batch_of(samples: Sequence[Scored]) -> AdvantageInput:
    rollouts = sorted({sample.rollout for sample in samples})
    return AdvantageInput(
        rewards_S=torch.tensor([sample.reward for sample in samples], dtype=torch.float32),
        group_index_S=torch.tensor([sample.group for sample in samples], dtype=torch.int64),
        rollout_index_S=torch.tensor([7 * rollouts.index(sample.rollout) for sample in samples], dtype=torch.int64),
        sample_index_T=torch.tensor(
            [number for number, sample in enumerate(samples) for _ in sample.mask], dtype=torch.int64
        ),
        loss_mask_T=torch.tensor([float(bit) for sample in samples for bit in sample.mask]),
    )


def rollouts_of(samples: Sequence[Scored], group: int) -> dict[int, float]:
    """Mean reward of each rollout of a group."""
    found: dict[int, list[float]] = {}
    for sample in samples:
        if sample.group == group:
            found.setdefault(sample.execution, []).append(sample.reward)
    return {execution: math.fsum(rewards) / len(rewards) for execution, rewards in found.items()}


def is_flat(samples: Sequence[Scored], group: int) -> bool:
    return len({sample.reward for sample in samples if sample.group == group}) == 1


def centred(samples: Sequence[Scored], sample: Scored) -> float:
    rollouts = rollouts_of(samples, sample.group)
    return 0.0 if is_flat(samples, sample.group) else sample.reward - math.fsum(rollouts.values()) / len(rollouts)


def grpo(samples: Sequence[Scored], settings: GrpoSettings) -> list[float]:
    found = []
    for sample in samples:
        rollouts = rollouts_of(samples, sample.group)
        squares: dict[int, list[float]] = {}
        for other in samples:
            if other.group == sample.group:
                squares.setdefault(other.execution, []).append(centred(samples, other) ** 2)
        variance = math.fsum(math.fsum(each) / len(each) for each in squares.values()) / max(1, len(rollouts) - 1)
        if settings.scale_rewards == "batch":
            variance = variance_of_all(samples)
        scale = math.sqrt(variance) + 1e-6 if settings.grpo_std_normalization else 1.0
        found.append(centred(samples, sample) / scale if settings.rewards_normalization else sample.reward)
    return spread(samples, found)


def variance_of_all(samples: Sequence[Scored]) -> float:
    """Of the rewards of all rollouts, each of which counts once, unbiased."""
    by_rollout: dict[tuple[int, int], list[float]] = {}
    for sample in samples:
        by_rollout.setdefault(sample.rollout, []).append(sample.reward)
    mean = math.fsum(math.fsum(each) / len(each) for each in by_rollout.values()) / len(by_rollout)
    squares = [math.fsum((reward - mean) ** 2 for reward in each) / len(each) for each in by_rollout.values()]
    return math.fsum(squares) / max(1, len(squares) - 1)


def rloo(samples: Sequence[Scored]) -> list[float]:
    found = []
    for sample in samples:
        others = [mean for key, mean in rollouts_of(samples, sample.group).items() if key != sample.execution]
        found.append(sample.reward - math.fsum(others) / len(others) if others else 0.0)
    return spread(
        samples, [0.0 if is_flat(samples, sample.group) else each for each, sample in zip(found, samples, strict=True)]
    )


def baseline(samples: Sequence[Scored]) -> list[float]:
    return spread(samples, [centred(samples, sample) for sample in samples])


def masks_of(samples: Sequence[Scored]) -> list[int]:
    return [bit for sample in samples for bit in sample.mask]


def spread(samples: Sequence[Scored], advantages: Sequence[float]) -> list[float]:
    return [each for sample, each in zip(samples, advantages, strict=True) for _ in sample.mask]


def discounted(samples: Sequence[Scored], gamma: float) -> list[float]:
    """Token by token from the end, as slime's loop goes."""
    found: list[float] = []
    for sample in samples:
        running, returns, paid = 0.0, [], False
        for bit in reversed(sample.mask):
            pays = bool(bit) and not paid
            paid = paid or pays
            running = (sample.reward if pays else 0.0) + gamma * running
            returns.append(running)
        found += reversed(returns)
    return found


def max_rl(samples: Sequence[Scored]) -> list[float]:
    found = []
    for sample in samples:
        means = rollouts_of(samples, sample.group).values()
        mean = math.fsum(means) / len(means)
        found.append(centred(samples, sample) / mean if mean else 0.0)
    return spread(samples, found)


def gpg(samples: Sequence[Scored]) -> list[float]:
    trained = {sample.rollout for sample in samples if any(sample.mask)}
    useful = {rollout for rollout in trained if not is_flat(samples, rollout[0])}
    scale = len(trained) / len(useful) if useful else 1.0
    return spread(samples, [scale * centred(samples, sample) for sample in samples])


GRPO = [
    GrpoSettings(),
    GrpoSettings(grpo_std_normalization=False),
    GrpoSettings(normalize_advantages=True),
    GrpoSettings(scale_rewards="batch"),
]
RAW = GrpoSettings(rewards_normalization=False)
DISCOUNTED = [
    ReinforcePlusPlusSettings(),
    ReinforcePlusPlusSettings(gamma=0.9),
    ReinforcePlusPlusSettings(gamma=0.0, normalize_advantages=False),
    ReinforcePlusPlusSettings(gamma=0.5, normalize_advantages=False),
]
PLAIN, WHITENED = EstimatorSettings(), EstimatorSettings(normalize_advantages=True)
Row = tuple[Advantage, Callable[[Sequence[Scored]], list[float]], bool]
"""An estimator, its formula, and whether the result is whitened."""
RELATIVE: list[Row] = [
    *((Grpo(each), partial(grpo, settings=each), each.normalize_advantages) for each in GRPO),
    *((Rloo(each), rloo, each.normalize_advantages) for each in (PLAIN, WHITENED)),
    *((ReinforcePlusPlusBaseline(each), baseline, each.normalize_advantages) for each in (PLAIN, WHITENED)),
    *((MaxRl(each), max_rl, each.normalize_advantages) for each in (PLAIN, WHITENED)),
    (Gpg(), gpg, False),
]
ROWS: list[Row] = [
    *RELATIVE,
    (Grpo(RAW), partial(grpo, settings=RAW), False),
    *(
        (ReinforcePlusPlus(each), partial(discounted, gamma=each.gamma), each.normalize_advantages)
        for each in DISCOUNTED
    ),
]


@table("estimator, formula, is_whitened", ROWS)
@profile(max_examples=60)
@given(samples=SAMPLES)
def test_it_is_the_formula(
    estimator: Advantage,
    formula: Callable[[Sequence[Scored]], list[float]],
    is_whitened: bool,
    samples: Sequence[Scored],
) -> None:
    if isinstance(estimator, MaxRl):
        samples = [replace(each, reward=abs(each.reward)) for each in samples]
    found, expected = estimator(batch_of(samples)), formula(samples)
    assert found.dtype == torch.float32
    # Whitening of values that are nearly equal divides their rounding, 1e-7, by 1e-4.
    rounding = 3e-3 if is_whitened else 1e-4
    expected = whitened(expected, masks_of(samples)) if is_whitened else expected
    assert found.tolist() == pytest.approx(expected, rel=1e-4, abs=rounding)


@table("estimator", [estimator for estimator, _, _ in RELATIVE])
@profile(max_examples=40)
@given(reward=st.floats(-1e6, 1e6, width=32), executions=st.lists(st.integers(0, 4), min_size=1, max_size=9))
def test_equal_rewards_have_no_advantage_at_all(estimator: Advantage, reward: float, executions: list[int]) -> None:
    """Exactly none, in float32 rewards of any size and with any fan-out."""
    reward = abs(reward) if isinstance(estimator, MaxRl) else reward
    found = estimator(batch_of([Scored(7, execution, reward) for execution in executions]))
    assert found.tolist() == [0.0] * len(executions)


@table(
    "settings, said",
    [
        ({"scale_rewards": "batch", "grpo_std_normalization": False}, "grpo_std_normalization is false"),
        ({"scale_rewards": "batch", "rewards_normalization": False}, "rewards_normalization is false"),
        ({"scale_rewards": "batch", "normalize_advantages": True}, "normalize_advantages scales all of them again"),
        ({"scale_rewards": "none"}, "grpo_std_normalization = false"),
        ({"scale_rewards": False}, "grpo_std_normalization = false"),
    ],
)
def test_a_scale_without_effect_is_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        GrpoSettings.model_validate(settings)


@table(
    "settings",
    [
        ReinforcePlusPlusSettings(gamma=0.9, normalize_advantages=False),
        ReinforcePlusPlusSettings(gamma=0.9),
        ReinforcePlusPlusBaselineSettings(),
    ],
)
@profile(max_examples=40)
@given(samples=SAMPLES, kl=st.randoms(use_true_random=False))
def test_the_kl_to_the_reference_comes_off_the_rewards_of_trained_tokens(
    settings: EstimatorSettings, samples: list[Scored], kl: random.Random
) -> None:
    penalties = [[bit * kl.uniform(-0.5, 1.0) for bit in sample.mask] for sample in samples]
    batch = replace(batch_of(samples), kl_penalty_T=torch.tensor([each for row in penalties for each in row]))
    found: list[float] = []
    for sample, row in zip(samples, penalties, strict=True):
        if isinstance(settings, ReinforcePlusPlusSettings):
            rewards = [-each for each in row]
            if any(sample.mask):
                rewards[max(place for place, bit in enumerate(sample.mask) if bit)] += sample.reward
            found += [
                math.fsum(settings.gamma ** (k - t) * rewards[k] for k in range(t, len(row))) for t in range(len(row))
            ]
        else:
            found += [centred(samples, sample) - each for each in row]
    expected = whitened(found, masks_of(samples)) if settings.normalize_advantages else found
    is_discounted = isinstance(settings, ReinforcePlusPlusSettings)
    estimator = ReinforcePlusPlus(settings) if is_discounted else ReinforcePlusPlusBaseline(settings)
    assert estimator(batch).tolist() == pytest.approx(expected, rel=1e-3, abs=1e-3)


# GDPO against a loop in float64; the parts of a reward that reach it; the soft penalty of overlong responses.


@dataclass(frozen=True)
class Parted:
    """A sample: its group, the parts of its reward, its tokens."""

    group: int
    parts: Mapping[str, float]
    tokens: int


VALUE = st.sampled_from([0.0, 1.0, 0.5, 100.0])
BY_REWARD = st.lists(
    st.builds(Parted, st.integers(0, 2), st.fixed_dictionaries({"a": VALUE, "b": VALUE}), st.integers(1, 4)),
    min_size=1,
    max_size=9,
)
WEIGHTS = {"a": 1.0, "b": -0.5}


def batch_of_rewards(samples: Sequence[Parted]) -> AdvantageInput:
    count = len(samples)
    return AdvantageInput(
        rewards_S=torch.zeros(count),
        group_index_S=torch.tensor([sample.group for sample in samples]),
        rollout_index_S=torch.arange(count),
        sample_index_T=torch.arange(count).repeat_interleave(torch.tensor([sample.tokens for sample in samples])),
        loss_mask_T=torch.ones(sum(sample.tokens for sample in samples)),
        columns_S={f"reward/{key}": torch.tensor([sample.parts[key] for sample in samples]) for key in WEIGHTS},
    )


def slow(samples: Sequence[Parted]) -> list[float]:
    found = []
    for sample in samples:
        total = 0.0
        for key, weight in WEIGHTS.items():
            rewards = [each.parts[key] for each in samples if each.group == sample.group]
            mean = math.fsum(rewards) / len(rewards)
            variance = math.fsum((each - mean) ** 2 for each in rewards) / max(1, len(rewards) - 1)
            total += weight * (sample.parts[key] - mean) / (math.sqrt(variance) + 1e-6)
        found += [total] * sample.tokens
    return found


@profile(max_examples=60)
@given(samples=BY_REWARD)
def test_it_is_the_sum_of_the_parts_each_relative_to_its_group(samples: list[Parted]) -> None:
    plain = Gdpo(GdpoSettings(reward_weights=WEIGHTS, normalize_advantages=False))(batch_of_rewards(samples))
    assert plain.tolist() == pytest.approx(slow(samples), rel=1e-5, abs=1e-5)
    values = slow(samples)
    assume(max(values) - min(values) > 0.02)
    expected = whitened(values, [1] * len(values))
    found = Gdpo(GdpoSettings(reward_weights=WEIGHTS))(batch_of_rewards(samples))
    assert found.tolist() == pytest.approx(expected, rel=1e-3, abs=1e-3)


def scored(reward: float | dict[str, float] | None, length: int = 2) -> Sample:
    return Sample(index=0, group_index=3, tokens=[1, *[2] * length], response_length=length, reward=reward)


def draw_of(*samples: Sample) -> Draw:
    return Draw([Group(GroupId("made", 0, 0, 0), list(samples))], [1.0])


def test_the_parts_are_columns_of_their_samples() -> None:
    preparation = Preparation(makers=[reward_columns(["math", "math/steps"])])
    samples = scored({"score": 1.5, "math": 1.0, "math/steps": 3.0}), scored(None)
    [group] = preparation.prepare(draw_of(*samples), rollout_id=0)
    assert [dict(each.columns_S) for each in group.samples] == [
        {"reward/math": 1.0, "reward/math/steps": 3.0},
        {"reward/math": 0.0, "reward/math/steps": 0.0},
    ]
    assert group.samples[0].reward == 1.5


@table("reward, has", [({"score": 1.0, "math": 1.0}, "it has score, math;"), (1.0, "it has the one number 1.0;")])
def test_a_part_that_is_not_there_is_named(reward: float | dict[str, float], has: str) -> None:
    preparation = Preparation(makers=[reward_columns(["formt"])])
    with pytest.raises(ContractError, match=f"sample 0 of group 3 has no part 'formt' .*{has}"):
        preparation.prepare(draw_of(scored(reward)), rollout_id=0)


@given(length=st.integers(0, 300), most=st.integers(1, 200), share=st.floats(0.01, 1.0))
def test_it_is_equation_13(length: int, most: int, share: float) -> None:
    cache = max(1, int(share * most))
    if length <= most - cache:
        expected = 0.0
    elif length <= most:
        expected = (most - cache - length) / cache
    else:
        expected = -1.0
    settings = OverlongSettings(max_response_len=most, overlong_buffer_len=cache)
    assert -Overlong(settings).penalty(length) == pytest.approx(expected)
    doubled = settings.model_copy(update={"overlong_penalty_factor": 2.0})
    assert -Overlong(doubled).penalty(length) == pytest.approx(2 * expected)


def test_the_shaper_leaves_samples_without_a_reward_alone() -> None:
    use = Overlong(OverlongSettings(max_response_len=4, overlong_buffer_len=2))
    draw = draw_of(scored(1.0, 2), scored(1.0, 3), scored(1.0, 9), scored(None, 9))
    assert use(draw.groups, ShapeContext(0, [[1.0, 1.0, 1.0, None]])) == [[1.0, 0.5, 0.0, None]]


@table("rewards", [[], [[1.0]], [[1.0, 1.0, 1.0]], [[1.0, 1.0], [1.0]]])
def test_the_shaper_refuses_rewards_that_are_not_its_samples(rewards: list[list[float | None]]) -> None:
    use = Overlong(OverlongSettings(max_response_len=4, overlong_buffer_len=2))
    with pytest.raises(ValueError, match="zip"):
        use(draw_of(scored(1.0), scored(1.0)).groups, ShapeContext(0, rewards))


def test_a_buffer_above_the_budget_is_refused() -> None:
    with pytest.raises(ValidationError, match="overlong_buffer_len = 9 is above max_response_len = 8"):
        OverlongSettings(max_response_len=8, overlong_buffer_len=9)


# MaxRL and GPG: refusals, and several ranks.


def test_a_reward_below_0_is_refused() -> None:
    with pytest.raises(ContractError, match=r"a reward is -0\.5: give rewards of 0 or more"):
        MaxRl(EstimatorSettings())(batch_of([Scored(0, 0, 1.0), Scored(0, 1, -0.5)]))


def test_gpg_counts_over_all_ranks() -> None:
    differs = batch_of([Scored(0, 0, 1.0), Scored(0, 1, 0.0)])
    beside = torch.tensor([6.0, 2.0], dtype=torch.float64)  # six rollouts elsewhere, of which two differ
    assert Gpg()(replace(differs, sum_over_ranks=lambda mine: mine + beside)).tolist() == [1.0, -1.0]


# The norm of a gradient: the number that float64 gives, however many there are.


@table("numel", [0, 1, CHUNK - 1, CHUNK, 3 * CHUNK + 5])
def test_it_is_the_norm_in_float64(numel: int) -> None:
    gradient = 1e-3 * torch.randn(numel, generator=torch.Generator().manual_seed(numel))
    assert gradient_norm(gradient) == pytest.approx(float(gradient.double().norm()), rel=1e-12, abs=1e-300)


def test_many_small_numbers_are_not_lost() -> None:
    """One sum of squares in float32 stops growing where a square is less than half its last bit."""
    gradient = torch.full((20_000_000,), 1e-3)
    assert gradient_norm(gradient) == pytest.approx(1e-3 * math.sqrt(20_000_000), rel=1e-6)
    assert float(gradient.norm()) != pytest.approx(1e-3 * math.sqrt(20_000_000), rel=1e-4)


def test_what_is_not_finite_stays_so() -> None:
    assert math.isnan(gradient_norm(torch.tensor([1.0, math.nan])))
    assert math.isinf(gradient_norm(torch.tensor([1.0, math.inf])))
