"""Each mutant is a small honest buffer with one thing wrong."""

from collections.abc import Mapping, Sequence
from typing import cast

import pytest

from slime_core import Group, GroupId
from slime_core.roles import BufferContext, BufferSetup, BufferSpec, Draw
from slime_core.sample import Json
from slime_core.testing import BufferContract, CheckStatus


class Queue:
    """First in, first out; groups older than three versions are evicted."""

    def __init__(self) -> None:
        self.groups: list[Group] = []

    def add(self, groups: Sequence[Group]) -> None:
        self.groups += groups

    def sample(self, want: int, ctx: BufferContext) -> Draw:
        taken, self.groups = self.groups[:want], self.groups[want:]
        return Draw(taken, [1.0] * len(taken))

    def update(self, scores: Mapping[GroupId, float]) -> None:
        pass

    def evict(self, ctx: BufferContext) -> Mapping[GroupId, str]:
        stale = [group for group in self.groups if ctx.weight_version - (group.oldest_weight_version or 0) > 1]
        self.groups = [group for group in self.groups if group not in stale]
        return {group.id: "stale" for group in stale}

    def state_dict(self) -> dict[str, Json]:
        return {"groups": [cast(Json, group.to_dict()) for group in self.groups]}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        self.groups = [Group.from_dict(cast(dict[str, Json], each)) for each in cast(list[Json], state["groups"])]

    def __len__(self) -> int:
        return len(self.groups)


class Replay(Queue):
    """Hands out groups again, the least used first."""

    def sample(self, want: int, ctx: BufferContext) -> Draw:
        self.groups.sort(key=lambda group: cast(int, group.metadata.get("uses", 0)))
        for group in self.groups[:want]:
            group.metadata["uses"] = cast(int, group.metadata.get("uses", 0)) + 1
        return Draw(self.groups[:want], [1.0] * min(want, len(self.groups)))


class StartsFull(Queue):
    def __len__(self) -> int:
        return len(self.groups) + 1


class TakesOneMore(Queue):
    def sample(self, want: int, ctx: BufferContext) -> Draw:
        return super().sample(want + 1 if want else 0, ctx)


class ForgetsWeights(Queue):
    def sample(self, want: int, ctx: BufferContext) -> Draw:
        return Draw(super().sample(want, ctx).groups, [])


class NegativeWeights(Queue):
    def sample(self, want: int, ctx: BufferContext) -> Draw:
        groups = super().sample(want, ctx).groups
        return Draw(groups, [-1.0] * len(groups))


class RaisesWhenEmpty(Queue):
    def sample(self, want: int, ctx: BufferContext) -> Draw:
        if not self.groups:
            raise IndexError("nothing is held")
        return super().sample(want, ctx)


class LosesTheLast(Queue):
    def state_dict(self) -> dict[str, Json]:
        return {"groups": [cast(Json, group.to_dict()) for group in self.groups[:-1]]}


class ForgetsItsTurn(Queue):
    """Every other draw comes from the other end, and the state does not say which is next."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0

    def sample(self, want: int, ctx: BufferContext) -> Draw:
        self.turn += 1
        if self.turn % 2:
            self.groups.reverse()
        return super().sample(want, ctx)


class EvictsTwice(Queue):
    def __init__(self) -> None:
        super().__init__()
        self.evicted: dict[GroupId, str] = {}

    def evict(self, ctx: BufferContext) -> Mapping[GroupId, str]:
        self.evicted |= super().evict(ctx)
        return self.evicted


class KeepsTheEvicted(Queue):
    def evict(self, ctx: BufferContext) -> Mapping[GroupId, str]:
        held = list(self.groups)
        evicted = super().evict(ctx)
        self.groups = held
        return evicted if ctx.rollout_id == 3 else {}


class Shared(Queue):
    everything: list[Group] = []  # noqa: RUF012  # the mistake that the check is about

    def __init__(self) -> None:
        self.groups = self.everything

    def add(self, groups: Sequence[Group]) -> None:
        self.groups.extend(groups)


MUTANTS: dict[type[Queue], tuple[str, set[str]]] = {
    StartsFull: ("BUF-001", {"BUF-008"}),
    TakesOneMore: ("BUF-002", set()),
    ForgetsWeights: ("BUF-003", set()),
    NegativeWeights: ("BUF-003", set()),
    Replay: ("BUF-004", set()),
    RaisesWhenEmpty: ("BUF-005", {"BUF-004"}),
    LosesTheLast: ("BUF-006", set()),
    ForgetsItsTurn: ("BUF-006", set()),
    EvictsTwice: ("BUF-007", {"BUF-006"}),
    KeepsTheEvicted: ("BUF-007", set()),
    Shared: ("BUF-008", {"BUF-004", "BUF-005"}),
}


def contract_of(kind: type[Queue]) -> type[BufferContract]:
    def factory(settings: object, setup: BufferSetup) -> Queue:
        return kind()

    class Subject(BufferContract):
        choice = BufferSpec("subject", factory)

    return Subject


def failing(contract: type[BufferContract]) -> set[str]:
    return {result.identity for result in contract.report() if result.status is CheckStatus.FAILED}


def test_a_good_buffer_passes() -> None:
    assert failing(contract_of(Queue)) == set()


def test_a_buffer_that_replays_passes_when_it_says_so() -> None:
    class Subject(BufferContract):
        choice = contract_of(Replay).choice
        replays = True

    assert failing(Subject) == set()


def test_every_check_has_a_mutant() -> None:
    assert {identity for identity, _ in MUTANTS.values()} == set(BufferContract.checks())


@pytest.mark.parametrize("kind", MUTANTS)
def test_a_mutant_fails_its_check(kind: type[Queue]) -> None:
    identity, others = MUTANTS[kind]
    assert failing(contract_of(kind)) == {identity} | others
