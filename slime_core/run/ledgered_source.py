"""LedgeredSource: a data source whose draws are checked and entered into the ledger, and whose errors are named."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

from slime_core.catalog.checks import blaming, check_drawn
from slime_core.catalog.used import Used
from slime_core.roles import DataSource, DescribesData
from slime_core.run.accounts import GroupState
from slime_core.run.ledger import Ledger
from slime_core.sample import Group, GroupId, Json


class LedgeredSource:
    """Passes everything on; a group that comes back and is drawn again stays one line of the accounts."""

    # Which groups came back is known here alone: the scheduler has let go of them, and a source may not say.

    def __init__(self, use: Used[DataSource], ledger: Ledger) -> None:
        """Wrap a source."""
        self._source, self._plugin = use.part, use.plugin
        self._ledger = ledger
        self._returned: set[GroupId] = set()
        self.rollout_id = 0
        """Written beside each draw."""

    @property
    def returned(self) -> int:
        """Drawn groups that came back and wait to be drawn again."""
        return len(self._returned)

    async def draw(self, count: int) -> list[Group]:
        """Draw, and enter what was drawn for the first time.

        Raises:
            ContractError: what it drew breaks the contract.
            PluginError: it raised.
        """
        with self._blaming("draw"):
            answer = await self._source.draw(count)
        groups = check_drawn(answer, plugin=self._plugin, count=count)
        new = [group.id for group in groups if group.id not in self._returned]
        self._ledger.record(GroupState.DRAWN, new, self.rollout_id)
        self._returned.difference_update(group.id for group in groups)
        return groups

    def add(self, groups: Sequence[Group]) -> None:
        """Give unfinished groups back."""
        with self._blaming("add"):
            self._source.add(groups)
        self._returned.update(group.id for group in groups)

    def state_dict(self) -> dict[str, Json]:
        """What the wrapped source gives or takes."""
        with self._blaming("state_dict"):
            return self._source.state_dict()

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """The wrapped source's; `hold` says which groups came back before."""
        with self._blaming("load_state_dict"):
            self._source.load_state_dict(state)

    def hold(self, drawn: Iterable[GroupId]) -> None:
        """Take these groups as returned, after a resume: no group that the ledger has as drawn is in flight."""
        self._returned = set(drawn)

    def data_metrics(self) -> Mapping[str, float]:
        """The source's, if it has any."""
        with self._blaming("data_metrics"):
            return self._source.data_metrics() if isinstance(self._source, DescribesData) else {}

    def data_notes(self) -> Sequence[str]:
        """The source's, if it has any."""
        with self._blaming("data_notes"):
            return self._source.data_notes() if isinstance(self._source, DescribesData) else ()

    def __len__(self) -> int:
        """Prompts in one epoch."""
        return len(self._source)

    def _blaming(self, method: str) -> AbstractContextManager[None]:
        return blaming(f"data source ({method})", self._plugin)
