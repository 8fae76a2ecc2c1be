"""Policy gradients and what they share, against loops over ragged samples and finite differences."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as profile

from slime_core.roles import Loss, Settings
from slime_train.losses import CispoLoss, GspoLoss, PolicyLoss, SftLoss, off_policy_sequences
from slime_train.settings import CispoSettings, ClippedSettings, GspoSettings, PolicyLossSettings
from tests.tables import table
from tests.train.ragged import RESPONSES, Response, Token, loss_input

Responses = Sequence[Response]
Expected = list[tuple[float, bool]]
"""Loss of each token, and whether its ratio was clipped."""


def mean_trained(values: Sequence[float], response: Response) -> float:
    """Mean of one number a token over the trained tokens of a response; 0 without any."""
    trained = [value for value, token in zip(values, response.tokens, strict=True) if token.mask]
    return math.fsum(trained) / len(trained) if trained else 0.0


def surrogate(ratio: float, advantage: float, low: float, high: float, dual: float | None) -> tuple[float, bool]:
    """Loss of one ratio, and whether the clip made it larger."""
    clipped = min(max(ratio, 1 - low), 1 + high)
    loss = -min(ratio * advantage, clipped * advantage)
    if dual is not None and advantage < 0:
        loss = min(loss, -dual * advantage)
    return loss, clipped * advantage < ratio * advantage


def policy(responses: Responses, settings: PolicyLossSettings, weights: Responses | None = None) -> Expected:
    limits = (settings.eps_clip, settings.high, settings.eps_clip_c)
    return [
        surrogate(math.exp(token.new - token.old), response.advantage, *limits)
        for response in responses
        for token in response.tokens
    ]


def gspo(responses: Responses, settings: GspoSettings, weights: Responses | None = None) -> Expected:
    limits = (settings.eps_clip, settings.high, settings.eps_clip_c)
    found: Expected = []
    for response in responses:
        ratio = math.exp(mean_trained([token.new - token.old for token in response.tokens], response))
        found += [surrogate(ratio, response.advantage, *limits)] * len(response.tokens)
    return found


def cispo(responses: Responses, settings: CispoSettings, weights: Responses | None = None) -> Expected:
    """The weight of each token is that of `weights`, where a derivative is taken: it is held constant."""
    found = []
    for response, held in zip(responses, weights or responses, strict=True):
        for token, constant in zip(response.tokens, held.tokens, strict=True):
            ratio = math.exp(constant.new - constant.old)
            weight = min(max(ratio, 1 - settings.eps_clip), 1 + settings.high)
            found.append((-weight * response.advantage * token.new, weight != ratio))
    return found


Row = tuple[Loss, ClippedSettings | CispoSettings, Callable[..., Expected]]
CLIPS = ({"eps_clip": 0.05, "eps_clip_high": 0.1}, {"eps_clip": 0.05, "eps_clip_high": 0.1, "eps_clip_c": 1.2})
POLICY = [PolicyLossSettings(), *(PolicyLossSettings(**clips) for clips in CLIPS)]
GSPO = [GspoSettings(), *(GspoSettings(**clips) for clips in CLIPS)]
CISPO = [CispoSettings(), CispoSettings(eps_clip=1.0, eps_clip_high=0.1), CispoSettings(eps_clip=0.1)]
FORMULAS: list[Row] = [
    *((PolicyLoss(each), each, policy) for each in POLICY),
    *((GspoLoss(each), each, gspo) for each in GSPO),
    *((CispoLoss(each), each, cispo) for each in CISPO),
]
EACH = table("loss, settings, formula", FORMULAS)


@EACH
@given(responses=RESPONSES)
def test_each_loss_is_its_formula(
    loss: Loss, settings: Settings, formula: Callable[..., Expected], responses: Responses
) -> None:
    output, expected = loss(loss_input(responses)), formula(responses, settings)
    assert output.loss_T.tolist() == pytest.approx([loss for loss, _ in expected], rel=1e-9, abs=1e-12)
    assert output.metrics_T["pg_clipfrac"].tolist() == [float(clipped) for _, clipped in expected]
    assert torch.equal(output.metrics_T["pg_loss"], output.loss_T)
    kl = []
    for response in responses:
        apart = [token.old - token.new for token in response.tokens]
        kl += [mean_trained(apart, response)] * len(apart) if formula is gspo else apart
    assert output.metrics_T["ppo_kl"].tolist() == pytest.approx(kl, rel=1e-9, abs=1e-12)


@given(responses=RESPONSES)
def test_the_sft_loss_is_the_negative_log_likelihood(responses: Responses) -> None:
    batch = loss_input(responses)
    output = SftLoss()(batch)
    output.loss_T.sum().backward()
    assert output.loss_T.tolist() == [-token.new for response in responses for token in response.tokens]
    assert list(output.metrics_T) == ["entropy_loss"]
    assert output.metrics_T["entropy_loss"] is batch.entropy_T
    assert output.regularizer_T is None
    assert batch.log_probs_T.grad is not None
    assert set(batch.log_probs_T.grad.tolist()) == {-1.0}


def moved(responses: Responses, place: int, step: float) -> Responses:
    """The responses with one token's log-prob moved."""
    found, start = [], 0
    for response in responses:
        tokens = [
            replace(token, new=token.new + step * (start + number == place))
            for number, token in enumerate(response.tokens)
        ]
        found.append(replace(response, tokens=tokens))
        start += len(tokens)
    return found


