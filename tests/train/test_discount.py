"""Discounted sums against the recursion, on ragged samples."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slime_core.train.discount import discounted_sums

SAMPLES = st.lists(st.lists(st.floats(-5, 5), max_size=19), max_size=5)


@given(samples=SAMPLES, discount=st.sampled_from([0.0, 0.5, 0.97, 1.0]))
def test_it_is_the_recursion_from_the_end(samples: list[list[float]], discount: float) -> None:
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
