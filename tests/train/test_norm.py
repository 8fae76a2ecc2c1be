"""The norm of a gradient: the number that float64 gives, however many there are."""

import math

import pytest
import torch

from slime_train import gradient_norm
from slime_train.norm import CHUNK
from tests.tables import table


@table("numel", [0, 1, CHUNK - 1, CHUNK, 3 * CHUNK + 5])
def test_it_is_the_norm_in_float64(numel: int) -> None:
    gradient = 1e-3 * torch.randn(numel, generator=torch.Generator().manual_seed(numel))
    assert gradient_norm(gradient) == pytest.approx(float(gradient.double().norm()), rel=1e-12, abs=1e-300)


def test_many_small_numbers_are_not_lost() -> None:
    """One sum of squares in float32 stops growing where a square is less than half its last bit."""
    gradient = torch.full((20_000_000,), 1e-3)
    assert gradient_norm(gradient) == pytest.approx(1e-3 * math.sqrt(20_000_000), rel=1e-6)
    assert float(gradient.norm()) != pytest.approx(1e-3 * math.sqrt(20_000_000), rel=1e-4)


def test_what_is_not_finite_stays_so() -> None:
    assert math.isnan(gradient_norm(torch.tensor([1.0, math.nan])))
    assert math.isinf(gradient_norm(torch.tensor([1.0, math.inf])))
