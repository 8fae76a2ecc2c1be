"""SumTree and Quotas against plain models of themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_buffer_priority.buffer import Quotas
from slime_buffer_priority.places import SumTree

MASSES = st.floats(0.0, 1e6, allow_subnormal=False)


@given(
    st.integers(1, 40), st.lists(st.tuples(st.integers(0, 39), MASSES), max_size=30), st.floats(0, 1, exclude_max=True)
)
def test_sum_tree_matches_a_running_sum(size: int, changes: list[tuple[int, float]], share: float) -> None:
    tree, plain = SumTree(size), [0.0] * tree_size(size)
    for place, mass in changes:
        plain[place % size] = mass
        tree.put(np.array([place % size]), np.array([mass]))
    assert tree.total == pytest.approx(sum(plain))
    if tree.total > 0:
        places, rest = tree.find(np.array([share * tree.total]))
        place = int(places[0])
        before = sum(plain[:place])
        assert rest[0] == pytest.approx(share * tree.total - before, abs=1e-6 * tree.total)
        assert before - 1e-9 * tree.total <= share * tree.total <= before + plain[place] + 1e-9 * tree.total


def tree_size(size: int) -> int:
    return SumTree(size).size


def test_large_sum_tree_matches_a_running_sum() -> None:
    random = np.random.default_rng(0)
    tree, masses = SumTree(20_000), random.random(20_000) * (random.random(20_000) < 0.3)
    tree.put_all(masses)
    ends = masses.cumsum()
    points = random.random(5_000) * ends[-1]
    places, rest = tree.find(points)
    expected = ends.searchsorted(points, side="right")
    assert (places == expected).all()
    assert rest == pytest.approx(points - (ends - masses)[expected])
    assert (tree.masses(places) > 0).all()


def test_sum_tree_accumulates_no_rounding() -> None:
    random = np.random.default_rng(1)
    tree, fresh = SumTree(8192), SumTree(8192)
    for _ in range(200):
        places = np.unique(random.integers(0, 8192, 300))
        tree.put(places, random.random(len(places)) * 10.0 ** random.integers(-8, 8))
    fresh.put_all(tree.every_mass())
    assert tree.total == fresh.total


@given(
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 40), st.lists(st.integers(0, 30), min_size=5, max_size=5)), max_size=12),
)
def test_quota_split_uses_all_available(parts: list[float], asked: list[tuple[int, list[int]]]) -> None:
    scale = max(1.0, sum(parts)) * 1.000001
    quotas = Quotas({str(number): part / scale for number, part in enumerate(parts)})
    for want, held in asked:
        held = held[: len(parts) + 1]
        counts = quotas.split(want, held)
        assert sum(counts) == min(want, sum(held))
        assert all(0 <= count <= have for count, have in zip(counts, held, strict=True))


def test_quota_fractions_add_up() -> None:
    quotas, total = Quotas({"math": 0.55, "code": 0.25}), np.zeros(3)
    for _ in range(100):
        total += quotas.split(3, [50, 50, 50])
    assert np.abs(total - [165, 75, 60]).max() <= 2
