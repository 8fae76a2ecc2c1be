"""An honest data source, and each way of breaking it."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from slime_core import Group, GroupId, Sample, Status
from slime_core.roles import DataSourceSetup, DataSourceSpec
from slime_core.sample import Json
from slime_testing import Contract, DataSourceContract


class Rows:
    """Rows in an order of their own in every epoch."""

    def __init__(self, setup: DataSourceSetup) -> None:
        (file,) = setup.prompts
        self.rows = [json.loads(line) for line in file.path.read_text().splitlines()]
        self.setup = setup
        self.draws = 0
        self.returned: list[Group] = []

    def order(self, epoch: int) -> list[int]:
        return random.Random(f"{self.setup.seed} {epoch}").sample(range(len(self)), len(self))

    async def draw(self, count: int) -> list[Group]:
        groups, self.returned = self.returned[:count], self.returned[count:]
        return groups + [self.next() for _ in range(count - len(groups))]

    def next(self) -> Group:
        epoch, offset = divmod(self.draws, len(self.rows))
        group = self.group(epoch, self.order(epoch)[offset])
        self.draws += 1
        return group

    def group(self, epoch: int, row: int) -> Group:
        samples = [
            Sample(group_index=self.draws, index=index, prompt=self.rows[row]["input"], label=self.rows[row]["label"])
            for index in range(self.setup.n_samples_per_prompt)
        ]
        return Group(GroupId("rows", epoch, row, self.draws), samples)

    def add(self, groups: Sequence[Group]) -> None:
        self.returned += groups

    def state_dict(self) -> dict[str, Json]:
        return {"draws": self.draws, "returned": [cast(Json, group.to_dict()) for group in self.returned]}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        self.draws = cast(int, state["draws"])
        self.returned = [Group.from_dict(cast(dict[str, Json], each)) for each in cast(list[Json], state["returned"])]

    def __len__(self) -> int:
        return len(self.rows)


class EndsWithTheEpoch(Rows):
    async def draw(self, count: int) -> list[Group]:
        return (await super().draw(count))[: len(self)]


class StartsTheEpochAgain(Rows):
    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        super().load_state_dict(state)
        self.draws -= self.draws % len(self)


class ReturnedComeLast(Rows):
    async def draw(self, count: int) -> list[Group]:
        fresh = [self.next() for _ in range(count)]
        self.returned += fresh
        groups, self.returned = fresh, [group for group in self.returned if group not in fresh]
        return groups


class Unseeded(Rows):
    def __init__(self, setup: DataSourceSetup) -> None:
        super().__init__(setup)
        self.key = random.random()

    def order(self, epoch: int) -> list[int]:
        return random.Random(f"{self.key} {epoch}").sample(range(len(self)), len(self))


class SharesItsPlace(Rows):
    """Where it is belongs to the class."""

    place = 0

    @property
    def draws(self) -> int:
        return type(self).place

    @draws.setter
    def draws(self, value: int) -> None:
        type(self).place = value


def contract_of(kind: type[Rows]) -> type[DataSourceContract]:
    def factory(settings: object, setup: DataSourceSetup) -> Rows:
        return kind(setup)

    class Subject(DataSourceContract):
        choice = DataSourceSpec("subject", factory)

    return Subject


def changed(**methods: object) -> type[DataSourceContract]:
    """The contract of rows with other methods."""
    return contract_of(type("Changed", (Rows,), methods))


def grouped(change: Callable[[Group], object]) -> type[DataSourceContract]:
    """The contract of rows whose groups are changed."""

    def group(self: Rows, epoch: int, row: int) -> Group:
        made = Rows.group(self, epoch, row)
        change(made)
        return made

    return changed(group=group)


def own_prompts(settings: object, setup: DataSourceSetup) -> Rows:
    assert not setup.prompts
    source = Rows.__new__(Rows)
    source.rows = [{"input": f"{number} + 1 =", "label": str(number + 1)} for number in range(3)]
    source.setup, source.draws, source.returned = setup, 0, []
    return source


class OwnPrompts(DataSourceContract):
    choice = DataSourceSpec("subject", own_prompts, reads_prompt_data=False)


GOOD: list[type[Contract]] = [contract_of(Rows), OwnPrompts]
MUTANTS: dict[str, list[type[Contract]]] = {
    "SRC-001": [changed(__len__=None, order=lambda self, epoch: list(range(len(self.rows))))],
    "SRC-002": [contract_of(EndsWithTheEpoch)],
    "SRC-003": [
        grouped(lambda group: setattr(group.samples[0], "status", Status.COMPLETED)),
        grouped(lambda group: [setattr(sample, "index", 0) for sample in group.samples]),
    ],
    "SRC-004": [grouped(lambda group: setattr(group, "id", group.id._replace(epoch=0, draw=0)))],
    "SRC-005": [
        changed(state_dict=lambda self: {"draws": self.draws, "returned": []}),
        contract_of(StartsTheEpochAgain),
        changed(state_dict=lambda self: {**Rows.state_dict(self), "seen": {"rows": [{self.draws}]}}),
    ],
    "SRC-006": [contract_of(ReturnedComeLast)],
    "SRC-007": [contract_of(Unseeded)],
    "SRC-008": [changed(order=lambda self, epoch: [0] * len(self))],
    "SRC-009": [contract_of(SharesItsPlace)],
}
