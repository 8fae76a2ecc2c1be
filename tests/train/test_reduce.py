"""Reduction against loops in float64: whole steps, and the same step cut into ranks; rollouts that fanned out."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slime_train.share import token_weights
from tests.tables import table

TOKEN = st.tuples(st.integers(0, 1), st.floats(-2, 2))
SAMPLE = st.tuples(st.lists(TOKEN, max_size=6), st.sampled_from([1.0, 0.5, 2.0]))
Samples = list[tuple[list[tuple[int, float]], float]]
Rollouts = list[Samples]
"""Rollouts of one sample, or of several where one execution fanned out."""
STEP = st.lists(st.lists(SAMPLE, min_size=1, max_size=3), min_size=1, max_size=6)
Mean = str | int
MEANS: list[Mean] = ["tokens", "rollouts", 5]
BY_MEAN = table("mean", MEANS)


def counts(rollouts: Rollouts) -> tuple[int, int]:
    trained = [sum(mask for tokens, _ in samples for mask, _ in tokens) for samples in rollouts]
    return sum(trained), sum(count > 0 for count in trained)


def reference(rollouts: Rollouts, mean: Mean) -> float:
    step_tokens, step_rollouts = counts(rollouts)
    total = 0.0
    for samples in rollouts:
        trained = [importance * loss for tokens, importance in samples for mask, loss in tokens if mask]
        if not trained:
            continue
        match mean:
            case "tokens":
                total += sum(trained) / step_tokens
            case "rollouts":
                total += sum(trained) / len(trained) / step_rollouts
            case length:
                total += sum(trained) / int(length) / step_rollouts
    return total


def reduced(rollouts: Rollouts, denominators: tuple[int, int], mean: Mean) -> float:
    samples = [sample for each in rollouts for sample in each]
    rollout_S = torch.tensor([90 - number for number, each in enumerate(rollouts) for _ in each], dtype=torch.int64)
    flat = [(mask, loss, number) for number, (tokens, _) in enumerate(samples) for mask, loss in tokens]
    mask_T = torch.tensor([mask for mask, _, _ in flat], dtype=torch.float64)
    loss_T = torch.tensor([loss for _, loss, _ in flat], dtype=torch.float64)
    sample_T = torch.tensor([number for _, _, number in flat], dtype=torch.int64)
    importance_S = torch.tensor([importance for _, importance in samples], dtype=torch.float64)
    weight_T = token_weights(
        mask_T,
        sample_T,
        importance_S,
        rollout_S,
        step_tokens=denominators[0],
        step_samples=denominators[1],
        per_token=mean == "tokens",
        constant_length=mean if isinstance(mean, int) else None,
    )
    return float((loss_T * weight_T).sum())


@BY_MEAN
@given(rollouts=STEP)
def test_it_is_the_mean(mean: Mean, rollouts: Rollouts) -> None:
    found = reduced(rollouts, counts(rollouts), mean)
    assert found == pytest.approx(reference(rollouts, mean), rel=1e-9, abs=1e-12)


@BY_MEAN
@given(rollouts=STEP, cut=st.integers(0, 6))
def test_the_parts_of_a_step_add_up_to_it(mean: Mean, rollouts: Rollouts, cut: int) -> None:
    parts = [part for part in (rollouts[:cut], rollouts[cut:]) if part]
    total = sum(reduced(part, counts(rollouts), mean) for part in parts)
    assert total == pytest.approx(reference(rollouts, mean), rel=1e-9, abs=1e-12)


@BY_MEAN
def test_a_step_without_a_trained_token_has_no_loss(mean: Mean) -> None:
    assert reduced([[([(0, 5.0), (0, -1.0)], 1.0)], [([], 1.0)]], (0, 0), mean) == 0.0


def test_a_long_sample_counts_as_one_or_by_its_tokens_or_by_a_constant() -> None:
    rollouts: Rollouts = [[([(1, 1.0)] * 9, 1.0)], [([(1, 0.0)], 1.0)]]
    assert reduced(rollouts, (10, 2), "rollouts") == pytest.approx(0.5)
    assert reduced(rollouts, (10, 2), "tokens") == pytest.approx(0.9)
    assert reduced(rollouts, (10, 2), 3) == pytest.approx(1.5)
