"""Garbage collections while a rollout runs."""

import gc
from collections.abc import Iterator

import pytest

from slime_core.rollout import rare_collections


@pytest.fixture(autouse=True)
def keep_threshold() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_collections_are_rare_within_and_as_before_afterwards() -> None:
    gc.set_threshold(700, 10, 10)
    with rare_collections():
        assert gc.get_threshold()[0] > 700
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("asked_for", [0, 10**6])
def test_a_process_that_asked_for_fewer_keeps_that(asked_for: int) -> None:
    gc.set_threshold(asked_for, 10, 10)
    with rare_collections():
        assert gc.get_threshold() == (asked_for, 10, 10)
