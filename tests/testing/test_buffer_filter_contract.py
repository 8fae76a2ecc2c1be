import itertools
import random
from collections.abc import Callable, Sequence

import pytest

from slime_core import Group, Settings, Setup
from slime_core.roles import BufferContext, BufferFilter, BufferFilterSpec, Selection
from slime_core.testing import BufferFilterContract, CheckStatus


class NewestFirst:
    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        newest = sorted(range(len(groups)), key=lambda i: groups[i].id.draw, reverse=True)
        return Selection(take=newest[:want])


class NoSelect:
    def choose(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        return Selection(take=range(min(want, len(groups))))


class TakesTooMany:
    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        return Selection(take=range(len(groups)))


class SortsInPlace:
    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        assert isinstance(groups, list)
        groups.sort(key=lambda group: group.id.draw, reverse=True)
        return Selection(take=range(min(want, len(groups))))


class Annotates:
    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        for group in groups:
            group.metadata["seen"] = True
        return Selection(take=range(min(want, len(groups))))


class Rotates:
    def __init__(self) -> None:
        self.calls = itertools.count()

    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        first = next(self.calls) % max(1, len(groups))
        return Selection(take=[*range(first, len(groups)), *range(first)][:want])


class DrawsUnseeded:
    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        return Selection(take=random.sample(range(len(groups)), min(want, len(groups))))


class NeverEnough:
    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        return Selection(take=())


def contract_of(kind: Callable[[], object]) -> type[BufferFilterContract]:
    def factory(settings: Settings, setup: Setup) -> BufferFilter:
        return kind()  # type: ignore[return-value]  # some of them are no filters

    class Subject(BufferFilterContract):
        choice = BufferFilterSpec("subject", factory)

    return Subject


def failing(kind: Callable[[], object]) -> set[str]:
    return {result.identity for result in contract_of(kind).report() if result.status is CheckStatus.FAILED}


def test_every_check_has_a_mutant() -> None:
    tested = {"BFL-001", "BFL-002", "BFL-003", "BFL-004", "BFL-005"}
    assert set(BufferFilterContract.checks()) == tested


def test_a_good_filter_passes() -> None:
    assert failing(NewestFirst) == set()


def test_bfl_001_an_object_without_select() -> None:
    assert "BFL-001" in failing(NoSelect)


def test_bfl_002_a_filter_that_takes_too_many() -> None:
    assert failing(TakesTooMany) == {"BFL-002"}


@pytest.mark.parametrize("kind", [SortsInPlace, Annotates])
def test_bfl_003_a_filter_that_changes_what_it_is_given(kind: Callable[[], object]) -> None:
    assert failing(kind) == {"BFL-003"}


@pytest.mark.parametrize("kind", [Rotates, DrawsUnseeded])
def test_bfl_004_a_filter_that_answers_differently(kind: Callable[[], object]) -> None:
    assert failing(kind) == {"BFL-004"}


def test_bfl_005_a_filter_that_takes_nothing() -> None:
    assert failing(NeverEnough) == {"BFL-005"}
