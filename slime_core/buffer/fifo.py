"""FifoBuffer: holds finished groups in order of arrival; a pure filter says which to hand out and which to drop.

Example:

    buffer = FifoBuffer(setup)          # setup.buffer_filter is FifoFilter() unless the run chose another
    buffer.add(finished)
    taken = buffer.sample(64, context)
"""

from collections.abc import Mapping, Sequence
from typing import cast

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
        self._groups: list[Group] = []
        self._dropped: dict[GroupId, str] = {}

    def add(self, groups: Sequence[Group]) -> None:
        """Take finished groups in, behind those that are held."""
        self._groups.extend(groups)

    def sample(self, want: int, ctx: BufferContext) -> Draw:
        """Hand out what the filter takes; what it drops is reported by the next `evict`."""
        held = tuple(self._groups)
        chosen = self._filter.select(held, want, ctx)
        self._dropped |= {held[position].id: self.DROPPED for position in chosen.drop}
        gone = {*chosen.take, *chosen.drop}
        self._groups = [group for position, group in enumerate(held) if position not in gone]
        return Draw([held[position] for position in chosen.take], [1.0] * len(chosen.take))

    def update(self, scores: Mapping[GroupId, float]) -> None:
        """Nothing to learn: arrival alone decides."""

    def evict(self, ctx: BufferContext) -> Mapping[GroupId, str]:
        """The groups dropped since the last call, with their reason."""
        dropped, self._dropped = self._dropped, {}
        return dropped

    def state_dict(self) -> dict[str, Json]:
        """Held groups, and dropped ones that nobody has been told of."""
        return {
            "groups": [group.to_dict() for group in self._groups],
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
        self._groups = [Group.from_dict(each) for each in cast(list[Mapping[str, Json]], state["groups"])]
        dropped = cast(Mapping[str, str], state["dropped"])
        self._dropped = {GroupId.parse(group_id): reason for group_id, reason in dropped.items()}

    def __len__(self) -> int:
        """Groups held."""
        return len(self._groups)