@EACH
@profile(max_examples=40)
@given(responses=RESPONSES)
def test_each_gradient_is_that_of_finite_differences(
    loss: Loss, settings: ClippedSettings, formula: Callable[..., Expected], responses: Responses
) -> None:
    """GSPO's reaches every trained token of a sample. CISPO's weight is constant, and a clipped token still learns."""
    ratios: list[float] = []
    for response in responses:
        apart = [token.new - token.old for token in response.tokens]
        ratios += [math.exp(mean_trained(apart, response))] if formula is gspo else map(math.exp, apart)
    if formula is not cispo:
        corners = [1 - settings.eps_clip, 1 + settings.high, settings.eps_clip_c or 9.0]
        assume(all(abs(ratio - corner) > 1e-4 for ratio in ratios for corner in corners))
    batch, step = loss_input(responses), 1e-6
    masks = batch.loss_mask_T.tolist()
    (loss(batch).loss_T * batch.loss_mask_T).sum().backward()
    assert batch.log_probs_T.grad is not None
    for place, found in enumerate(batch.log_probs_T.grad.tolist()):
        above, below = (
            math.fsum(each * mask for (each, _), mask in zip(formula(there, settings, responses), masks, strict=True))
            for there in (moved(responses, place, step), moved(responses, place, -step))
        )
        assert found == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-6)


LOSSES: list[tuple[str, Callable[..., Loss]]] = [
    ("policy_loss", lambda **settings: PolicyLoss(PolicyLossSettings(**settings))),
    ("gspo", lambda **settings: GspoLoss(GspoSettings(**settings))),
    ("cispo", lambda **settings: CispoLoss(CispoSettings(**settings))),
]


@table("name, make", LOSSES)
@profile(max_examples=40)
@given(responses=RESPONSES)
def test_opsm_masks_what_has_a_negative_advantage_and_drifted(
    name: str, make: Callable[..., Loss], responses: Responses
) -> None:
    plain, masked = make()(loss_input(responses)), make(use_opsm=True, opsm_delta=0.05)(loss_input(responses))
    drifts = [mean_trained([each.rollout - each.new for each in it.tokens], it) for it in responses]
    assume(all(abs(drift - 0.05) > 1e-9 for drift in drifts))
    out = [
        float(response.advantage < 0 and drift > 0.05)
        for response, drift in zip(responses, drifts, strict=True)
        for _ in response.tokens
    ]
    kept = [loss * (1 - gone) for loss, gone in zip(plain.loss_T.tolist(), out, strict=True)]
    assert masked.loss_T.tolist() == kept
    assert masked.metrics_T["opsm_clipfrac"].tolist() == out
    assert masked.metrics_T["pg_loss"].tolist() == kept
    assert "opsm_clipfrac" not in plain.metrics_T


def test_a_drift_of_exactly_delta_is_kept_and_no_gradient_flows_through_the_mask() -> None:
    batch = loss_input([Response(-1.0, [Token(-1.0, -1.0, -0.5, 1, 0.0)])])
    assert off_policy_sequences(batch, 0.5).tolist() == [0.0]
    assert off_policy_sequences(batch, 0.49).tolist() == [1.0]
    assert not off_policy_sequences(batch, 0.49).requires_grad


@table("name, make", LOSSES)
@profile(max_examples=20)
@given(responses=RESPONSES)
def test_the_entropy_bonus_is_apart_from_what_a_correction_weighs(
    name: str, make: Callable[..., Loss], responses: Responses
) -> None:
    batch = loss_input(responses)
    output = make(entropy_coef=0.25)(batch)
    assert output.regularizer_T is not None
    assert output.regularizer_T.tolist() == [-0.25 * entropy for entropy in batch.entropy_T.tolist()]
    assert output.loss_T.tolist() == make()(batch).loss_T.tolist()
    output.regularizer_T.sum().backward()
    assert batch.entropy_T.grad is not None
    assert set(batch.entropy_T.grad.tolist()) == {-0.25}
    assert make()(batch).regularizer_T is None
    assert output.metrics_T["entropy_loss"] is batch.entropy_T
