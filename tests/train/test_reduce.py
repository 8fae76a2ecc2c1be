"""Reduction against loops in float64: whole steps, and the same step cut into ranks and micro-batches."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slime_core.train.reduce import token_weights

TOKEN = st.tuples(st.integers(0, 1), st.floats(-2, 2))
SAMPLE = st.tuples(st.lists(TOKEN, max_size=6), st.sampled_from([1.0, 0.5, 2.0]))
STEP = st.lists(SAMPLE, min_size=1, max_size=8)
Samples = list[tuple[list[tuple[int, float]], float]]


def counts(samples: Samples) -> tuple[int, int]:
    trained = [sum(mask for mask, _ in tokens) for tokens, _ in samples]
    return sum(trained), sum(count > 0 for count in trained)


def reference(samples: Samples, per_token: bool) -> float:
    step_tokens, step_samples = counts(samples)
    total = 0.0
    for tokens, importance in samples:
        trained = [loss for mask, loss in tokens if mask]
        if not trained:
            continue
        if per_token:
            total += importance * sum(trained) / step_tokens
        else:
            total += importance * sum(trained) / len(trained) / step_samples
    return total


def reduced(samples: Samples, denominators: tuple[int, int], per_token: bool) -> float:
    flat = [(mask, loss, number) for number, (tokens, _) in enumerate(samples) for mask, loss in tokens]
    mask_T = torch.tensor([mask for mask, _, _ in flat], dtype=torch.float64)
    loss_T = torch.tensor([loss for _, loss, _ in flat], dtype=torch.float64)
    sample_T = torch.tensor([number for _, _, number in flat], dtype=torch.int64)
    importance_S = torch.tensor([importance for _, importance in samples], dtype=torch.float64)
    weight_T = token_weights(
        mask_T,
        sample_T,
        importance_S,
        step_tokens=denominators[0],
        step_samples=denominators[1],
        per_token=per_token,
    )
    return float((loss_T * weight_T).sum())


@pytest.mark.parametrize("per_token", [True, False])
@given(samples=STEP)
def test_it_is_the_mean(per_token: bool, samples: Samples) -> None:
    expected = reference(samples, per_token)
    assert reduced(samples, counts(samples), per_token) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("per_token", [True, False])
@given(samples=STEP, cut=st.integers(0, 8))
def test_the_parts_of_a_step_add_up_to_it(per_token: bool, samples: Samples, cut: int) -> None:
    parts = [part for part in (samples[:cut], samples[cut:]) if part]
    total = sum(reduced(part, counts(samples), per_token) for part in parts)
    assert total == pytest.approx(reference(samples, per_token), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("per_token", [True, False])
def test_a_step_without_a_trained_token_has_no_loss(per_token: bool) -> None:
    assert reduced([([(0, 5.0), (0, -1.0)], 1.0), ([], 1.0)], (0, 0), per_token) == 0.0


def test_a_long_sample_counts_as_one_or_by_its_tokens() -> None:
    samples: Samples = [([(1, 1.0)] * 9, 1.0), ([(1, 0.0)], 1.0)]
    assert reduced(samples, (10, 2), per_token=False) == pytest.approx(0.5)
    assert reduced(samples, (10, 2), per_token=True) == pytest.approx(0.9)
