"""Estimators against references written as loops in float64, on ragged batches in any order, with fan-out and masks."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st
from pydantic import ValidationError

from slime_core.roles import Advantage, AdvantageInput
from slime_train.estimators.grpo import Grpo, GrpoSettings
from slime_train.estimators.reinforce_plus_plus import ReinforcePlusPlus, ReinforcePlusPlusSettings
from slime_train.estimators.reinforce_plus_plus_baseline import (
    ReinforcePlusPlusBaseline,
    ReinforcePlusPlusBaselineSettings,
)
from slime_train.estimators.rloo import Rloo
from slime_train.whitened import EstimatorSettings
from tests.tables import table


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
    return found


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
    return [0.0 if is_flat(samples, sample.group) else each for each, sample in zip(found, samples, strict=True)]


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


def whitened(samples: Sequence[Scored], values: Sequence[float]) -> list[float]:
    masks = [bit for sample in samples for bit in sample.mask]
    trained = [value for value, bit in zip(values, masks, strict=True) if bit]
    mean = math.fsum(trained) / max(1, len(trained))
    variance = math.fsum((value - mean) ** 2 for value in trained) / max(1, len(trained) - 1)
    return [(value - mean) / math.sqrt(variance + 1e-8) for value in values]


def reference_of(settings: EstimatorSettings, samples: Sequence[Scored]) -> list[float]:
    match settings:
        case GrpoSettings():
            values = spread(samples, grpo(samples, settings))
        case ReinforcePlusPlusSettings():
            values = discounted(samples, settings.gamma)
        case ReinforcePlusPlusBaselineSettings():
            values = spread(samples, [centred(samples, sample) for sample in samples])
        case _:
            values = spread(samples, rloo(samples))
    return whitened(samples, values) if settings.normalize_advantages else values


def estimator_of(settings: EstimatorSettings) -> Advantage:
    match settings:
        case GrpoSettings():
            return Grpo(settings)
        case ReinforcePlusPlusSettings():
            return ReinforcePlusPlus(settings)
        case ReinforcePlusPlusBaselineSettings():
            return ReinforcePlusPlusBaseline(settings)
        case _:
            return Rloo(settings)


SETTINGS = [
    GrpoSettings(),
    GrpoSettings(grpo_std_normalization=False),
    GrpoSettings(rewards_normalization=False),
    GrpoSettings(normalize_advantages=True),
    GrpoSettings(scale_rewards="batch"),
    EstimatorSettings(),
    EstimatorSettings(normalize_advantages=True),
    ReinforcePlusPlusSettings(),
    ReinforcePlusPlusSettings(gamma=0.9),
    ReinforcePlusPlusSettings(gamma=0.0, normalize_advantages=False),
    ReinforcePlusPlusSettings(gamma=0.5, normalize_advantages=False),
    ReinforcePlusPlusBaselineSettings(),
    ReinforcePlusPlusBaselineSettings(normalize_advantages=False),
]
BY_SETTINGS = table("settings", SETTINGS)


@BY_SETTINGS
@profile(max_examples=60)
@given(samples=SAMPLES)
def test_it_is_the_formula(settings: EstimatorSettings, samples: list[Scored]) -> None:
    found = estimator_of(settings)(batch_of(samples))
    assert found.dtype == torch.float32
    # Whitening of values that are nearly equal divides their rounding, 1e-7, by 1e-4.
    rounding = 3e-3 if settings.normalize_advantages else 1e-4
    assert found.tolist() == pytest.approx(reference_of(settings, samples), rel=1e-4, abs=rounding)


RELATIVE = [each for each in SETTINGS if not isinstance(each, ReinforcePlusPlusSettings) and each != SETTINGS[2]]


@table("settings", RELATIVE)
@profile(max_examples=40)
@given(reward=st.floats(-1e6, 1e6, width=32), executions=st.lists(st.integers(0, 4), min_size=1, max_size=9))
def test_equal_rewards_have_no_advantage_at_all(
    settings: EstimatorSettings, reward: float, executions: list[int]
) -> None:
    """Exactly none, in float32 rewards of any size and with any fan-out."""
    found = estimator_of(settings)(batch_of([Scored(7, execution, reward) for execution in executions]))
    assert found.tolist() == [0.0] * len(executions)


def advantages(estimator: Advantage, samples: list[tuple[int, float]]) -> list[float]:
    """Of samples of one token, each an execution of its own."""
    scored = [Scored(group, execution, reward) for execution, (group, reward) in enumerate(samples)]
    return estimator(batch_of(scored)).tolist()


def test_a_lone_sample_has_no_advantage_beside_full_groups() -> None:
    samples = [(0, 1.0), (1, 0.0), (1, 1.0)]
    root = math.sqrt(0.5)
    assert advantages(Grpo(GrpoSettings()), samples) == pytest.approx([0.0, -root, root], rel=1e-5)
    assert advantages(Rloo(EstimatorSettings()), samples) == [0.0, -1.0, 1.0]


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
    expected = whitened(samples, found) if settings.normalize_advantages else found
    assert estimator_of(settings)(batch).tolist() == pytest.approx(expected, rel=1e-3, abs=1e-3)
