"""SAPO, GMPO and DPPO against loops over ragged samples in float64; gradients against finite differences."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import settings as profile
from pydantic import ValidationError

from slime_algorithms import Divergence, DppoSettings, GmpoSettings, SapoSettings
from slime_algorithms.dppo import MIN_PROB, DppoLoss
from slime_algorithms.gmpo import GmpoLoss
from slime_algorithms.sapo import SapoLoss
from slime_core.roles import Loss
from slime_train import PolicyGradientSettings
from tests.tables import table
from tests.train.ragged import RESPONSES, Response, Token, loss_input

Responses = Sequence[Response]
STEP = 1e-6


def sapo(responses: Responses, settings: SapoSettings) -> list[float]:
    found = []
    for response in responses:
        tau = settings.tau_pos if response.advantage > 0 else settings.tau_neg
        for token in response.tokens:
            gate = 1 / (1 + math.exp(-tau * (math.exp(token.new - token.old) - 1)))
            found.append(-gate * 4 / tau * response.advantage)
    return found


def gmpo(responses: Responses, settings: GmpoSettings) -> list[float]:
    found = []
    for response in responses:
        sign = math.copysign(1.0, response.advantage)
        bounded = []
        for token in response.tokens:
            log_ratio = token.new - token.old
            clipped = max(-settings.eps_clip, min(settings.high, log_ratio))
            bounded += [sign * min(sign * log_ratio, sign * clipped)] * token.mask
        ratio = math.exp(math.fsum(bounded) / len(bounded)) if bounded else 1.0
        found += [-ratio * response.advantage] * len(response.tokens)
    return found


def divergence_of(token: Token, divergence: Divergence) -> float:
    sampler, policy = math.exp(token.rollout), math.exp(token.new)
    if divergence is Divergence.TV:
        return abs(sampler - policy)
    sampler_rest, policy_rest = max(1 - sampler, MIN_PROB), max(1 - policy, MIN_PROB)
    return sampler * math.log(sampler / policy) + sampler_rest * math.log(sampler_rest / policy_rest)


def dppo(responses: Responses, settings: DppoSettings) -> list[float]:
    found = []
    for response in responses:
        for token in response.tokens:
            ratio = math.exp(token.new - token.old)
            leaves = response.advantage * (token.new - token.rollout) > 0
            stopped = leaves and divergence_of(token, settings.divergence) > settings.limit
            found.append(0.0 if stopped else -min(ratio, settings.ratio_bound) * response.advantage)
    return found


CASES: list[tuple[Loss, Callable[[Responses], list[float]]]] = [
    (SapoLoss(SapoSettings()), lambda given: sapo(given, SapoSettings())),
    (SapoLoss(SapoSettings(tau_pos=3, tau_neg=7)), lambda given: sapo(given, SapoSettings(tau_pos=3, tau_neg=7))),
    (GmpoLoss(GmpoSettings()), lambda given: gmpo(given, GmpoSettings())),
    (
        GmpoLoss(GmpoSettings(eps_clip=0.05, eps_clip_high=0.1)),
        lambda given: gmpo(given, GmpoSettings(eps_clip=0.05, eps_clip_high=0.1)),
    ),
    (DppoLoss(DppoSettings()), lambda given: dppo(given, DppoSettings())),
    (DppoLoss(DppoSettings(delta=0.02)), lambda given: dppo(given, DppoSettings(delta=0.02))),
    (
        DppoLoss(DppoSettings(divergence=Divergence.KL)),
        lambda given: dppo(given, DppoSettings(divergence=Divergence.KL)),
    ),
]


@table("loss, slow", CASES)
@given(responses=RESPONSES)
def test_losses_match_their_formulas(
    loss: Loss, slow: Callable[[Responses], list[float]], responses: Responses
) -> None:
    assert loss(loss_input(responses)).loss_T.tolist() == pytest.approx(slow(responses), rel=1e-9, abs=1e-12)


def moved(responses: Responses, place: int, step: float) -> Responses:
    """The responses with one token's log-prob moved."""
    found, start = [], 0
    for response in responses:
        tokens = [replace(each, new=each.new + step * (start + at == place)) for at, each in enumerate(response.tokens)]
        found.append(replace(response, tokens=tokens))
        start += len(tokens)
    return found


