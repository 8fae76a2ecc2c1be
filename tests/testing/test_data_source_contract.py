"""Each mutant is a small honest source with one thing wrong."""

import json
import random
from collections.abc import Mapping, Sequence
from typing import cast

import pytest

from slime_core import Group, GroupId, Sample, Status
from slime_core.roles import DataSourceSetup, DataSourceSpec
from slime_core.sample import Json
from slime_core.testing import CheckStatus, DataSourceContract


class Rows:
    """Rows in an order of their own in every epoch."""

    def __init__(self, setup: DataSourceSetup) -> None:
        assert setup.prompts is not None
        self.rows = [json.loads(line) for line in setup.prompts.path.read_text().splitlines()]
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


class HasNoLength(Rows):
    __len__ = None  # type: ignore[assignment]

    def order(self, epoch: int) -> list[int]:
        return list(range(len(self.rows)))


class EndsWithTheEpoch(Rows):
    async def draw(self, count: int) -> list[Group]:
        return (await super().draw(count))[: len(self)]


class AlreadyDone(Rows):
    def group(self, epoch: int, row: int) -> Group:
        group = super().group(epoch, row)
        group.samples[0].status = Status.COMPLETED
        return group


class ForgetsIndices(Rows):
    def group(self, epoch: int, row: int) -> Group:
        group = super().group(epoch, row)
        for sample in group.samples:
            sample.index = 0
        return group


class RepeatsIdentities(Rows):
    def group(self, epoch: int, row: int) -> Group:
        group = super().group(epoch, row)
        group.id = GroupId("rows", 0, row, 0)
        return group


class LosesReturned(Rows):
    def state_dict(self) -> dict[str, Json]:
        return {"draws": self.draws, "returned": []}


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


class DrawsWithReplacement(Rows):
    def order(self, epoch: int) -> list[int]:
        return [0] * len(self)


MUTANTS: dict[type[Rows], tuple[str, set[str]]] = {
    HasNoLength: ("SRC-001", {"SRC-002", "SRC-004", "SRC-008"}),
    EndsWithTheEpoch: ("SRC-002", set()),
    AlreadyDone: ("SRC-003", set()),
    ForgetsIndices: ("SRC-003", set()),
    RepeatsIdentities: ("SRC-004", set()),
    LosesReturned: ("SRC-005", set()),
    StartsTheEpochAgain: ("SRC-005", set()),
    ReturnedComeLast: ("SRC-006", set()),
    Unseeded: ("SRC-007", {"SRC-005"}),
    DrawsWithReplacement: ("SRC-008", set()),
}


def contract_of(kind: type[Rows]) -> type[DataSourceContract]:
    def factory(settings: object, setup: DataSourceSetup) -> Rows:
        return kind(setup)

    class Subject(DataSourceContract):
        choice = DataSourceSpec("subject", factory)

    return Subject


def failing(contract: type[DataSourceContract]) -> set[str]:
    return {result.identity for result in contract.report() if result.status is CheckStatus.FAILED}


def test_a_good_source_passes() -> None:
    assert failing(contract_of(Rows)) == set()


def test_a_source_that_makes_its_own_prompts_is_given_no_file() -> None:
    def factory(settings: object, setup: DataSourceSetup) -> Rows:
        assert setup.prompts is None
        source = Rows.__new__(Rows)
        source.rows = [{"input": f"{number} + 1 =", "label": str(number + 1)} for number in range(3)]
        source.setup, source.draws, source.returned = setup, 0, []
        return source

    class Subject(DataSourceContract):
        choice = DataSourceSpec("subject", factory, reads_prompt_data=False)

    assert failing(Subject) == set()


def test_every_check_has_a_mutant() -> None:
    assert {identity for identity, _ in MUTANTS.values()} == set(DataSourceContract.checks())


@pytest.mark.parametrize("kind", MUTANTS)
def test_a_mutant_fails_its_check(kind: type[Rows]) -> None:
    identity, others = MUTANTS[kind]
    assert failing(contract_of(kind)) == {identity} | others
