"""Interleaving: shares in every block, and the same members wherever it is entered."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from slime_core.data.prompts import BLOCK, Interleaving

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
