"""PriorityBuffer: draws held groups by priority, hands each out up to a number of times, and weighs them.

Example:

    buffer = PriorityBuffer(PrioritySettings(capacity=4096, max_uses=4), setup)
    buffer.add(finished)
    draw = buffer.sample(64, ctx)               # draw.weights go into the loss
    buffer.update({group.id: 0.7 for group in draw.groups})
    buffer.evict(following)                     # {id: "buffer_stale"}
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from slime_buffer_priority.places import Bools, Floats, Ints, Queue, grown
from slime_buffer_priority.settings import COUNT, Order, PrioritySettings, ScoreName
from slime_buffer_priority.shelves import ProportionalShelf, Shelf
from slime_core import Group, GroupId
from slime_core.errors import CheckpointError
from slime_core.roles import BufferContext, BufferSetup, Draw
from slime_core.sample import Json
from slime_core.seeds import derive_seed

CAPACITY, STALE = "buffer_capacity", "buffer_stale"
"""Reasons for evicting groups that have uses left."""


class PriorityBuffer:
    """Implements `slime_core.roles.Buffer`; every random number derives from the run's seed and a counter."""

    def __init__(self, settings: PrioritySettings, setup: BufferSetup) -> None:
        self._settings = settings
        self._seed = setup.seed
        self._advantage_weight = settings.scores.get(ScoreName.ADVANTAGE, 0.0)
        self._quotas = Quotas(settings.quotas)
        self._store = Store()
        self._shelves = [_shelf(settings, self._store) for _ in range(len(settings.quotas) + 1)]
        self._arrivals = Queue()
        self._gone: dict[GroupId, str] = {}
        self._draws = self._version = 0
        self._highest = 1.0
        self._drawn: tuple[Sequence[Group], Ints] = ((), np.zeros(0, np.int64))

    def add(self, groups: Sequence[Group]) -> None:
        """Add finished groups with the highest advantage so far, so that each is seen once, soon."""
        versions = [self._version if (old := group.oldest_weight_version) is None else old for group in groups]
        fixed = [
            fixed_key(group, self._settings, draws=self._draws, version=version)
            for group, version in zip(groups, versions, strict=True)
        ]
        shelves = [self._quotas.of(group.id.source) for group in groups]
        places = self._store.add(groups, fixed, versions, shelves)
        keys = self._store.keys[places] = self._store.fixed[places] + self._advantage_keys(np.array([self._highest]))[0]
        for shelf, among in self._by_shelf(places):
            shelf.put(places[among], keys[among])
        self._arrivals.put(places)

    def sample(self, want: int, ctx: BufferContext) -> Draw:
        """Draw groups in the configured order, with their importance weights; stale groups are skipped."""
        self._expire(ctx)
        random = Generator(Philox(key=derive_seed(self._seed, "slime-buffer-priority", "draw", self._draws)))
        self._draws += 1
        counts = self._quotas.split(want, [len(shelf) for shelf in self._shelves])
        drawn = [shelf.draw(count, random) for shelf, count in zip(self._shelves, counts, strict=True)]
        places = np.concatenate([each for each, _ in drawn])
        weights = self._importance(np.concatenate([each for _, each in drawn]), ctx).tolist()
        uses = self._store.uses[places] + 1
        self._store.uses[places] = uses
        groups = self._store.at(places)
        again = (uses > 1).nonzero()[0]
        for number, use in zip(again.tolist(), uses[again].tolist(), strict=True):
            groups[number].metadata[COUNT] = use
        self._remove(places[uses >= self._settings.max_uses])
        self._drawn = (groups, np.where(uses < self._settings.max_uses, places, -1))
        return Draw(groups, weights)

    def update(self, scores: Mapping[GroupId, float]) -> None:
        """Set the advantages of groups that are still held.

        Raises:
            ValueError: one is not finite, or below 0.
        """
        if not self._advantage_weight:
            return
        advantages = np.fromiter(scores.values(), np.float64, len(scores))
        places = self._places_of(scores)
        places, advantages = places[places >= 0], advantages[places >= 0]
        if not (np.isfinite(advantages) & (advantages >= 0)).all():
            raise ValueError(f"mean absolute advantages must be finite and at least 0; got {advantages.min()}")
        self._highest = max(self._highest, float(advantages.max(initial=0.0)))
        keys = self._store.fixed.take(places) + self._advantage_keys(advantages)
        self._store.keys[places] = keys
        for shelf, among in self._by_shelf(places):
            shelf.change(places[among], keys[among])

    def evict(self, ctx: BufferContext) -> Mapping[GroupId, str]:
        """Remove groups that are too stale, and the excess over the capacity."""
        self._expire(ctx)
        surplus = self._arrivals.surplus(self._settings.capacity)
        self._gone |= {group.id: CAPACITY for group in self._remove(surplus)}
        gone, self._gone = self._gone, {}
        return gone

    def state_dict(self) -> dict[str, Json]:
        return {
            "draws": self._draws,
            "version": self._version,
            "highest": self._highest,
            "quotas": self._quotas.state(),
            "gone": {str(group_id): reason for group_id, reason in self._gone.items()},
            "store": self._store.state(),
            "shelves": [shelf.state() for shelf in self._shelves],
            "arrivals": self._arrivals.state(),
        }

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue from a saved state.

        Raises:
            CheckpointError: the state was saved by another buffer.
        """
        if set(state) != set(self.state_dict()):
            raise CheckpointError(
                f"the buffer's state has {', '.join(sorted(state)) or 'no entries'}, which another buffer saved"
            )
        self._draws, self._version = cast(int, state["draws"]), cast(int, state["version"])
        self._highest = cast(float, state["highest"])
        self._quotas.load(cast(list[float], state["quotas"]))
        gone = cast(Mapping[str, str], state["gone"])
        self._gone = {GroupId.parse(group_id): reason for group_id, reason in gone.items()}
        self._store.load(cast(Mapping[str, Json], state["store"]))
        held = self._store.held()
        for number, saved in enumerate(cast(list[Mapping[str, Json]], state["shelves"])):
            places = held[self._store.shelves[held] == number]
            self._shelves[number].load(saved, places, self._store.keys[places])
        self._arrivals.load(cast(Mapping[str, Json], state["arrivals"]), held, self._store.keys[held])

    def __len__(self) -> int:
        return len(self._store.places)

    def _places_of(self, ids: Iterable[GroupId]) -> Ints:
        """Places of groups, -1 for each group that has left: [n]."""
        # Try the last draw first: a lookup in the table of a million groups costs 1 us per group.
        groups, places = self._drawn
        drawn, wanted = [group.id for group in groups], list(ids)
        if drawn == wanted:
            return places
        table = dict(zip(drawn, places.tolist(), strict=True))
        found = list(map(table.get, wanted))
        if None in found:
            found = [self._store.places.get(group_id, -1) for group_id in wanted]
        return np.array(found, np.int64)

    def _advantage_keys(self, advantages: Floats) -> Floats:
        return self._advantage_weight * np.log2(advantages + self._settings.epsilon)

    def _importance(self, weights: Floats, ctx: BufferContext) -> Floats:
        if self._settings.order is Order.FIFO or not len(weights):
            return np.ones(len(weights))
        rollouts = self._settings.beta_rollouts
        progress = min(1.0, ctx.rollout_id / rollouts) if rollouts else 1.0
        beta = self._settings.beta + (1.0 - self._settings.beta) * progress
        powers = weights**beta
        return powers / powers.max() if self._settings.normalize else powers

    def _expire(self, ctx: BufferContext) -> None:
        self._version = ctx.weight_version
        stale = self._store.older_than(ctx.weight_version - self._settings.max_staleness)
        self._gone |= {group.id: STALE for group in self._remove(stale)}

    def _remove(self, places: Ints) -> list[Group]:
        if not len(places):
            return []
        self._drawn = ((), np.zeros(0, np.int64))
        for shelf, among in self._by_shelf(places):
            shelf.remove(places[among])
        self._arrivals.remove(places)
        return self._store.remove(places)

    def _by_shelf(self, places: Ints) -> list[tuple[Shelf, slice | Bools]]:
        if len(self._shelves) == 1:
            return [(self._shelves[0], slice(None))]
        numbers = self._store.shelves[places]
        return [(shelf, numbers == number) for number, shelf in enumerate(self._shelves)]


class Store:
    """The held groups by place, with the numbers that draws and evictions need; freed places are used again."""

    def __init__(self) -> None:
        self.groups: NDArray[np.object_] = np.zeros(0, np.object_)
        """The group at each place. Taking some of them is four times as fast as from a list."""
        self.places: dict[GroupId, int] = {}
        """The place of each group."""
        self.keys: Floats = np.zeros(0)
        """Base-2 logarithm of each place's priority."""
        self.fixed: Floats = np.zeros(0)
        """The part of each key that does not change."""
        self.uses: Ints = np.zeros(0, np.int64)
        """How often each group was drawn."""
        self.shelves: Ints = np.zeros(0, np.int64)
        """Number of the shelf of each place."""
        self._versions: dict[int, set[int]] = {}
        self._version_at: list[int] = []
        self._free: list[int] = []

    def add(
        self, groups: Sequence[Group], fixed: Sequence[float], versions: Sequence[int], shelves: Sequence[int]
    ) -> Ints:
        """Add unused groups; returns their places: [n] each."""
        taken = [self._place() for _ in groups]
        for place, group, version in zip(taken, groups, versions, strict=True):
            self._stand(place, group, version)
        places = np.array(taken, np.int64)
        self.fixed[places], self.shelves[places], self.uses[places] = fixed, shelves, 0
        return places

    def remove(self, places: Ints) -> list[Group]:
        """Remove groups."""
        gone = self.at(places)
        self.groups[places] = None
        for place, group in zip(places.tolist(), gone, strict=True):
            del self.places[group.id]
            version = self._version_at[place]
            self._versions[version].discard(place)
            if not self._versions[version]:
                del self._versions[version]
            self._free.append(place)
        return gone

    def at(self, places: Ints) -> list[Group]:
        """The groups at places."""
        return cast(list[Group], self.groups.take(places).tolist())

    def older_than(self, version: int) -> Ints:
        """Places whose oldest token is from before a weight version, in order."""
        old = [each for each in self._versions if each < version]
        return np.array(sorted(place for each in old for place in self._versions[each]), np.int64)

    def held(self) -> Ints:
        """All places that hold a group, in order."""
        return np.array(sorted(self.places.values()), np.int64)

    def state(self) -> dict[str, Json]:
        """The groups in the order of their places, their numbers, and the places that are free."""
        held = self.held()
        numbers: dict[str, list[Json]] = {
            "places": held.tolist(),
            "keys": self.keys[held].tolist(),
            "fixed": self.fixed[held].tolist(),
            "uses": self.uses[held].tolist(),
            "shelves": self.shelves[held].tolist(),
            "versions": [self._version_at[place] for place in held.tolist()],
        }
        return {**numbers, "groups": [group.to_dict() for group in self.at(held)], "free": [*self._free]}

    def load(self, state: Mapping[str, Json]) -> None:
        """Restore saved groups into an empty store."""
        self.__init__()  # type: ignore[misc]  # this very class, emptied
        places = cast(list[int], state["places"])
        self._free = [*cast(list[int], state["free"])]
        self._grow(len(places) + len(self._free))
        groups = cast(list[Mapping[str, Json]], state["groups"])
        for place, group, version in zip(places, groups, cast(list[int], state["versions"]), strict=True):
            self._stand(place, Group.from_dict(group), version)
        for name in ("keys", "fixed", "uses", "shelves"):
            getattr(self, name)[places] = state[name]

    def _stand(self, place: int, group: Group, version: int) -> None:
        self.groups[place] = group
        self.places[group.id] = place
        self._version_at[place] = version
        self._versions.setdefault(version, set()).add(place)

    def _place(self) -> int:
        if self._free:
            return self._free.pop()
        self._grow(len(self._version_at) + 1)
        return len(self._version_at) - 1

    def _grow(self, size: int) -> None:
        self._version_at += [0] * (size - len(self._version_at))
        if size > len(self.keys):
            room = 1 << (size - 1).bit_length()
            self.groups = cast(NDArray[np.object_], grown(self.groups, room))
            self.keys, self.fixed = cast(Floats, grown(self.keys, room)), cast(Floats, grown(self.fixed, room))
            self.uses, self.shelves = cast(Ints, grown(self.uses, room)), cast(Ints, grown(self.shelves, room))


