"""PPO's advantages, the value loss and the KL to the reference, against loops."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from slime_core.errors import ContractError
from slime_core.roles import AdvantageInput, KlType, Reference
from slime_train.algorithm import approximate_kl, kl_loss
from slime_train.estimators.ppo import Ppo, PpoSettings
from slime_train.losses import value_loss
from tests.tables import table
from tests.train.ragged import whitened


def column(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# GAE and the value loss against loops in float64; on ragged samples with masks in the middle, on any ranks.


@dataclass(frozen=True)
class Token:
    """One response token."""

    mask: int
    value: float
    penalty: float


@dataclass(frozen=True)
class Valued:
    """One sample."""

    reward: float
    tokens: Sequence[Token]


NUMBER = st.floats(-3, 3, width=32)
SAMPLES = st.lists(
    st.builds(Valued, NUMBER, st.lists(st.builds(Token, st.integers(0, 1), NUMBER, NUMBER), max_size=9)),
    min_size=1,
    max_size=5,
)


def batch_of(samples: Sequence[Valued]) -> AdvantageInput:
    tokens = [token for sample in samples for token in sample.tokens]
    count = len(samples)
    return AdvantageInput(
        rewards_S=torch.tensor([sample.reward for sample in samples]),
        group_index_S=torch.arange(count),
        rollout_index_S=torch.arange(count),
        sample_index_T=torch.tensor(
            [number for number, sample in enumerate(samples) for _ in sample.tokens], dtype=torch.int64
        ),
        loss_mask_T=torch.tensor([float(token.mask) for token in tokens]),
        values_T=torch.tensor([token.value for token in tokens]),
        kl_penalty_T=torch.tensor([token.penalty * token.mask for token in tokens]),
    )


def slow(samples: Sequence[Valued], gamma: float, lambd: float) -> tuple[list[float], list[float]]:
    """Advantages and returns, by the double sum over the trained tokens of each sample."""
    advantages, returns = [], []
    for sample in samples:
        trained = [place for place, token in enumerate(sample.tokens) if token.mask]
        rewards = {place: -sample.tokens[place].penalty for place in trained}
        if trained:
            rewards[trained[-1]] += sample.reward
        values = [sample.tokens[place].value for place in trained] + [0.0]
        deltas = [rewards[place] + gamma * values[i + 1] - values[i] for i, place in enumerate(trained)]
        for place, token in enumerate(sample.tokens):
            if not token.mask:
                advantages.append(0.0)
                returns.append(0.0)
                continue
            i = trained.index(place)
            advantage = math.fsum((gamma * lambd) ** k * deltas[i + k] for k in range(len(trained) - i))
            advantages.append(advantage)
            returns.append(advantage + token.value)
    return advantages, returns


DISCOUNTS = table("gamma, lambd", [(1.0, 1.0), (0.9, 0.8), (1.0, 0.0), (0.0, 1.0)])


@DISCOUNTS
@profile(max_examples=60)
@given(samples=SAMPLES)
def test_it_is_the_double_sum(gamma: float, lambd: float, samples: list[Valued]) -> None:
    estimator = Ppo(PpoSettings(gamma=gamma, lambd=lambd, normalize_advantages=False))
    advantages, returns = slow(samples, gamma, lambd)
    assert (estimator(batch_of(samples)).dtype, estimator.returns(batch_of(samples)).dtype) == (torch.float32,) * 2
    assert estimator(batch_of(samples)).tolist() == pytest.approx(advantages, rel=1e-5, abs=1e-5)
    assert estimator.returns(batch_of(samples)).tolist() == pytest.approx(returns, rel=1e-5, abs=1e-5)


@profile(max_examples=40)
@given(samples=SAMPLES)
def test_whitened_it_has_the_moments_of_the_trained_tokens(samples: list[Valued]) -> None:
    advantages, _ = slow(samples, 0.9, 0.8)
    masks = [token.mask for sample in samples for token in sample.tokens]
    expected = [each * mask for each, mask in zip(whitened(advantages, masks), masks, strict=True)]
    trained = {each for each, mask in zip(advantages, masks, strict=True) if mask}
    assume(not trained or max(trained) - min(trained) > 0.02)
    found = Ppo(PpoSettings(gamma=0.9, lambd=0.8))(batch_of(samples))
    assert found.tolist() == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_without_a_critic_it_says_so() -> None:
    batch = replace(batch_of([Valued(1.0, [Token(1, 0.0, 0.0)])]), values_T=None)
    with pytest.raises(ContractError, match="given no values_T"):
        Ppo(PpoSettings())(batch)


VALUES = st.lists(st.tuples(NUMBER, NUMBER, NUMBER), min_size=1, max_size=8)


@table("clip", [0.2, 1.0])
@given(tokens=VALUES)
def test_the_value_loss_is_the_formula_and_its_gradient(clip: float, tokens: list[tuple[float, float, float]]) -> None:
    def one(value: float, old: float, target: float) -> float:
        held = old + min(max(value - old, -clip), clip)
        return max((value - target) ** 2, (held - target) ** 2)

    for value, old, target in tokens:
        held = old + min(max(value - old, -clip), clip)
        corners = (abs(value - old) - clip, abs(value - target) - abs(held - target) if held != value else 1.0)
        assume(all(abs(each) > 1e-4 for each in corners))
    value, old, target = (torch.tensor(list(each), dtype=torch.float64) for each in zip(*tokens, strict=True))
    value.requires_grad_()
    loss, clipped = value_loss(value, old, target, clip)
    assert loss.tolist() == pytest.approx([one(*token) for token in tokens], rel=1e-9, abs=1e-12)
    assert clipped.tolist() == [float(abs(v - o) > clip) for v, o, _ in tokens]
    loss.sum().backward()
    assert value.grad is not None
    step = 1e-6
    slopes = [(one(v + step, o, r) - one(v - step, o, r)) / (2 * step) for v, o, r in tokens]
    assert value.grad.tolist() == pytest.approx(slopes, rel=1e-4, abs=1e-6)


@table("dtype", [torch.float32, torch.float64])
def test_a_value_that_moved_by_just_the_clip_is_not_held(dtype: torch.dtype) -> None:
    value, old = torch.tensor([0.25, -0.25, 0.5], dtype=dtype), torch.zeros(3, dtype=dtype)
    loss, clipped = value_loss(value, old, old + 1, 0.25)
    assert clipped.tolist() == [0.0, 0.0, 1.0]
    assert (loss.dtype, clipped.dtype) == (dtype, dtype)


# KL terms against loops in float64 and finite differences; and what each estimator's gradient is in expectation.

KINDS: tuple[KlType, ...] = get_args(KlType)
BY_KIND = table("kind", KINDS)
LOG_PROB_OF_KL = st.floats(-15, -0.01)
TOKENS_KL = st.lists(st.tuples(LOG_PROB_OF_KL, LOG_PROB_OF_KL, LOG_PROB_OF_KL), min_size=1, max_size=8)


def reference_of(kind: KlType, *, unbiased: bool = False) -> Reference:
    return Reference(Path("m"), use_kl_loss=True, kl_loss_coef=1.0, kl_loss_type=kind, use_unbiased_kl=unbiased)


def slow_kl(new: float, other: float, kind: str) -> float:
    ratio = math.exp(other - new)
    match kind:
        case "k1":
            return new - other
        case "k2":
            return 0.5 * (new - other) ** 2
        case "k3":
            return ratio - 1 - math.log(ratio)
        case _:
            return min(10.0, ratio - 1 - math.log(ratio))


@BY_KIND
@table("unbiased", [False, True])
@given(tokens=TOKENS_KL)
def test_it_is_the_formula_and_its_gradient(
    kind: KlType, unbiased: bool, tokens: list[tuple[float, float, float]]
) -> None:
    def one(new: float, other: float, rollout: float) -> float:
        return slow_kl(new, other, kind.removesuffix("+")) * (math.exp(new - rollout) if unbiased else 1.0)

    def slope(new: float, other: float, rollout: float) -> float:
        """By finite differences; with a plus that of k2, the ratio held."""
        step = 1e-6
        if kind.endswith("+"):
            ratio = math.exp(new - rollout) if unbiased else 1.0
            return ratio * (slow_kl(new + step, other, "k2") - slow_kl(new - step, other, "k2")) / (2 * step)
        return (one(new + step, other, rollout) - one(new - step, other, rollout)) / (2 * step)

    assume(all(abs(slow_kl(new, other, "k3") - 10.0) > 1e-3 for new, other, _ in tokens))
    new, other, rollout = (column(list(each)) for each in zip(*tokens, strict=True))
    new.requires_grad_()
    loss = kl_loss(new, other, rollout, reference_of(kind, unbiased=unbiased))
    assert loss.tolist() == pytest.approx([one(*token) for token in tokens], rel=1e-9, abs=1e-9)
    loss.sum().backward()
    assert new.grad is not None
    for found, token in zip(new.grad.tolist(), tokens, strict=True):
        rounding = 1e-5 + 1e-9 * abs(one(*token))  # of the differences
        assert found == pytest.approx(slope(*token), rel=1e-4, abs=rounding)


@BY_KIND
def test_equal_models_have_no_divergence(kind: KlType) -> None:
    same = column([-0.1, -5.0])
    assert approximate_kl(same, same, kind).tolist() == [0.0, 0.0]
