"""An honest buffer, and each way of breaking it."""

from collections.abc import Callable, Mapping, Sequence
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


class Shared(Queue):
    everything: list[Group] = []  # noqa: RUF012  # the mistake that the check is about

    def __init__(self) -> None:
        self.groups = self.everything

    def add(self, groups: Sequence[Group]) -> None:
        self.groups.extend(groups)


def evicts_but_keeps(self: Queue, ctx: BufferContext) -> Mapping[GroupId, str]:
    held = list(self.groups)
    evicted = Queue.evict(self, ctx)
    self.groups = held
    return evicted if ctx.rollout_id == 3 else {}


def sample_without_rewards(self: Queue, want: int, ctx: BufferContext) -> Draw:
    draw = Queue.sample(self, want, ctx)
    for group in draw.groups:
        for sample in group.samples:
            sample.reward = 0.0
    return draw


def weighted(weight: Callable[[int], list[float]]) -> Callable[..., Draw]:
    """A `sample` whose weights are those of a number of groups."""

    def sample(self: Queue, want: int, ctx: BufferContext) -> Draw:
        groups = Queue.sample(self, want, ctx).groups
        return Draw(groups, weight(len(groups)))

    return sample


def _uses(group: Group) -> int:
    return cast(int, group.metadata.get("uses", 0))


def contract_of(kind: type[Queue], max_uses: int = 1) -> type[BufferContract]:
    def factory(settings: object, setup: BufferSetup) -> Queue:
        return kind()

    class Subject(BufferContract):
        choice = BufferSpec("subject", factory, replay=lambda settings: Replay(max_uses))

    return Subject


def changed(**methods: object) -> type[BufferContract]:
    """The contract of a queue with other methods."""
    return contract_of(type("Changed", (Queue,), methods))


GOOD: list[type[Contract]] = [contract_of(Queue), contract_of(Again, max_uses=3)]
MUTANTS: dict[str, list[type[Contract]]] = {
    "BUF-001": [changed(__len__=lambda self: len(self.groups) + 1)],
    "BUF-002": [
        changed(sample=lambda self, want, ctx: Queue.sample(self, want + 1 if want else 0, ctx)),
        changed(sample=weighted(lambda count: [])),
        changed(sample=weighted(lambda count: [-1.0] * count)),
    ],
    "BUF-004": [contract_of(Again), contract_of(Again, max_uses=2)],
    "BUF-005": [changed(sample=lambda self, want, ctx: self.groups[0] and Queue.sample(self, want, ctx))],
    "BUF-006": [
        changed(state_dict=lambda self: {"groups": [group.to_dict() for group in self.groups[:-1]]}),
        contract_of(ForgetsItsTurn),
    ],
    "BUF-007": [contract_of(EvictsTwice), changed(evict=evicts_but_keeps)],
    "BUF-008": [contract_of(Shared)],
    "BUF-009": [changed(sample=sample_without_rewards)],
}
