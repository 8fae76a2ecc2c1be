"""Ragged micro-batches for the tests of losses: samples of several lengths with masks, tensors and plain numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from slime_core.roles import LossInput


@dataclass(frozen=True)
class Token:
    """One response token."""

    new: float
    old: float
    rollout: float
    mask: int
    entropy: float


@dataclass(frozen=True)
class Response:
    """One sample."""

    advantage: float
    tokens: Sequence[Token]


LOG_PROB = st.floats(-6, -0.01)
NEAR = st.floats(-0.4, 0.4)
TOKEN = st.builds(
    lambda new, drift, far, mask, entropy: Token(new, new + drift, new + far, mask, entropy),
    LOG_PROB,
    NEAR,
    NEAR,
    st.integers(0, 1),
    st.floats(0, 4),
)
RESPONSES = st.lists(
    st.builds(Response, st.sampled_from([0.0, 1.3, -0.7]) | st.floats(-3, 3), st.lists(TOKEN, max_size=5)),
    min_size=1,
    max_size=5,
).filter(lambda responses: bool(responses[-1].tokens))


def loss_input(responses: Sequence[Response], log_probs_T: torch.Tensor | None = None) -> LossInput:
    """The responses as one micro-batch in float64; `log_probs_T` and the entropy take a gradient."""
    tokens = [token for response in responses for token in response.tokens]

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)

    return LossInput(
        log_probs_T=column([token.new for token in tokens]).requires_grad_() if log_probs_T is None else log_probs_T,
        old_log_probs_T=column([token.old for token in tokens]),
        rollout_log_probs_T=column([token.rollout for token in tokens]),
        advantages_T=column([response.advantage for response in responses for _ in response.tokens]),
        loss_mask_T=column([float(token.mask) for token in tokens]),
        entropy_T=column([token.entropy for token in tokens]).requires_grad_(),
        sample_index_T=torch.tensor([number for number, each in enumerate(responses) for _ in each.tokens]),
    )


def whitened(values: Sequence[float], masks: Sequence[int]) -> list[float]:
    """Values minus their mean over masked tokens, over their standard deviation."""
    trained = [value for value, bit in zip(values, masks, strict=True) if bit]
    mean = math.fsum(trained) / max(1, len(trained))
    variance = math.fsum((value - mean) ** 2 for value in trained) / max(1, len(trained) - 1)
    return [(value - mean) / math.sqrt(variance + 1e-8) for value in values]
