"""Losses against references written as loops in float64, and their gradients against finite differences."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from slime_core.roles import LossInput
from slime_train.losses import PolicyLoss, SftLoss
from slime_train.settings import PolicyLossSettings
from tests.tables import table

LOG_PROB = st.floats(-6, -0.01)
TOKENS = st.lists(
    st.tuples(LOG_PROB, LOG_PROB, st.sampled_from([0.0, 1.3]) | st.floats(-3, 3)), min_size=1, max_size=12
)
SETTINGS = [
    PolicyLossSettings(),
    PolicyLossSettings(eps_clip=0.1, eps_clip_high=0.4),
    PolicyLossSettings(eps_clip=0.2, eps_clip_high=0.28, eps_clip_c=3.0),
]


def column(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def loss_input(tokens: list[tuple[float, float, float]], log_probs: torch.Tensor | None = None) -> LossInput:
    new, old, advantage = (column(list(each)) for each in zip(*tokens, strict=True))
    return LossInput(
        log_probs_T=new if log_probs is None else log_probs,
        old_log_probs_T=old,
        rollout_log_probs_T=old,
        advantages_T=advantage,
        loss_mask_T=torch.ones(len(tokens), dtype=torch.float64),
        entropy_T=torch.full((len(tokens),), 0.7, dtype=torch.float64),
        sample_index_T=torch.zeros(len(tokens), dtype=torch.int64),
    )


def reference(new: float, old: float, advantage: float, settings: PolicyLossSettings) -> tuple[float, bool]:
    """Loss of one token, and whether the clip made it larger."""
    high = settings.eps_clip if settings.eps_clip_high is None else settings.eps_clip_high
    ratio = math.exp(new - old)
    clipped = min(max(ratio, 1 - settings.eps_clip), 1 + high)
    loss = -min(ratio * advantage, clipped * advantage)
    is_clipped = clipped * advantage < ratio * advantage
    if settings.eps_clip_c is not None and advantage < 0:
        loss = min(loss, -settings.eps_clip_c * advantage)
    return loss, is_clipped


@table("settings", SETTINGS)
@given(tokens=TOKENS)
def test_the_policy_loss_is_the_formula(settings: PolicyLossSettings, tokens: list[tuple[float, float, float]]) -> None:
    output = PolicyLoss(settings)(loss_input(tokens))
    expected = [reference(*token, settings) for token in tokens]
    assert output.loss_T.tolist() == pytest.approx([loss for loss, _ in expected], rel=1e-9, abs=1e-12)
    assert output.metrics_T["pg_clipfrac"].tolist() == [float(clipped) for _, clipped in expected]


@table("settings", SETTINGS)
@given(tokens=TOKENS)
def test_the_gradient_is_that_of_finite_differences(
    settings: PolicyLossSettings, tokens: list[tuple[float, float, float]]
) -> None:
    high = settings.eps_clip if settings.eps_clip_high is None else settings.eps_clip_high
    corners = [1 - settings.eps_clip, 1 + high, settings.eps_clip_c or 1e9]
    assume(all(abs(math.exp(new - old) - corner) > 1e-4 for new, old, _ in tokens for corner in corners))
    new = column([each[0] for each in tokens]).requires_grad_()
    PolicyLoss(settings)(loss_input(tokens, new)).loss_T.sum().backward()
    step = 1e-6
    for place, (value, old, advantage) in enumerate(tokens):
        above, below = (reference(value + shift, old, advantage, settings)[0] for shift in (step, -step))
        assert new.grad is not None
        assert new.grad[place].item() == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-6)


def test_the_metrics_are_slimes() -> None:
    output = PolicyLoss(PolicyLossSettings())(loss_input([(-1.0, -1.5, 1.0), (-2.0, -1.0, 1.0)]))
    assert output.metrics_T["ppo_kl"].tolist() == [-0.5, 1.0]
    assert output.metrics_T["entropy_loss"].tolist() == [0.7, 0.7]
    assert torch.equal(output.metrics_T["pg_loss"], output.loss_T)


@given(tokens=TOKENS)
def test_the_sft_loss_is_the_negative_log_likelihood(tokens: list[tuple[float, float, float]]) -> None:
    new = column([each[0] for each in tokens]).requires_grad_()
    output = SftLoss()(loss_input(tokens, new))
    loss_T = output.loss_T
    loss_T.sum().backward()
    assert loss_T.tolist() == [-each[0] for each in tokens]
    assert {name: values_T.tolist() for name, values_T in output.metrics_T.items()} == {
        "entropy_loss": [0.7] * len(tokens)
    }
    assert output.regularizer_T is None
    assert new.grad is not None
    assert set(new.grad.tolist()) == {-1.0}
