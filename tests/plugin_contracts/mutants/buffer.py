"""An honest buffer, and each way of breaking it."""

from collections.abc import Mapping, Sequence
from typing import cast

from slime_core import Group, GroupId
from slime_core.roles import BufferContext, BufferSetup, BufferSpec, Draw, Replay
from slime_core.sample import Json
from slime_testing import BufferContract, Contract


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


class Again(Queue):
    """Hands out each group three times, the least used first."""

    def sample(self, want: int, ctx: BufferContext) -> Draw:
        self.groups.sort(key=_uses)
        taken = self.groups[:want]
        for group in taken:
            group.metadata["uses"] = _uses(group) + 1
        self.groups = [group for group in self.groups if _uses(group) < 3]
        return Draw(taken, [1.0] * len(taken))


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


class ChangesRewards(Queue):
    def sample(self, want: int, ctx: BufferContext) -> Draw:
        draw = super().sample(want, ctx)
        for group in draw.groups:
            for sample in group.samples:
                sample.reward = 0.0
        return draw


def _uses(group: Group) -> int:
    return cast(int, group.metadata.get("uses", 0))


def contract_of(kind: type[Queue], max_uses: int = 1) -> type[BufferContract]:
    def factory(settings: object, setup: BufferSetup) -> Queue:
        return kind()

    class Subject(BufferContract):
        choice = BufferSpec("subject", factory, replay=lambda settings: Replay(max_uses))

    return Subject


GOOD: list[type[Contract]] = [contract_of(Queue), contract_of(Again, max_uses=3)]
MUTANTS: dict[str, list[type[Contract]]] = {
    "BUF-001": [contract_of(StartsFull)],
    "BUF-002": [contract_of(TakesOneMore), contract_of(ForgetsWeights), contract_of(NegativeWeights)],
    "BUF-004": [contract_of(Again), contract_of(Again, max_uses=2)],
    "BUF-005": [contract_of(RaisesWhenEmpty)],
    "BUF-006": [contract_of(LosesTheLast), contract_of(ForgetsItsTurn)],
    "BUF-007": [contract_of(EvictsTwice), contract_of(KeepsTheEvicted)],
    "BUF-008": [contract_of(Shared)],
    "BUF-009": [contract_of(ChangesRewards)],
}
