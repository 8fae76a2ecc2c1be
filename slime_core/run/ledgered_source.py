"""LedgeredSource: a data source whose draws are entered into the ledger."""

from collections.abc import Mapping, Sequence

from slime_core.roles import DataSource
from slime_core.run.ledger import GroupState, Ledger
from slime_core.sample import Group, Json


class LedgeredSource:
    """Passes everything on; a group that comes back and is drawn again stays one line of the accounts."""

    def __init__(self, source: DataSource, ledger: Ledger) -> None:
        """Wrap a source."""
        self._source = source
        self._ledger = ledger
        self.rollout_id = 0
        """Written beside each draw."""

    async def draw(self, count: int) -> list[Group]:
        """Draw, and enter what was drawn for the first time."""
        groups = await self._source.draw(count)
        new = [group.id for group in groups if not self._ledger.is_drawn(group.id)]
        self._ledger.record(GroupState.DRAWN, new, self.rollout_id)
        return groups

    def add(self, groups: Sequence[Group]) -> None:
        """Give unfinished groups back."""
        self._source.add(groups)

    def state_dict(self) -> dict[str, Json]:
        """The source's."""
        return self._source.state_dict()

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """The source's."""
        self._source.load_state_dict(state)

    def __len__(self) -> int:
        """Prompts in one epoch."""
        return len(self._source)
