"""An honest buffer filter, and each way of breaking it."""

import itertools
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace

from slime_core import Group
from slime_core.roles import BufferContext, BufferFilterSpec, Selection
from slime_testing import BufferFilterContract, Contract

Select = Callable[[Sequence[Group], int], Sequence[int]]


def filtering(take: Select, method: str = "select") -> type[Contract]:
    """The contract of a filter that takes these positions of the groups."""

    def select(groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        return Selection(take(groups, want))

    class Subject(BufferFilterContract):
        choice = BufferFilterSpec("subject", lambda settings, setup: SimpleNamespace(**{method: select}))  # type: ignore[arg-type,return-value]

    return Subject


def oldest(groups: Sequence[Group], want: int) -> Sequence[int]:
    return range(min(want, len(groups)))


def newest(groups: Sequence[Group], want: int) -> Sequence[int]:
    return sorted(range(len(groups)), key=lambda i: groups[i].id.draw, reverse=True)[:want]


def sorts_in_place(groups: Sequence[Group], want: int) -> Sequence[int]:
    assert isinstance(groups, list)
    groups.sort(key=lambda group: group.id.draw, reverse=True)
    return oldest(groups, want)


def annotates(groups: Sequence[Group], want: int) -> Sequence[int]:
    for group in groups:
        group.metadata["seen"] = True
    return oldest(groups, want)


def rotates() -> Select:
    calls = itertools.count()

    def take(groups: Sequence[Group], want: int) -> Sequence[int]:
        first = next(calls) % max(1, len(groups))
        return [*range(first, len(groups)), *range(first)][:want]

    return take


GOOD: list[type[Contract]] = [filtering(newest)]
MUTANTS: dict[str, list[type[Contract]]] = {
    "BFL-001": [filtering(oldest, "choose")],
    "BFL-002": [
        filtering(lambda groups, want: range(len(groups))),
        filtering(lambda groups, want: [group.id.draw for group in groups[:want]]),
        filtering(lambda groups, want: [i for i, group in enumerate(groups) if min(group.rewards) >= 0.0][:want]),
    ],
    "BFL-003": [filtering(sorts_in_place), filtering(annotates)],
    "BFL-004": [
        filtering(rotates()),
        filtering(lambda groups, want: random.sample(range(len(groups)), min(want, len(groups)))),
    ],
    "BFL-005": [filtering(lambda groups, want: ())],
}
