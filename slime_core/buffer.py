"""The default buffer: holds finished groups in order of arrival until training takes them.

A buffer filter, a pure function, chooses which groups to train on and which to drop. `CheckedBuffer` wraps the
buffer of any plugin: it checks what that returns and names the plugin in errors.

Example:

    buffer = FifoBuffer(setup)          # setup.buffer_filter is FifoFilter() unless the run chose another
    buffer.add(finished)
    taken = buffer.sample(64, context)
"""

from collections.abc import Mapping, Sequence
from typing import cast

from slime_core.catalog import check_selection
from slime_core.catalog.catalog import BuiltChoice
from slime_core.catalog.checks import check_draw, check_evicted, plugin_errors
from slime_core.errors import CheckpointError, ContractError
from slime_core.roles import Buffer, BufferContext, BufferFilter, BufferSetup, Draw, Selection
from slime_core.sample import Group, GroupId, Json


class FifoFilter:
    """Selects the oldest groups first; drops nothing."""

    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        """The first `want` positions."""
        return Selection(take=range(min(want, len(groups))))


class FifoBuffer:
    """Implements `slime_core.roles.Buffer`; returns each group once, or drops it with a reason."""

    DROPPED = "buffer_filter"
    """Reason for groups that the filter drops."""

    def __init__(self, setup: BufferSetup) -> None:
        self._filter = setup.buffer_filter
        self._waiting: list[Group] = []
        self._dropped: dict[GroupId, str] = {}

    def add(self, groups: Sequence[Group]) -> None:
        self._waiting.extend(groups)

    def sample(self, want: int, ctx: BufferContext) -> Draw:
        """Return the groups that the filter takes. The next `evict` reports the groups that it drops."""
        chosen = self._filter.select(tuple(self._waiting), want, ctx)
        taken = [self._waiting[position] for position in chosen.take]
        self._dropped |= {self._waiting[position].id: self.DROPPED for position in chosen.drop}
        if not chosen.drop and list(chosen.take) == list(range(len(taken))):
            del self._waiting[: len(taken)]
        else:
            gone = {*chosen.take, *chosen.drop}
            self._waiting = [group for position, group in enumerate(self._waiting) if position not in gone]
        return Draw(taken, [1.0] * len(taken))

    def update(self, scores: Mapping[GroupId, float]) -> None:
        """Do nothing: only arrival order matters."""

    def evict(self, ctx: BufferContext) -> Mapping[GroupId, str]:
        """Return the groups dropped since the last call, with their reason."""
        dropped, self._dropped = self._dropped, {}
        return dropped

    def state_dict(self) -> dict[str, Json]:
        """Held groups, and dropped groups that are not reported yet."""
        return {
            "groups": [group.to_dict() for group in self._waiting],
            "dropped": {str(group_id): reason for group_id, reason in self._dropped.items()},
        }

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue from a saved state.

        Raises:
            CheckpointError: the state is from another buffer.
        """
        if set(state) != {"groups", "dropped"}:
            raise CheckpointError(
                f"a fifo buffer cannot continue from a state with {', '.join(sorted(state)) or 'nothing'}"
            )
        self._waiting = [Group.from_dict(each) for each in cast(list[Mapping[str, Json]], state["groups"])]
        dropped = cast(Mapping[str, str], state["dropped"])
        self._dropped = {GroupId.parse(group_id): reason for group_id, reason in dropped.items()}

    def __len__(self) -> int:
        return len(self._waiting)


class CheckedFilter:
    """A buffer filter with checks on its selections."""

    def __init__(self, use: BuiltChoice[BufferFilter]) -> None:
        self._use = use

    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        """The filter's choice.

        Raises:
            ContractError: the selection breaks the contract.
            PluginError: the filter raised.
        """
        with plugin_errors("buffer filter", self._use.plugin):
            answer = self._use.part.select(groups, want, ctx)
        return check_selection(answer, plugin=self._use.plugin, held=len(groups), want=want)


class CheckedBuffer:
    """A checked buffer, initially empty, that may return each group `max_uses` times.

    Raises `ContractError` if a result breaks the contract, and `PluginError` if the buffer raises.
    """

    def __init__(self, use: BuiltChoice[Buffer], max_uses: int) -> None:
        self._use = use
        self._max_uses = max_uses
        self._held: dict[GroupId, int] = {}
        self._out: dict[GroupId, int] = {}

    def add(self, groups: Sequence[Group]) -> None:
        with plugin_errors("buffer (add)", self._use.plugin):
            self._use.part.add(groups)
        self._held.update((group.id, 0) for group in groups)

    def sample(self, want: int, ctx: BufferContext) -> Draw:
        """Return 1 to `want` groups, without repeats. A group may return again only after `update`."""
        with plugin_errors("buffer (sample)", self._use.plugin):
            answer = self._use.part.sample(want, ctx)
        draw = check_draw(answer, plugin=self._use.plugin, want=want, is_held=self._held.__contains__)
        if want and not draw.groups:
            held = len(self._held)
            raise ContractError(
                f"buffer of plugin {self._use.plugin}: it holds {held} groups and returned none of {want}: return "
                "groups while `len` is above 0"
            )
        self._out |= {group.id: self._held.pop(group.id) + 1 for group in draw.groups}
        return draw

    def update(self, scores: Mapping[GroupId, float]) -> None:
        """Pass scores on. Groups with uses left become available again."""
        with plugin_errors("buffer (update)", self._use.plugin):
            self._use.part.update(scores)
        self._held |= {group_id: uses for group_id, uses in self._out.items() if uses < self._max_uses}
        self._out = {}

    def evict(self, ctx: BufferContext) -> Mapping[GroupId, str]:
        """Groups that the buffer removed, with reasons."""
        with plugin_errors("buffer (evict)", self._use.plugin):
            answer = self._use.part.evict(ctx)
        evicted = check_evicted(answer, plugin=self._use.plugin, is_held=self._held.__contains__)
        for group_id in evicted:
            del self._held[group_id]
        return evicted

    def state_dict(self) -> dict[str, Json]:
        with plugin_errors("buffer (state_dict)", self._use.plugin):
            return self._use.part.state_dict()

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore the buffer's state; `hold` sets its groups."""
        with plugin_errors("buffer (load_state_dict)", self._use.plugin):
            self._use.part.load_state_dict(state)

    def hold(self, uses: Mapping[GroupId, int]) -> None:
        """Set the held groups and their uses after a resume, from the ledger."""
        self._held = dict(uses)

    def __len__(self) -> int:
        with plugin_errors("buffer (len)", self._use.plugin):
            return len(self._use.part)
