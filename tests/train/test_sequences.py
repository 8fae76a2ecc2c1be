"""Sums and means over the trained tokens of each sample, of ragged batches and of none."""

import pytest
import torch

from slime_core.train.sequences import masked_mean, masked_sum


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
