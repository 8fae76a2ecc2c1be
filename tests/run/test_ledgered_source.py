"""LedgeredSource: every draw is in the accounts, once, and what a data source does wrong is named."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from slime_core.catalog.catalog import BuiltChoice
from slime_core.errors import ContractError, PluginError
from slime_core.roles import DataSource
from slime_core.run import Ledger
from slime_core.run.ledger import LedgeredSource
from slime_core.sample import Group, GroupId, Json
from slime_testing.samples import make_pending
from tests.tables import table


def group(draw: int) -> Group:
    return Group(GroupId("kit", 0, draw, draw), [make_pending(group_index=draw, index=0)])


class Source:
    """Draws groups in order, those that came back first; raises at everything when it is broken."""

    def __init__(self, broken: bool = False) -> None:
        self.next, self.back, self.broken = 0, list[Group](), broken

    def _check(self) -> None:
        if self.broken:
            raise OSError("no disk")

    async def draw(self, count: int) -> list[Group]:
        self._check()
        taken, self.back = self.back[:count], self.back[count:]
        fresh = [group(self.next + number) for number in range(count - len(taken))]
        self.next += len(fresh)
        return taken + fresh

    def add(self, groups: Sequence[Group]) -> None:
        self._check()
        self.back.extend(groups)

    def state_dict(self) -> dict[str, Json]:
        self._check()
        return {"next": self.next}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        self._check()
        self.next = int(str(state["next"]))

    def __len__(self) -> int:
        return 17


class Describing(Source):
    """The same, and tells about its data."""

    def data_metrics(self) -> Mapping[str, float]:
        self._check()
        return {"rollout/epoch": 0.5}

    def data_notes(self) -> Sequence[str]:
        self._check()
        return ["2 rows were left out"]


def ledgered(source: DataSource, root: Path) -> tuple[LedgeredSource, Ledger]:
    ledger = Ledger(root / "ledger.jsonl")
    return LedgeredSource(BuiltChoice("mine", "slime-mine", source), ledger), ledger


def test_a_draw_is_recorded_once_and_what_came_back_is_counted_until_it_is_drawn_again(tmp_path: Path) -> None:
    source, ledger = ledgered(Source(), tmp_path)
    first = asyncio.run(source.draw(2))
    assert source.returned == 0
    source.add(first[1:])
    assert source.returned == 1
    source.rollout_id = 3
    again = asyncio.run(source.draw(2))
    assert ([each.id.draw for each in again], source.returned) == ([1, 2], 0)
    lines = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert [(line["id"], line["state"], line["rollout_id"]) for line in lines] == [
        ("kit:e0:r0:d0", "drawn", 0),
        ("kit:e0:r1:d1", "drawn", 0),
        ("kit:e0:r2:d2", "drawn", 3),
    ]
    assert ledger.accounts.counts()["drawn"] == 3
    source.hold(ledger.drawn())
    assert source.returned == 3, "none is in flight in a process that begins"
    ledger.close()


def test_a_draw_of_another_number_is_refused_and_recorded_nowhere(tmp_path: Path) -> None:
    class Short(Source):
        async def draw(self, count: int) -> list[Group]:
            return (await super().draw(count))[1:]

    source, ledger = ledgered(Short(), tmp_path)
    with pytest.raises(ContractError, match="slime-mine"):
        asyncio.run(source.draw(2))
    assert ledger.accounts.counts()["drawn"] == 0
    ledger.close()


CALLS: dict[str, Callable[[LedgeredSource], object]] = {
    "draw": lambda source: asyncio.run(source.draw(1)),
    "add": lambda source: source.add([group(0)]),
    "state_dict": lambda source: source.state_dict(),
    "load_state_dict": lambda source: source.load_state_dict({"next": 1}),
    "data_metrics": lambda source: source.data_metrics(),
    "data_notes": lambda source: source.data_notes(),
}


@table("method", CALLS)
def test_what_raises_is_named_with_its_method(tmp_path: Path, method: str) -> None:
    (tmp_path / method).mkdir()
    source, ledger = ledgered(Describing(broken=True), tmp_path / method)
    with pytest.raises(PluginError, match=rf"^data source \({method}\) of plugin slime-mine raised OSError: no disk"):
        CALLS[method](source)
    ledger.close()
