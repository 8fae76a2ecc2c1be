"""What is drawn, against the stated laws: chi-squared tests, and importance weights without bias."""

from collections import Counter
from collections.abc import Sequence
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime_buffer_priority.places import Floats
from slime_buffer_priority.shelves import ProportionalShelf, draw
from tests.tables import table

DRAWS = 8_000
PRIORITIES = (0.5, 1.0, 2.0, 4.0, 8.0, 3.0)


def shelf_of(alpha: float, priorities: Sequence[float] = PRIORITIES) -> ProportionalShelf:
    keys = np.log2(np.array(priorities))
    shelf = ProportionalShelf(alpha, keys.take)
    shelf.put(np.arange(len(keys)), keys)
    return shelf


def masses_of(alpha: float, priorities: Sequence[float] = PRIORITIES) -> list[float]:
    """The law as the README states it."""
    return [priority**alpha for priority in priorities]


def chance_of_sets(masses: Sequence[float], want: int) -> dict[frozenset[int], float]:
    """Drawing one after another without putting back: the probability of each outcome, its order left out."""
    chances: dict[frozenset[int], float] = {}
    for order in permutations(range(len(masses)), want):
        chance, left = 1.0, sum(masses)
        for place in order:
            chance *= masses[place] / left
            left -= masses[place]
        chances[frozenset(order)] = chances.get(frozenset(order), 0.0) + chance
    return chances


def assert_follows(counts: Counter[frozenset[int]], chances: dict[frozenset[int], float]) -> None:
    """Pearson's chi-squared below its quantile of 1 - 1e-4, by Wilson and Hilferty's approximation."""
    total = sum(counts.values())
    assert set(counts) <= set(chances)
    statistic = sum((counts[each] - total * chance) ** 2 / (total * chance) for each, chance in chances.items())
    freedom = len(chances) - 1
    limit = freedom * (1 - 2 / (9 * freedom) + 3.719 * (2 / (9 * freedom)) ** 0.5) ** 3
    assert statistic < limit, f"chi-squared {statistic:.1f}, limit {limit:.1f} at {freedom} degrees of freedom"


@table("alpha, want", product([0.0, 0.6], [1, 2, 4]))
def test_draws_follow_the_distribution(alpha: float, want: int) -> None:
    shelf, random = shelf_of(alpha), np.random.default_rng(7)
    counts = Counter(frozenset(shelf.draw(want, random)[0].tolist()) for _ in range(DRAWS))
    assert_follows(counts, chance_of_sets(masses_of(alpha), want))


def test_chi_squared_check_detects_a_wrong_distribution() -> None:
    shelf, random = shelf_of(0.8), np.random.default_rng(7)
    counts = Counter(frozenset(shelf.draw(2, random)[0].tolist()) for _ in range(DRAWS))
    with pytest.raises(AssertionError, match="chi-squared"):
        assert_follows(counts, chance_of_sets(masses_of(0.6), 2))


def test_few_of_many_follow_the_distribution() -> None:
    """Of many places, draws come from the tree; of few, every clock is rung. Both are one law."""
    random = np.random.default_rng(3)
    priorities = np.sort(random.random(64) + 0.1)[::-1]
    shelf, counts = shelf_of(1.0, priorities.tolist()), np.zeros(64)
    masses = np.array(masses_of(1.0, priorities.tolist()))
    for _ in range(DRAWS):
        places, _ = shelf.draw(1, random)
        counts[places] += 1
    expected = masses / masses.sum() * DRAWS
    assert ((counts - expected) ** 2 / expected).sum() < 63 + 4 * (2 * 63) ** 0.5


def estimates(shelf: ProportionalShelf, values: Floats, want: int, draws: int) -> Floats:
    """Of the mean of the values over all that are held, from weighted draws."""
    random, found = np.random.default_rng(11), np.zeros(draws)
    for number in range(draws):
        places, weights = shelf.draw(want, random)
        found[number] = (weights * values[places]).mean()
    return found


@table("want", [1, 3, 5])
def test_weights_remove_bias(want: int) -> None:
    values = np.array([3.0, -1.0, 4.0, 1.0, -5.0, 9.0])
    found = estimates(shelf_of(1.0), values, want, DRAWS)
    error = found.std() / DRAWS**0.5
    assert abs(found.mean() - values.mean()) < 4 * error
    assert error < 0.2


def test_weights_remove_bias_for_few_of_many() -> None:
    random = np.random.default_rng(5)
    priorities, values = (random.random(300) + 0.05) ** 3, random.normal(size=300) + 1.0
    found = estimates(shelf_of(1.0, priorities.tolist()), values + priorities, 20, 2_000)
    assert abs(found.mean() - (values + priorities).mean()) < 4 * found.std() / 2_000**0.5


def test_drawing_all_has_equal_weights() -> None:
    places, weights = shelf_of(1.0).draw(9, np.random.default_rng(0))
    assert (sorted(places.tolist()), weights.tolist()) == ([0, 1, 2, 3, 4, 5], [1.0] * 6)


@given(st.lists(st.floats(-60, 60), min_size=1, max_size=80), st.integers(0, 90), st.floats(0, 4))
@settings(max_examples=200, deadline=None)
def test_any_priorities_give_distinct_places_and_finite_weights(keys: list[float], want: int, alpha: float) -> None:
    """Also where one place has nearly all the mass, so that nearly every ring of a clock is its own."""
    shelf = shelf_of(alpha, [2.0**key for key in keys])
    places, weights = shelf.draw(want, np.random.default_rng(0))
    assert len(set(places.tolist())) == len(places) == min(want, len(keys))
    assert np.isfinite(weights).all()
    assert (weights > 0).all()


def test_dominant_place_leaves_others_uniform() -> None:
    """What the tree gives must be finished by ringing every clock."""
    law, random, counts = shelf_of(1.0, [1e9, *([1.0] * 63)]), np.random.default_rng(2), np.zeros(64)
    chances = np.zeros(64)
    for _ in range(3_000):
        places, chance = draw(law, 5, random)
        counts[places] += 1
        chances[places] += 1 / chance
    assert counts[0] == 3_000
    expected = 3_000 * 4 / 63
    assert ((counts[1:] - expected) ** 2 / expected).sum() < 62 + 4 * (2 * 62) ** 0.5
    assert chances[1:].mean() == pytest.approx(3_000, rel=0.05)
    assert chances[0] == pytest.approx(3_000)


def test_sums_of_very_different_sizes_are_rebased() -> None:
    """Keys of recency grow without end: 2 ** (alpha * key) would overflow at 1,024."""
    keys = np.zeros(8)
    shelf = ProportionalShelf(1.0, keys.take)
    random = np.random.default_rng(0)
    for place, key in enumerate((0.0, 900.0, 901.0, 5000.0, 5001.0)):
        keys[place] = key
        shelf.put(np.array([place]), np.array([key]))
    counts = Counter(int(shelf.draw(1, random)[0][0]) for _ in range(3_000))
    assert set(counts) == {3, 4}
    assert counts[4] / counts[3] == pytest.approx(2.0, rel=0.15)
    shelf.remove(np.array([3, 4]))
    counts = Counter(int(shelf.draw(1, random)[0][0]) for _ in range(3_000))
    assert set(counts) == {1, 2}
    assert counts[2] / counts[1] == pytest.approx(2.0, rel=0.15)
