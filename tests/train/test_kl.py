"""KL terms against loops in float64 and finite differences; and what each estimator's gradient is in expectation."""

import math
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from slime_core.roles import KlType, Reference
from slime_train.algorithm import approximate_kl, kl_loss
from tests.tables import table

KINDS: tuple[KlType, ...] = get_args(KlType)
BY_KIND = table("kind", KINDS)
LOG_PROB = st.floats(-15, -0.01)
TOKENS = st.lists(st.tuples(LOG_PROB, LOG_PROB, LOG_PROB), min_size=1, max_size=8)


def column(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def reference_of(kind: KlType, *, unbiased: bool = False) -> Reference:
    return Reference(Path("m"), use_kl_loss=True, kl_loss_coef=1.0, kl_loss_type=kind, use_unbiased_kl=unbiased)


def slow(new: float, other: float, kind: str) -> float:
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
@given(tokens=TOKENS)
def test_it_is_the_formula_and_its_gradient(
    kind: KlType, unbiased: bool, tokens: list[tuple[float, float, float]]
) -> None:
    def one(new: float, other: float, rollout: float) -> float:
        return slow(new, other, kind.removesuffix("+")) * (math.exp(new - rollout) if unbiased else 1.0)

    def slope(new: float, other: float, rollout: float) -> float:
        """By finite differences; with a plus that of k2, the ratio held."""
        step = 1e-6
        if kind.endswith("+"):
            ratio = math.exp(new - rollout) if unbiased else 1.0
            return ratio * (slow(new + step, other, "k2") - slow(new - step, other, "k2")) / (2 * step)
        return (one(new + step, other, rollout) - one(new - step, other, rollout)) / (2 * step)

    assume(all(abs(slow(new, other, "k3") - 10.0) > 1e-3 for new, other, _ in tokens))
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


def expectations(kind: KlType, *, unbiased: bool) -> tuple[float, torch.Tensor, float, torch.Tensor]:
    """Of a categorical policy whose tokens another sampler drew: the estimate and its gradient, and the KL and its."""
    draw = torch.Generator().manual_seed(0)
    logits, other, sampler = torch.randn(3, 5, generator=draw, dtype=torch.float64)
    logits.requires_grad_()
    if not unbiased:
        sampler = logits.detach()
    new, ref, old = logits.log_softmax(0), other.log_softmax(0), sampler.log_softmax(0)
    estimate = (old.exp() * kl_loss(new, ref, old, reference_of(kind, unbiased=unbiased))).sum()
    exact = (new.exp() * (new - ref)).sum()
    (found,) = torch.autograd.grad(estimate, logits, retain_graph=True)
    (wanted,) = torch.autograd.grad(exact, logits)
    return estimate.item(), found, exact.item(), wanted


@table("kind", ["k1", "k3", "k1+", "k3+"])
def test_weighed_by_the_ratio_k1_and_k3_are_unbiased_value_and_gradient(kind: KlType) -> None:
    value, gradient, exact, wanted = expectations(kind, unbiased=True)
    assert value == pytest.approx(exact)
    torch.testing.assert_close(gradient, wanted)


@table("kind", ["k1+", "k3+"])
def test_with_a_plus_value_and_gradient_are_those_of_the_kl_on_policy(kind: KlType) -> None:
    value, gradient, exact, wanted = expectations(kind, unbiased=False)
    assert value == pytest.approx(exact)
    torch.testing.assert_close(gradient, wanted)


def test_on_policy_only_k2_has_the_gradient_of_the_kl_and_k1_has_none() -> None:
    _, gradient, _, wanted = expectations("k2", unbiased=False)
    torch.testing.assert_close(gradient, wanted)
    assert expectations("k1", unbiased=False)[1].abs().max() < 1e-12
    _, gradient, _, wanted = expectations("k3", unbiased=False)
    assert (gradient - wanted).abs().max() > 1e-2
