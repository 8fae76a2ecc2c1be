"""EpochOrder: a permutation of any size, decided by its seed, and as even as a shuffled list."""

from collections import Counter
from itertools import permutations
from math import factorial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.data.prompts import BLOCK, EpochOrder, Interleaving
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


@table("position", [-1, 7])
def test_a_position_outside_is_refused(position: int) -> None:
    with pytest.raises(IndexError, match="in an epoch of 7 rows"):
        EpochOrder(7, 0)[position]


@table("size", [3, 4, 5])
def test_every_permutation_of_few_rows_is_as_likely(size: int) -> None:
    """Chi-squared; its mean is the number of permutations less one, and five standard deviations are allowed."""
    trials = 60 * factorial(size)
    counts = Counter(tuple(EpochOrder(size, seed)) for seed in range(trials))
    expected = trials / factorial(size)
    chi_squared = sum((counts[each] - expected) ** 2 / expected for each in permutations(range(size)))
    freedom = factorial(size) - 1
    assert chi_squared < freedom + 5 * (2 * freedom) ** 0.5


WEIGHTS = st.lists(st.floats(0.001, 1000), min_size=1, max_size=6)


@given(weights=WEIGHTS, seed=st.integers(0, 2**40), block=st.integers(0, 10**6))
def test_every_block_holds_each_share_to_within_one(weights: list[float], seed: int, block: int) -> None:
    turns = Interleaving(weights, seed)
    counts = Counter(turns.member(block * BLOCK + offset) for offset in range(BLOCK))
    for member, weight in enumerate(weights):
        assert abs(counts[member] - BLOCK * weight / sum(weights)) < 1 + 1e-6


@given(draws=st.lists(st.integers(0, 5000), max_size=40))
def test_a_draw_needs_no_other(draws: list[int]) -> None:
    weights = [0.5, 0.3, 0.2]
    at_once = [Interleaving(weights, 3).member(draw) for draw in draws]
    turns = Interleaving(weights, 3)
    assert [turns.member(draw) for draw in draws] == at_once


def test_a_small_share_comes_in_the_long_run() -> None:
    turns = Interleaving([0.999, 0.001], seed=0)
    assert 70 <= sum(turns.member(draw) for draw in range(100_000)) <= 130


def test_the_seed_decides_the_turns() -> None:
    one, same, other = (Interleaving([1, 1], seed) for seed in (1, 1, 2))
    first = [one.member(draw) for draw in range(64)]
    assert first == [same.member(draw) for draw in range(64)] != [other.member(draw) for draw in range(64)]
