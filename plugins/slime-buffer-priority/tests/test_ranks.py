"""RankIndex and Quotas against plain models of themselves."""

from itertools import pairwise

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from slime_buffer_priority.quotas import Quotas
from slime_buffer_priority.ranks import RankIndex

CHANGES = st.lists(st.tuples(st.integers(0, 30), st.one_of(st.none(), st.integers(-40, 40))), max_size=60)


@given(CHANGES)
@example([(0, -14), (1, 35), (1, -13)])
def test_ranks_are_those_of_sorting(changes: list[tuple[int, int | None]]) -> None:
    index, plain = RankIndex(), dict[int, float]()
    for place, key in changes:
        if key is None and place in plain:
            index.remove(np.array([place]))
            del plain[place]
        elif key is not None:
            index.put(np.array([place]), np.array([float(key)]))
            plain[place] = float(key)
    assert len(index) == len(plain)
    places = index.at(np.arange(len(plain))).tolist()
    assert sorted(places) == sorted(plain)
    assert list(index) == places
    ranked, same_below = [plain[place] for place in places], index.base - 48 + 1e-3
    assert all(high > low - 1e-3 or high < same_below for high, low in pairwise(ranked))


def test_keys_that_grow_without_end_stay_in_order() -> None:
    index, count = RankIndex(), 500
    for place in range(count):
        index.put(np.array([place]), np.array([0.5 * place]))
    assert index.at(np.arange(60)).tolist() == list(range(count - 1, count - 61, -1))


@given(
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 40), st.lists(st.integers(0, 30), min_size=5, max_size=5)), max_size=12),
)
def test_a_split_is_never_short_while_anything_is_held(parts: list[float], asked: list[tuple[int, list[int]]]) -> None:
    scale = max(1.0, sum(parts)) * 1.000001
    quotas = Quotas({str(number): part / scale for number, part in enumerate(parts)})
    for want, held in asked:
        held = held[: len(parts) + 1]
        counts = quotas.split(want, held)
        assert sum(counts) == min(want, sum(held))
        assert all(0 <= count <= have for count, have in zip(counts, held, strict=True))


def test_fractions_add_up_over_draws() -> None:
    quotas, total = Quotas({"math": 0.55, "code": 0.25}), np.zeros(3)
    for _ in range(100):
        total += quotas.split(3, [50, 50, 50])
    assert np.abs(total - [165, 75, 60]).max() <= 2
