"""Seeds: a function of identity alone."""

from hypothesis import given
from hypothesis import strategies as st

from slime_core.seeds import derive_seed

parts = st.lists(st.integers() | st.text(), min_size=1, max_size=6)


@given(parts, parts)
def test_different_identities_have_different_seeds(one: list[int | str], other: list[int | str]) -> None:
    same = [(type(part), part) for part in one] == [(type(part), part) for part in other]
    assert (derive_seed(*one) == derive_seed(*other)) is same


def test_a_seed_is_the_same_everywhere() -> None:
    assert derive_seed(42, "train.jsonl", 0, 17, 0, 3) == 1247862229130271548
    assert 0 <= derive_seed("x") < 2**63