class Quotas:
    """How many of each draw come from which source; fractions are carried over to the next draw.

    Shares sum to 1 at most; the rest is the last share, of all other sources.
    """

    def __init__(self, shares: Mapping[str, float]) -> None:
        self.names = tuple(shares)
        """The sources that have a share."""
        self._number = {name: number for number, name in enumerate(self.names)}
        self._shares = [*shares.values(), max(0.0, 1.0 - sum(shares.values()))]
        self._credit = [0.0] * len(self._shares)

    def of(self, source: str) -> int:
        """Number of a source's share; unnamed sources have the last."""
        return self._number.get(source, len(self.names))

    def split(self, want: int, held: Sequence[int]) -> list[int]:
        """How many groups to draw from each source; a source with too few leaves its share to the others."""
        if len(held) == 1:
            return [min(want, held[0])]
        credit = [old + want * share for old, share in zip(self._credit, self._shares, strict=True)]
        counts, spare = [0] * len(held), want
        for number in sorted(range(len(held)), key=lambda each: -credit[each]):
            counts[number] = min(held[number], spare, max(0, math.floor(credit[number] + 1e-9)))
            spare -= counts[number]
        while spare and (roomy := [number for number, count in enumerate(counts) if count < held[number]]):
            number = max(roomy, key=lambda each: (credit[each] - counts[each], self._shares[each]))
            more = 1 if len(roomy) > 1 else min(spare, held[number] - counts[number])
            counts[number] += more
            spare -= more
        # Cap each credit at one group: a source that was empty for long must not fill whole draws later.
        self._credit = [min(1.0, max(-1.0, due - count)) for due, count in zip(credit, counts, strict=True)]
        return counts

    def state(self) -> list[Json]:
        """The credit that each source carries over to the next draw."""
        return [*self._credit]

    def load(self, credit: Sequence[float]) -> None:
        """Restore the saved credit."""
        self._credit = list(credit)