def masked_sum(responses: Responses, losses: Sequence[float]) -> float:
    masks = [token.mask for response in responses for token in response.tokens]
    return math.fsum(loss * mask for loss, mask in zip(losses, masks, strict=True))


@table("loss, slow", CASES)
@profile(max_examples=40)
@given(responses=RESPONSES)
def test_gradients_match_finite_differences(
    loss: Loss, slow: Callable[[Responses], list[float]], responses: Responses
) -> None:
    batch = loss_input(responses)
    (loss(batch).loss_T * batch.loss_mask_T).sum().backward()
    assert batch.log_probs_T.grad is not None
    for place, found in enumerate(batch.log_probs_T.grad.tolist()):
        here = masked_sum(responses, slow(responses))
        up, down = (masked_sum(each, slow(each)) for each in (moved(responses, place, by) for by in (STEP, -STEP)))
        if (up - here) / STEP == pytest.approx((here - down) / STEP, rel=1e-3, abs=1e-4):  # else it is at a bound
            assert found == pytest.approx((up - down) / (2 * STEP), rel=1e-4, abs=1e-6)


@table("loss", [loss for loss, _ in CASES])
def test_on_policy_gradient_is_the_policy_gradient(loss: Loss) -> None:
    tokens = [Token(-1.5, -1.5, -1.5, 1, 0.0), Token(-0.2, -0.2, -0.2, 1, 0.0)]
    batch = loss_input([Response(1.5, tokens), Response(-0.5, tokens)])
    weight_T = torch.tensor([0.5, 0.5, 0.5, 0.5], dtype=torch.float64)  # the mean over each sample's tokens
    (loss(batch).loss_T * weight_T).sum().backward()
    assert batch.log_probs_T.grad is not None
    assert batch.log_probs_T.grad.tolist() == pytest.approx([-0.75, -0.75, 0.25, 0.25])


def test_ratio_is_bounded() -> None:
    grown = Token(new=-1.0, old=-9.0, rollout=-1.0, mask=1, entropy=0.0)
    batch = loss_input([Response(-1.0, [grown])])
    output = DppoLoss(DppoSettings(ratio_bound=5))(batch)
    output.loss_T.sum().backward()
    assert output.loss_T.tolist() == [5.0]
    assert batch.log_probs_T.grad is not None
    assert batch.log_probs_T.grad.tolist() == [5.0]


def test_certain_token_has_a_finite_divergence() -> None:
    sure = Token(new=-1e-30, old=-3.0, rollout=-3.0, mask=1, entropy=0.0)
    lost = Token(new=-3.0, old=0.0, rollout=0.0, mask=1, entropy=0.0)
    batch = loss_input([Response(-1.0, [sure, lost])])
    output = DppoLoss(DppoSettings(divergence=Divergence.KL))(batch)
    assert torch.isfinite(output.loss_T).all()
    assert output.metrics_T["pg_clipfrac"].tolist() == [0.0, 1.0]
    assert MIN_PROB > 0


@table(
    "settings, metrics",
    [
        (SapoLoss(SapoSettings(entropy_coef=0.1)), {"pg_loss", "ppo_kl", "entropy_loss"}),
        (GmpoLoss(GmpoSettings(entropy_coef=0.1)), {"pg_loss", "pg_clipfrac", "ppo_kl", "entropy_loss"}),
        (DppoLoss(DppoSettings(entropy_coef=0.1)), {"pg_loss", "pg_clipfrac", "ppo_kl", "entropy_loss"}),
    ],
)
def test_losses_have_entropy_bonus_and_metrics(settings: Loss, metrics: set[str]) -> None:
    output = settings(loss_input([Response(1.0, [Token(-1.0, -1.1, -1.1, 1, 2.0)])]))
    assert set(output.metrics_T) == metrics
    assert output.regularizer_T is not None
    assert output.regularizer_T.tolist() == pytest.approx([-0.2])


def test_useless_bounds_are_refused() -> None:
    with pytest.raises(ValidationError, match="a total variation is at most 1"):
        DppoSettings(delta=1.0)
    assert DppoSettings(divergence=Divergence.KL, delta=1.0).limit == 1.0
    assert issubclass(SapoSettings, PolicyGradientSettings)
