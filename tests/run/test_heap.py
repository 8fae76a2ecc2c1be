import gc
from collections.abc import Iterator

import pytest

from slime_core.run.session import settled_heap
from tests.tables import table


@pytest.fixture(autouse=True)
def keep_threshold() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_what_there_is_is_set_aside_and_given_back() -> None:
    before = gc.get_freeze_count()
    with settled_heap():
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0


def test_collections_are_rare_within_and_as_before_afterwards() -> None:
    gc.set_threshold(700, 10, 10)
    with settled_heap():
        assert gc.get_threshold()[0] > 700
    assert gc.get_threshold() == (700, 10, 10)


@table("asked_for", [0, 10**6])
def test_a_process_that_asked_for_fewer_keeps_that(asked_for: int) -> None:
    gc.set_threshold(asked_for, 10, 10)
    with settled_heap():
        assert gc.get_threshold() == (asked_for, 10, 10)