def fixed_key(group: Group, settings: PrioritySettings, *, draws: int, version: int) -> float:
    """Base-2 logarithm of all factors of a group's priority but the advantage's.

    A priority is the product of all scores, each to the power of its weight. Scores use forward decay (Cormode et al.
    2009, doi:10.1109/ICDE.2009.65): newer groups start higher, so that no key changes because time passes.

    Args:
        group: a finished group.
        settings: the buffer's.
        draws: how many draws happened before the group was added.
        version: weight version of its oldest token.
    """
    key = 0.0
    for name, weight in settings.scores.items():
        if weight == 0 or name is ScoreName.ADVANTAGE:
            continue
        if name is ScoreName.RECENCY:
            key += weight * draws / settings.recency_half_life
        elif name is ScoreName.STALENESS:
            key += weight * version / settings.staleness_half_life
        else:
            key += weight * math.log2(_score(name, group, settings) + settings.epsilon)
    return key


def _score(name: ScoreName, group: Group, settings: PrioritySettings) -> float:
    if name is ScoreName.DIVERSITY:
        return len({sample.response for sample in group.samples}) / len(group.samples)
    low, high = settings.reward_range
    rewards = group.rewards
    mean = sum(rewards) / len(rewards) if rewards else low
    share = min(1.0, max(0.0, (mean - low) / (high - low)))
    return share if name is ScoreName.REWARD else 4 * share * (1 - share)


def _shelf(settings: PrioritySettings, store: Store) -> Shelf:
    if settings.order is Order.FIFO:
        return Queue()
    return ProportionalShelf(settings.alpha, lambda places: store.keys.take(places))
