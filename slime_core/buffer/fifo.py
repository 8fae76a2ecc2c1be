"""FifoBuffer: holds finished groups in order of arrival; a pure filter says which to hand out and which to drop.

Example:

    buffer = FifoBuffer(setup)          # setup.buffer_filter is FifoFilter() unless the run chose another
    buffer.add(finished)
    taken = buffer.sample(64, context)
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast, overload

from slime_core.errors import CheckpointError
from slime_core.roles import BufferContext, BufferSetup, Draw, Selection
from slime_core.sample import Group, GroupId, Json


class FifoFilter:
    """The oldest groups first; drops nothing."""

    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        """The first `want` positions."""
        return Selection(take=range(min(want, len(groups))))


class FifoBuffer:
    """Implements `slime_core.roles.Buffer`; each group is handed out once, or dropped with a reason."""

    DROPPED = "buffer_filter"
    """Reason of the groups that the filter drops."""

    def __init__(self, setup: BufferSetup) -> None:
        """Start empty."""
        self._filter = setup.buffer_filter
        self._waiting = _Waiting()
        self._dropped: dict[GroupId, str] = {}

    def add(self, groups: Sequence[Group]) -> None:
        """Take finished groups in, behind those that are held."""
        self._waiting.extend(groups)

    def sample(self, want: int, ctx: BufferContext) -> Draw:
        """Hand out what the filter takes; what it drops is reported by the next `evict`."""
        chosen = self._filter.select(self._waiting, want, ctx)
        if not chosen.drop and list(chosen.take) == list(range(len(chosen.take))):
            taken = self._waiting.take_first(len(chosen.take))
            return Draw(taken, [1.0] * len(taken))
        taken = [self._waiting[position] for position in chosen.take]
        self._dropped |= {self._waiting[position].id: self.DROPPED for position in chosen.drop}
        self._waiting.remove({*chosen.take, *chosen.drop})
        return Draw(taken, [1.0] * len(taken))

    def update(self, scores: Mapping[GroupId, float]) -> None:
        """Nothing to learn: arrival alone decides."""

    def evict(self, ctx: BufferContext) -> Mapping[GroupId, str]:
        """The groups dropped since the last call, with their reason."""
        dropped, self._dropped = self._dropped, {}
        return dropped

    def state_dict(self) -> dict[str, Json]:
        """Held groups, and dropped ones that nobody has been told of."""
        return {
            "groups": [group.to_dict() for group in self._waiting],
            "dropped": {str(group_id): reason for group_id, reason in self._dropped.items()},
        }

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue from a saved state.

        Raises:
            CheckpointError: the state is of another buffer.
        """
        if set(state) != {"groups", "dropped"}:
            raise CheckpointError(
                f"a fifo buffer cannot continue from a state with {', '.join(sorted(state)) or 'nothing'}"
            )
        self._waiting = _Waiting()
        self._waiting.extend(Group.from_dict(each) for each in cast(list[Mapping[str, Json]], state["groups"]))
        dropped = cast(Mapping[str, str], state["dropped"])
        self._dropped = {GroupId.parse(group_id): reason for group_id, reason in dropped.items()}

    def __len__(self) -> int:
        """Groups held."""
        return len(self._waiting)


class _Waiting(Sequence[Group]):
    """Groups in order, as filters see them; the first ones leave at a cost that does not grow with what is held."""

    def __init__(self) -> None:
        self._groups: list[Group | None] = []
        self._first = 0

    def extend(self, groups: Iterable[Group]) -> None:
        """Add groups at the end."""
        self._groups.extend(groups)

    def take_first(self, count: int) -> list[Group]:
        """Take the first groups out."""
        first, self._first = self._first, self._first + count
        taken = self._groups[first : self._first]
        self._groups[first : self._first] = [None] * count
        if 2 * self._first > len(self._groups):
            del self._groups[: self._first]
            self._first = 0
        return cast(list[Group], taken)

    def remove(self, positions: set[int]) -> None:
        """Take any groups out."""
        self._groups = [group for position, group in enumerate(self) if position not in positions]
        self._first = 0

    @overload
    def __getitem__(self, key: int) -> Group: ...

    @overload
    def __getitem__(self, key: slice) -> Sequence[Group]: ...

    def __getitem__(self, key: int | slice) -> Group | Sequence[Group]:
        positions = range(self._first, len(self._groups))[key]
        if isinstance(positions, int):
            return cast(Group, self._groups[positions])
        return [cast(Group, self._groups[position]) for position in positions]

    def __len__(self) -> int:
        return len(self._groups) - self._first
