"""CheckedBuffer, CheckedFilter: a run's buffer and its filter, their answers checked and their errors named.

Example:

    buffer = CheckedBuffer(Used("fifo", "slime-core", FifoBuffer(setup)), max_uses=1)
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from slime_core.catalog.checks import blaming, check_draw, check_evicted, check_selection
from slime_core.catalog.used import Used
from slime_core.errors import ContractError
from slime_core.roles import Buffer, BufferContext, BufferFilter, Draw, Selection
from slime_core.sample import Group, GroupId, Json


class CheckedFilter:
    """A buffer filter as every buffer gets it."""

    def __init__(self, use: Used[BufferFilter]) -> None:
        """Wrap a filter."""
        self._use = use

    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        """The filter's choice.

        Raises:
            ContractError: it breaks the contract.
            PluginError: the filter raised.
        """
        with blaming("buffer filter", self._use.plugin):
            answer = self._use.part.select(groups, want, ctx)
        return check_selection(answer, plugin=self._use.plugin, held=len(groups), want=want)


class CheckedBuffer:
    """A buffer as the loop sees it; `ContractError` for what breaks its contract, `PluginError` for what it raises."""

    def __init__(self, use: Used[Buffer], max_uses: int) -> None:
        """Wrap an empty buffer, which may hand out each group `max_uses` times."""
        self._use = use
        self._max_uses = max_uses
        self._held: dict[GroupId, int] = {}
        self._out: dict[GroupId, int] = {}

    def add(self, groups: Sequence[Group]) -> None:
        """Pass finished groups on."""
        with self._blaming("add"):
            self._use.part.add(groups)
        self._held.update((group.id, 0) for group in groups)

    def sample(self, want: int, ctx: BufferContext) -> Draw:
        """At most `want` of the groups that it has, none twice nor again before `update`; at least one."""
        with self._blaming("sample"):
            answer = self._use.part.sample(want, ctx)
        draw = check_draw(answer, plugin=self._use.plugin, want=want, is_held=self._held.__contains__)
        if want and not draw.groups:
            held = len(self._held)
            raise ContractError(
                f"buffer of plugin {self._use.plugin}: it holds {held} groups and handed out none of {want}: a step "
                "needs one at least; hand groups out while `len` says that there are any"
            )
        self._out |= {group.id: self._held.pop(group.id) + 1 for group in draw.groups}
        return draw

    def update(self, scores: Mapping[GroupId, float]) -> None:
        """Pass scores on; groups that were handed out are held again, but those that were used up."""
        with self._blaming("update"):
            self._use.part.update(scores)
        self._held |= {group_id: uses for group_id, uses in self._out.items() if uses < self._max_uses}
        self._out = {}

    def evict(self, ctx: BufferContext) -> Mapping[GroupId, str]:
        """Groups that it had, and why it gave them up."""
        with self._blaming("evict"):
            answer = self._use.part.evict(ctx)
        evicted = check_evicted(answer, plugin=self._use.plugin, is_held=self._held.__contains__)
        for group_id in evicted:
            del self._held[group_id]
        return evicted

    def state_dict(self) -> dict[str, Json]:
        """What the wrapped buffer gives, for a checkpoint."""
        with self._blaming("state_dict"):
            return self._use.part.state_dict()

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """The buffer's; `hold` tells which groups that state holds."""
        with self._blaming("load_state_dict"):
            self._use.part.load_state_dict(state)

    def hold(self, uses: Mapping[GroupId, int]) -> None:
        """What it holds after a resume, and how often each was used, by the accounts."""
        self._held = dict(uses)

    def __len__(self) -> int:
        """Groups that `sample` could still hand out."""
        with self._blaming("len"):
            return len(self._use.part)

    def _blaming(self, method: str) -> AbstractContextManager[None]:
        return blaming(f"buffer ({method})", self._use.plugin)
