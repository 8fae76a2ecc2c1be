"""Sums and means over the trained tokens of each sample, of ragged batches and of none."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slime_train.sequences import discounted_sums, masked_mean, masked_sum

SAMPLES = st.lists(st.lists(st.floats(-5, 5), max_size=19), max_size=5)


def test_masked_tokens_count_neither_in_the_sum_nor_in_the_number() -> None:
    values, mask = torch.tensor([1.0, 5.0, 3.0, 7.0]), torch.tensor([1.0, 0.0, 1.0, 0.0])
    sample = torch.tensor([0, 0, 0, 2])
    assert masked_sum(values, mask, sample).tolist() == [4.0, 0.0, 0.0]
    assert masked_mean(values, mask, sample).tolist() == [2.0, 0.0, 0.0]


def test_of_no_tokens_there_are_no_samples() -> None:
    none = torch.empty(0)
    assert masked_mean(none, none, torch.empty(0, dtype=torch.int64)).shape == (0,)


def test_a_long_sample_loses_nothing_to_rounding() -> None:
    """A sum in float32 of this order would be off by more than the clip of GSPO."""
    values = torch.cat([torch.tensor([1e4]), torch.full((30_000,), 1e-4), torch.tensor([-1e4])])
    mean = masked_mean(values, torch.ones_like(values), torch.zeros(len(values), dtype=torch.int64))
    assert mean.dtype == torch.float32
    assert mean.item() == pytest.approx(3 / 30_002, rel=1e-6)


@given(samples=SAMPLES, discount=st.sampled_from([0.0, 0.5, 0.97, 1.0]))
def test_discounted_sums_are_the_recursion_from_the_end(samples: list[list[float]], discount: float) -> None:
    expected: list[float] = []
    for values in samples:
        running, found = 0.0, []
        for value in reversed(values):
            running = value + discount * running
            found.append(running)
        expected += reversed(found)
    values_T = torch.tensor([each for values in samples for each in values], dtype=torch.float64)
    sample_T = torch.tensor([number for number, values in enumerate(samples) for _ in values], dtype=torch.int64)
    before = values_T.clone()
    assert discounted_sums(values_T, sample_T, discount).tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert torch.equal(values_T, before)
