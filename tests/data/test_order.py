"""EpochOrder: a permutation of any size, decided by its seed, and as even as a shuffled list."""

from collections import Counter
from itertools import permutations
from math import factorial

from hypothesis import given
from hypothesis import strategies as st

from slime_core.data.prompts import EpochOrder
from tests.tables import table


@given(size=st.integers(1, 3000), seed=st.integers(0, 2**63))
def test_every_row_comes_once(size: int, seed: int) -> None:
    order = EpochOrder(size, seed)
    assert sorted(order) == list(range(size))
    assert len(order) == size


def test_the_seed_alone_decides() -> None:
    assert list(EpochOrder(1000, 5)) == list(EpochOrder(1000, 5)) != list(EpochOrder(1000, 6))


def test_an_entry_needs_no_other() -> None:
    order = EpochOrder(10**9, 1)
    rows = [order[position] for position in (0, 1, 10**9 - 1)]
    assert len(set(rows)) == 3
    assert all(0 <= row < 10**9 for row in rows)


@table("size", [3, 4, 5])
def test_every_permutation_of_few_rows_is_as_likely(size: int) -> None:
    """Chi-squared; its mean is the number of permutations less one, and five standard deviations are allowed."""
    trials = 60 * factorial(size)
    counts = Counter(tuple(EpochOrder(size, seed)) for seed in range(trials))
    expected = trials / factorial(size)
    chi_squared = sum((counts[each] - expected) ** 2 / expected for each in permutations(range(size)))
    freedom = factorial(size) - 1
    assert chi_squared < freedom + 5 * (2 * freedom) ** 0.5
