"""PriorityBuffer: draws held groups by priority, hands each out up to a number of times, and says how to weigh them.

Example:

    buffer = PriorityBuffer(PrioritySettings(capacity=4096, max_uses=4), setup)
    buffer.add(finished)
    draw = buffer.sample(64, ctx)               # draw.weights go into the loss
    buffer.update({group.id: 0.7 for group in draw.groups})
    buffer.evict(following)                     # {id: "stale"}
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np
from numpy.random import Generator, Philox

from slime_buffer_priority.arrays import Bools, Floats, Ints
from slime_buffer_priority.fifo import FifoShelf
from slime_buffer_priority.keepers import make_keeper
from slime_buffer_priority.notes import write_notes
from slime_buffer_priority.proportional import ProportionalShelf
from slime_buffer_priority.quotas import Quotas
from slime_buffer_priority.ranked import RankShelf
from slime_buffer_priority.scores import fixed_key
from slime_buffer_priority.settings import Order, PrioritySettings, ScoreName
from slime_buffer_priority.shelf import Shelf
from slime_buffer_priority.store import Entry, Store
from slime_core import Group, GroupId
from slime_core.errors import CheckpointError
from slime_core.roles import BufferContext, BufferSetup, Draw
from slime_core.sample import Json
from slime_core.seeds import derive_seed

CAPACITY, STALE = "buffer_capacity", "buffer_stale"
"""Reasons of the groups that leave unused up."""


class PriorityBuffer:
    """Implements `slime_core.roles.Buffer`; every random number derives from the run's seed and a counter."""

    def __init__(self, settings: PrioritySettings, setup: BufferSetup) -> None:
        """Start empty."""
        self._settings = settings
        self._seed = setup.seed
        self._advantage_weight = settings.scores.get(ScoreName.ADVANTAGE, 0.0)
        self._quotas = Quotas(settings.quotas)
        self._store = Store()
        self._shelves = [_shelf(settings, self._store) for _ in range(len(settings.quotas) + 1)]
        self._keeper = make_keeper(settings.keep)
        self._gone: dict[GroupId, str] = {}
        self._draws = self._evictions = self._version = 0
        self._highest = 1.0
        self._drawn: tuple[Sequence[Group], Ints] = ((), np.zeros(0, np.int64))

    def add(self, groups: Sequence[Group]) -> None:
        """Take finished groups in, with the highest advantage so far: each is to be seen once, soon."""
        places = self._store.add(map(self._entry, groups), float(self._advantage_keys(np.array([self._highest]))[0]))
        keys = self._store.keys.take(places)
        for shelf, among in self._by_shelf(places):
            shelf.put(places[among], keys[among])
        self._keeper.put(places, keys)

    def sample(self, want: int, ctx: BufferContext) -> Draw:
        """Hand out groups by their law, none that is stale; each is weighed, and counts one use more."""
        self._expire(ctx)
        random = self._random("draw", self._draws)
        self._draws += 1
        counts = self._quotas.split(want, [len(shelf) for shelf in self._shelves])
        drawn = [shelf.draw(count, random) for shelf, count in zip(self._shelves, counts, strict=True)]
        places = np.concatenate([each for each, _ in drawn])
        weights = self._importance(np.concatenate([each for _, each in drawn]), ctx).tolist()
        uses = self._store.uses[places] + 1
        self._store.uses[places] = uses
        groups = self._store.at(places)
        write_notes(groups, uses)
        self._remove(places[uses >= self._settings.max_uses])
        self._drawn = (groups, np.where(uses < self._settings.max_uses, places, -1))
        return Draw(groups, weights)

    def update(self, scores: Mapping[GroupId, float]) -> None:
        """Learn advantages of groups that are still held.

        Raises:
            ValueError: one is not finite, or below 0.
        """
        if not self._advantage_weight:
            return
        advantages = np.fromiter(scores.values(), np.float64, len(scores))
        places = self._places_of(scores)
        places, advantages = places[places >= 0], advantages[places >= 0]
        if not (np.isfinite(advantages) & (advantages >= 0)).all():
            raise ValueError(f"mean absolute advantages are finite, 0 or more; found {advantages.min()}")
        self._highest = max(self._highest, float(advantages.max(initial=0.0)))
        keys = self._store.fixed.take(places) + self._advantage_keys(advantages)
        self._store.keys[places] = keys
        for shelf, among in self._by_shelf(places):
            shelf.change(places[among], keys[among])
        self._keeper.change(places, keys)

    def evict(self, ctx: BufferContext) -> Mapping[GroupId, str]:
        """Remove what is too old for the context, and what is beyond the capacity."""
        self._expire(ctx)
        random = self._random("evict", self._evictions)
        self._evictions += 1
        surplus = self._keeper.surplus(self._settings.capacity, random)
        self._gone |= {group.id: CAPACITY for group in self._remove(surplus)}
        gone, self._gone = self._gone, {}
        return gone

    def state_dict(self) -> dict[str, Json]:
        """Held groups, their numbers and orders, and all counters."""
        return {
            "draws": self._draws,
            "evictions": self._evictions,
            "version": self._version,
            "highest": self._highest,
            "quotas": self._quotas.state(),
            "gone": {str(group_id): reason for group_id, reason in self._gone.items()},
            "store": self._store.state(),
            "shelves": [shelf.state() for shelf in self._shelves],
            "keeper": self._keeper.state(),
        }

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue from a saved state.

        Raises:
            CheckpointError: the state is of another buffer.
        """
        if set(state) != set(self.state_dict()):
            raise CheckpointError(
                f"a priority buffer cannot continue from a state with {', '.join(sorted(state)) or 'nothing'}"
            )
        self._draws, self._evictions = cast(int, state["draws"]), cast(int, state["evictions"])
        self._version, self._highest = cast(int, state["version"]), cast(float, state["highest"])
        self._quotas.load(cast(list[float], state["quotas"]))
        gone = cast(Mapping[str, str], state["gone"])
        self._gone = {GroupId.parse(group_id): reason for group_id, reason in gone.items()}
        self._store.load(cast(Mapping[str, Json], state["store"]))
        held = self._store.held()
        for number, saved in enumerate(cast(list[Mapping[str, Json]], state["shelves"])):
            places = held[self._store.shelves[held] == number]
            self._shelves[number].load(saved, places, self._store.keys[places])
        self._keeper.load(cast(Mapping[str, Json], state["keeper"]), held, self._store.keys[held])

    def __len__(self) -> int:
        """Groups held."""
        return len(self._store)

    def _entry(self, group: Group) -> Entry:
        oldest = group.oldest_weight_version
        version = self._version if oldest is None else oldest
        fixed = fixed_key(group, self._settings, draws=self._draws, version=version)
        return Entry(group, fixed, version, self._quotas.of(group.id.source))

    def _places_of(self, ids: Iterable[GroupId]) -> Ints:
        """Places of groups, -1 of those that are no longer held: [n].

        The last draw, in its order or another, is tried first: a look into the table of a million costs 1 us a group.
        """
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
        self._keeper.remove(places)
        return self._store.remove(places)

    def _by_shelf(self, places: Ints) -> list[tuple[Shelf, slice | Bools]]:
        if len(self._shelves) == 1:
            return [(self._shelves[0], slice(None))]
        numbers = self._store.shelves[places]
        return [(shelf, numbers == number) for number, shelf in enumerate(self._shelves)]

    def _random(self, purpose: str, number: int) -> Generator:
        return Generator(Philox(key=derive_seed(self._seed, "slime-buffer-priority", purpose, number)))


def _shelf(settings: PrioritySettings, store: Store) -> Shelf:
    match settings.order:
        case Order.PROPORTIONAL:
            return ProportionalShelf(settings.alpha, lambda places: store.keys.take(places))
        case Order.RANK:
            return RankShelf(settings.alpha)
        case Order.FIFO:
            return FifoShelf()
