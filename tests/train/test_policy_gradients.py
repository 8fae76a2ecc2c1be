"""GSPO, CISPO and what all policy gradients share, against loops over ragged samples and finite differences."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as profile

from slime_core.roles import Loss, LossOutput
from slime_train.checks import check_loss
from slime_train.losses import CispoLoss, GspoLoss, PolicyLoss, off_policy_sequences
from slime_train.settings import CispoSettings, GspoSettings, PolicyLossSettings
from tests.tables import table
from tests.train.ragged import RESPONSES, Response, Token, loss_input

Responses = Sequence[Response]


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


def gspo(responses: Responses, settings: GspoSettings) -> list[tuple[float, bool]]:
    found = []
    for response in responses:
        ratio = math.exp(mean_trained([token.new - token.old for token in response.tokens], response))
        assert settings.eps_clip_high is not None
        limits = (settings.eps_clip, settings.eps_clip_high, settings.eps_clip_c)
        found += [surrogate(ratio, response.advantage, *limits)] * len(response.tokens)
    return found


def cispo(responses: Responses, settings: CispoSettings, weights: Responses | None = None) -> list[tuple[float, bool]]:
    """The weight of each token is that of `weights`, where a derivative is taken: it is held constant."""
    high = settings.eps_clip if settings.eps_clip_high is None else settings.eps_clip_high
    found = []
    for response, held in zip(responses, weights or responses, strict=True):
        for token, constant in zip(response.tokens, held.tokens, strict=True):
            ratio = math.exp(constant.new - constant.old)
            weight = min(max(ratio, 1 - settings.eps_clip), 1 + high)
            found.append((-weight * response.advantage * token.new, weight != ratio))
    return found


GSPO = [
    GspoSettings(),
    GspoSettings(eps_clip=0.05, eps_clip_high=0.1),
    GspoSettings(eps_clip=0.05, eps_clip_high=0.1, eps_clip_c=1.2),
]
CISPO = [CispoSettings(), CispoSettings(eps_clip=1.0, eps_clip_high=0.1), CispoSettings(eps_clip=0.1)]


def assert_is(output: LossOutput, expected: list[tuple[float, bool]]) -> None:
    assert output.loss_T.tolist() == pytest.approx([loss for loss, _ in expected], rel=1e-9, abs=1e-12)
    assert output.metrics_T["pg_clipfrac"].tolist() == [float(clipped) for _, clipped in expected]


@table("settings", GSPO)
@given(responses=RESPONSES)
def test_gspo_is_the_formula(settings: GspoSettings, responses: Responses) -> None:
    output = GspoLoss(settings)(loss_input(responses))
    assert_is(output, gspo(responses, settings))
    kl = [
        mean_trained([token.old - token.new for token in response.tokens], response)
        for response in responses
        for _ in response.tokens
    ]
    assert output.metrics_T["ppo_kl"].tolist() == pytest.approx(kl, rel=1e-9, abs=1e-12)


@table("settings", CISPO)
@given(responses=RESPONSES)
def test_cispo_is_the_formula(settings: CispoSettings, responses: Responses) -> None:
    output = CispoLoss(settings)(loss_input(responses))
    assert_is(output, cispo(responses, settings))
    kl = [token.old - token.new for response in responses for token in response.tokens]
    assert output.metrics_T["ppo_kl"].tolist() == pytest.approx(kl)


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


def assert_gradient(loss: Loss, responses: Responses, total: Callable[[Responses], float]) -> None:
    """The gradient of the masked sum is that of finite differences of `total`."""
    batch = loss_input(responses)
    (loss(batch).loss_T * batch.loss_mask_T).sum().backward()
    assert batch.log_probs_T.grad is not None
    step = 1e-6
    for place, found in enumerate(batch.log_probs_T.grad.tolist()):
        slope = (total(moved(responses, place, step)) - total(moved(responses, place, -step))) / (2 * step)
        assert found == pytest.approx(slope, rel=1e-4, abs=1e-6)


def masked_sum(responses: Responses, losses: list[tuple[float, bool]]) -> float:
    masks = [token.mask for response in responses for token in response.tokens]
    return math.fsum(loss * mask for (loss, _), mask in zip(losses, masks, strict=True))


@table("settings", GSPO)
@profile(max_examples=40)
@given(responses=RESPONSES)
def test_gspos_gradient_reaches_every_trained_token_of_the_sample(settings: GspoSettings, responses: Responses) -> None:
    assert settings.eps_clip_high is not None
    corners = [1 - settings.eps_clip, 1 + settings.eps_clip_high, settings.eps_clip_c or 9.0]
    ratios = [math.exp(mean_trained([each.new - each.old for each in it.tokens], it)) for it in responses]
    assume(all(abs(ratio - corner) > 1e-4 for ratio in ratios for corner in corners))
    assert_gradient(GspoLoss(settings), responses, lambda each: masked_sum(each, gspo(each, settings)))


@table("settings", CISPO)
@profile(max_examples=40)
@given(responses=RESPONSES)
def test_cispos_weight_is_constant_and_a_clipped_token_still_learns(
    settings: CispoSettings, responses: Responses
) -> None:
    assert_gradient(CispoLoss(settings), responses, lambda each: masked_sum(each, cispo(each, settings, responses)))


def test_on_one_token_gspo_is_the_policy_loss() -> None:
    tokens = [Response(advantage, [Token(-1.0, old, -1.0, 1, 0.5)]) for advantage in (1.0, -1.0) for old in (-1.5, -1)]
    limits = {"eps_clip": 0.1, "eps_clip_high": 0.2}
    one = GspoLoss(GspoSettings(**limits))(loss_input(tokens))
    other = PolicyLoss(PolicyLossSettings(**limits))(loss_input(tokens))
    assert one.loss_T.tolist() == pytest.approx(other.loss_T.tolist())


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


FLOATS = ("log_probs_T", "old_log_probs_T", "rollout_log_probs_T", "advantages_T", "loss_mask_T", "entropy_T")


@table("dtype", [torch.float32, torch.float64])
@table("name, make", LOSSES)
def test_the_cores_own_losses_keep_their_contract(name: str, make: Callable[..., Loss], dtype: torch.dtype) -> None:
    wide = loss_input([Response(-1.0, [Token(-1.0, -1.5, -0.5, 1, 0.5)]), Response(1.0, [Token(-1.0, -3.0, -1, 1, 0)])])
    columns = {key: getattr(wide, key).to(dtype) for key in FLOATS}
    output = make(use_opsm=True, entropy_coef=0.1)(replace(wide, **columns))
    assert check_loss(output, plugin="slime-core", tokens=2) is output
    assert output.regularizer_T is not None
    assert {each.dtype for each in (output.loss_T, output.regularizer_T, *output.metrics_T.values())} == {dtype}
