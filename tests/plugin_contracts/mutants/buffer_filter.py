"""An honest buffer filter, and each way of breaking it."""

import itertools
import random
from collections.abc import Callable, Sequence

from slime_core import Group
from slime_core.roles import BufferContext, BufferFilter, BufferFilterSpec, Selection, Settings, Setup
from slime_testing import BufferFilterContract, Contract


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


class NamesDraws:
    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        return Selection(take=[group.id.draw for group in groups[:want]])


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
        return kind()  # type: ignore[return-value]  # some of them are not filters

    class Subject(BufferFilterContract):
        choice = BufferFilterSpec("subject", factory)

    return Subject


class OnlyFullOnes:
    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        return Selection(take=[i for i, group in enumerate(groups) if min(group.rewards) >= 0.0][:want])


GOOD: list[type[Contract]] = [contract_of(NewestFirst)]
MUTANTS: dict[str, list[type[Contract]]] = {
    "BFL-001": [contract_of(NoSelect)],
    "BFL-002": [contract_of(TakesTooMany), contract_of(NamesDraws), contract_of(OnlyFullOnes)],
    "BFL-003": [contract_of(SortsInPlace), contract_of(Annotates)],
    "BFL-004": [contract_of(Rotates), contract_of(DrawsUnseeded)],
    "BFL-005": [contract_of(NeverEnough)],
}
