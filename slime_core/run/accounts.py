"""Accounts: the state and uses of every live group, and how many ended how; what the ledger's lines add up to.

    drawn -> finished -> buffered -> trained(use) | dropped(reason)

A transition that skips a state or repeats one is an error: it means that the loop lost count. Everything here costs
what changed, never what is held: ended groups are only counted.

Example:

    accounts = Accounts(max_uses=1)
    accounts.move(GroupState.DRAWN, {GroupId("train", 0, 17, 17): ""})
"""

import enum
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from slime_core.errors import SlimeError
from slime_core.sample import GroupId, Json

MOST_REASONS = 1000
"""Reasons that are counted by name; the groups of all others are one."""
OTHER_REASONS = "other reasons"


class GroupState(enum.Enum):
    """Where a group stands."""

    DRAWN = "drawn"
    """Its prompt left the data source; it is being generated."""
    FINISHED = "finished"
    """Generated, scored and kept by the filter."""
    BUFFERED = "buffered"
    """Waiting in the buffer."""
    TRAINED = "trained"
    """Used in an optimizer step; buffered still, until it was used as often as it may be."""
    DROPPED = "dropped"
    """Will never be trained; the line says why."""


_BEFORE: dict[GroupState, frozenset[GroupState | None]] = {
    GroupState.DRAWN: frozenset({None}),
    GroupState.FINISHED: frozenset({GroupState.DRAWN}),
    GroupState.BUFFERED: frozenset({GroupState.FINISHED}),
    GroupState.TRAINED: frozenset({GroupState.BUFFERED}),
    GroupState.DROPPED: frozenset({GroupState.DRAWN, GroupState.FINISHED, GroupState.BUFFERED}),
}


class LedgerError(SlimeError):
    """The accounts do not balance."""


class Accounts:
    """All groups of one run."""

    def __init__(self, max_uses: int) -> None:
        """Start without any; each may be trained on `max_uses` times."""
        self.max_uses = max_uses
        """Uses that a group is allowed."""
        self.live: dict[GroupId, GroupState] = {}
        """Groups that have not ended."""
        self.uses: dict[GroupId, int] = {}
        """How often a live group was trained on; none that never was."""
        self.recorded: Counter[str] = Counter()
        """Moves to each state, by its value."""
        self.reasons: Counter[str] = Counter()
        """Dropped groups by reason."""
        self.used: Counter[int] = Counter()
        """Ended groups by their uses; never those without any."""
        self._counts: Counter[GroupState] = Counter()

    def move(self, state: GroupState, groups: Mapping[GroupId, str]) -> Sequence[int]:
        """Move groups to a state, each with its reason, empty but for DROPPED; returns the uses of each so far.

        Raises:
            LedgerError: a group cannot move there from where it is; nothing is moved.
        """
        before = _BEFORE[state]
        for group_id in groups:
            if (now := self.live.get(group_id)) not in before:
                was = now.value if now else "unknown"
                raise LedgerError(f"group {group_id} cannot become {state.value}: it is {was}")
        self.recorded[state.value] += len(groups)
        if state is GroupState.DROPPED:
            return [self._drop(group_id, reason) for group_id, reason in groups.items()]
        if state is GroupState.TRAINED:
            return [self._use(group_id) for group_id in groups]
        if state is not GroupState.DRAWN:
            self._counts.subtract(self.live[group_id] for group_id in groups)
        self._counts[state] += len(groups)
        self.live.update(dict.fromkeys(groups, state))
        return [0] * len(groups)

    def _drop(self, group_id: GroupId, reason: str) -> int:
        named = reason if reason in self.reasons or len(self.reasons) < MOST_REASONS else OTHER_REASONS
        self.reasons[named] += 1
        return self._end(group_id, GroupState.DROPPED)

    def _use(self, group_id: GroupId) -> int:
        uses = self.uses[group_id] = self.uses.get(group_id, 0) + 1
        if uses == self.max_uses:
            self._end(group_id, GroupState.TRAINED)
        return uses

    def _end(self, group_id: GroupId, state: GroupState) -> int:
        self._counts[self.live.pop(group_id)] -= 1
        self._counts[state] += 1
        if uses := self.uses.pop(group_id, 0):
            self.used[uses] += 1
        return uses

    def fresh(self, batch: int, ratio: float) -> int:
        """Groups to generate so that, `batch` uses later, there are at most `ratio` uses a group; below 1 for none."""
        uses, entered = self.recorded["trained"], self.recorded["buffered"]
        return math.ceil((uses + batch) / ratio) - entered

    def counts(self) -> dict[str, int]:
        """Groups by state; one that waits for another use is buffered."""
        return {state.value: self._counts[state] for state in GroupState}

    def check(self, buffered: int, in_flight: int, finished: int) -> None:
        """See that all parts of a run hold as many groups as these accounts say.

        Raises:
            LedgerError: they differ, or groups came or went without a move.
        """
        counts = self.counts()
        if (counts["drawn"], counts["finished"], counts["buffered"]) != (in_flight, finished, buffered):
            raise LedgerError(
                f"{in_flight} groups are in flight, {finished} are finished and the buffer holds {buffered}, "
                f"and the ledger says {counts}"
            )
        if self.recorded["drawn"] != sum(counts.values()) or len(self.live) != in_flight + finished + buffered:
            raise LedgerError(f"{self.recorded['drawn']} groups were drawn, and the ledger says {counts}")

    def to_dict(self) -> dict[str, Json]:
        """All of it, for a checkpoint."""
        return {
            "live": {str(group_id): state.value for group_id, state in self.live.items()},
            "uses": {str(group_id): uses for group_id, uses in self.uses.items()},
            "ended": {state.value: self._counts[state] for state in (GroupState.TRAINED, GroupState.DROPPED)},
            "recorded": dict(self.recorded),
            "reasons": dict(self.reasons),
            "used": {str(uses): groups for uses, groups in self.used.items()},
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Json], max_uses: int) -> "Accounts":
        """What `to_dict` gave."""
        accounts = cls(max_uses)
        accounts.live = {GroupId.parse(name): GroupState(value) for name, value in _table(state, "live").items()}
        accounts.uses = {GroupId.parse(name): int(str(uses)) for name, uses in _table(state, "uses").items()}
        accounts.recorded = _counter(state, "recorded")
        accounts.reasons = _counter(state, "reasons")
        accounts.used = Counter({int(uses): groups for uses, groups in _counter(state, "used").items()})
        accounts._counts = Counter(accounts.live.values())
        accounts._counts.update({GroupState(name): count for name, count in _counter(state, "ended").items()})
        return accounts


def _table(state: Mapping[str, Json], key: str) -> dict[str, Json]:
    table = state[key]
    assert isinstance(table, dict)
    return table


def _counter(state: Mapping[str, Json], key: str) -> Counter[str]:
    return Counter({name: int(str(count)) for name, count in _table(state, key).items()})
