"""The advantage contract against estimators that are bad in one way each."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import torch

from slime_core.roles import Advantage, AdvantageInput, AdvantageSpec
from slime_testing import CheckStatus
from slime_testing.tensors.algorithm import AdvantageContract
from tests.tables import table

Function = Callable[[AdvantageInput], torch.Tensor]


def centered(batch: AdvantageInput) -> torch.Tensor:
    groups = int(batch.group_index_S.max()) + 1 if len(batch.group_index_S) else 0
    count_G = batch.rewards_S.new_zeros(groups).index_add_(0, batch.group_index_S, torch.ones_like(batch.rewards_S))
    sum_G = torch.zeros_like(count_G).index_add_(0, batch.group_index_S, batch.rewards_S)
    return (batch.rewards_S - (sum_G / count_G)[batch.group_index_S])[batch.sample_index_T]


def on_the_cpu(batch: AdvantageInput) -> torch.Tensor:
    return centered(batch) * torch.ones(len(batch.sample_index_T))


async def awaited(batch: AdvantageInput) -> torch.Tensor:
    return centered(batch)


def by_position(batch: AdvantageInput) -> torch.Tensor:
    group = (torch.ones_like(batch.group_index_S).cumsum(0) - 1) // 3
    return centered(replace(batch, group_index_S=group))


def scaled_by_the_first(batch: AdvantageInput) -> torch.Tensor:
    """By what the first group of the step has, wherever it is."""
    first = batch.group_index_S == 0
    spread = batch.sum_over_ranks(batch.rewards_S[~first].square().sum())
    return centered(batch) / (spread + 1)


def by_the_groups_of_its_rank(batch: AdvantageInput) -> torch.Tensor:
    """Only several ranks tell it from a good one."""
    return centered(batch) * (1 + batch.group_index_S.unique().numel())


def divides_by_the_deviation(batch: AdvantageInput) -> torch.Tensor:
    given = torch.zeros_like(batch.rewards_S)
    for group in batch.group_index_S.unique():
        mine = batch.group_index_S == group
        given[mine] = (batch.rewards_S[mine] - batch.rewards_S[mine].mean()) / batch.rewards_S[mine].std()
    return given[batch.sample_index_T]


def in_place(batch: AdvantageInput) -> torch.Tensor:
    given = centered(batch)
    batch.rewards_S.sub_(batch.rewards_S.mean())
    return given


def counting() -> Function:
    calls = itertools.count(1)
    return lambda batch: centered(batch) * next(calls)


BAD: dict[str, Callable[[], object]] = {
    "ADV-001": lambda: awaited,
    "ADV-002": lambda: lambda batch: centered(batch)[:-1],
    "ADV-003": lambda: by_position,
    "ADV-004": lambda: scaled_by_the_first,
    "ADV-005": lambda: divides_by_the_deviation,
    "ADV-006": lambda: in_place,
    "ADV-007": counting,
    "ADV-008": lambda: lambda batch: -centered(batch),
    "ADV-009": lambda: lambda batch: centered(batch) + 0 * batch.rewards_S.max(),
    "ADV-010": lambda: by_the_groups_of_its_rank,
    "ADV-011": lambda: lambda batch: centered(batch),
    "ADV-012": lambda: on_the_cpu,
}


class OfValues:
    """A function as an estimator whose values are to become the rewards."""

    def __init__(self, function: Function) -> None:
        self._function = function

    def __call__(self, batch: AdvantageInput) -> torch.Tensor:
        return self._function(batch)

    def returns(self, batch: AdvantageInput) -> torch.Tensor:
        return batch.rewards_S[batch.sample_index_T]


def contract_of(make: Callable[[], object], *, uses_values: bool = False) -> type[AdvantageContract]:
    def factory(settings: object, setup: object) -> Advantage:
        return make()  # type: ignore[return-value]

    class Subject(AdvantageContract):
        choice = AdvantageSpec("subject", factory, uses_values=uses_values)

    return Subject


def failing(contract: type[AdvantageContract]) -> set[str]:
    return {result.identity for result in contract.report() if result.status is CheckStatus.FAILED}


def test_a_good_estimator_keeps_the_contract() -> None:
    contract = contract_of(lambda: OfValues(centered), uses_values=True)
    assert {result.status for result in contract.report()} == {CheckStatus.PASSED}
    assert failing(contract_of(lambda: centered)) == set()


def test_there_is_a_mutant_for_every_check() -> None:
    assert BAD.keys() == AdvantageContract.checks().keys()


@table("identity", BAD)
def test_each_mutant_is_caught_by_its_own_check(identity: str) -> None:
    assert failing(contract_of(BAD[identity], uses_values=identity == "ADV-011")) == {identity}


def test_the_kit_gives_the_token_columns_that_an_estimator_reads() -> None:
    class Subject(AdvantageContract):
        choice = AdvantageSpec(
            "subject",
            lambda settings, setup: lambda batch: centered(batch) + batch.columns_T["turn"],
            token_columns=("turn",),
        )

    assert failing(Subject) == set()
