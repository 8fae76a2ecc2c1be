"""Shares: ranks of one replica have one share of a step, and report one thing of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.batching.split import Shares
from slime_core.errors import ConfigError, ContractError
from slime_core.roles import Settings, StepResult, TrainerSpec
from tests.tables import table

RESULT = StepResult({"loss": 2.0, "odd": float("nan")}, 100, {"grad_norm": 0.5}, {3: 0.25}, frozenset({"loss"}))
OTHER = replace(RESULT, tokens=90, scores={4: 1.0})


def of(*shares: int) -> Shares:
    return Shares(shares, "mega")


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8).filter(lambda each: set(each) == set(range(max(each) + 1))))
def test_every_share_has_one_rank_that_reports_and_every_rank_its_share(shares: list[int]) -> None:
    found = of(*shares)
    assert [shares[rank] for rank in found.reporting] == list(range(found.count))
    assert found.dealt([f"share {number}" for number in range(found.count)]) == [f"share {each}" for each in shares]


def test_of_ranks_that_agree_one_is_heard() -> None:
    close = replace(RESULT, metrics={"loss": 2.00001, "odd": float("nan")}, scores={3: 0.250001})
    assert of(0, 1, 0, 1).agreed([RESULT, OTHER, close, OTHER]) == [RESULT, OTHER]
    assert of(0, 1).agreed([RESULT, OTHER]) == [RESULT, OTHER]


@table(
    "other, says",
    [
        (replace(RESULT, tokens=99), "tokens is 100 on rank 1 and 99 on rank 3"),
        (
            replace(RESULT, metrics={**RESULT.metrics, "loss": 2.1}),
            r"metrics 'loss' is 2.0 on rank 1 and 2.1 on rank 3",
        ),
        (replace(RESULT, metrics={"loss": 2.0}), "metrics 'odd' is nan on rank 1 and None on rank 3"),
        (replace(RESULT, scalars={"grad_norm": 0.6}), r"scalars 'grad_norm' is 0.5 on rank 1 and 0.6 on rank 3"),
        (replace(RESULT, scores={3: 0.3}), r"scores of group '3' is 0.25 on rank 1 and 0.3 on rank 3"),
        (replace(RESULT, over_all_tokens=frozenset()), r"over_all_tokens is \['loss'\] on rank 1 and \[\] on rank 3"),
    ],
)
def test_ranks_of_a_share_that_differ_are_named_with_the_first_difference(other: StepResult, says: str) -> None:
    with pytest.raises(ContractError, match=rf"plugin mega: ranks 1 and 3 train on share 1 together.*: {says}; "):
        of(0, 1, 0, 1).agreed([OTHER, RESULT, OTHER, other])


def _rank(rank: int, world_size: int, setup: object) -> None:
    """Never built."""


@table("shares, ranks", [([0, 0, 1, 1], 4), ([1, 0], 2), ([0], 1)])
def test_a_spec_says_the_share_of_each_rank(shares: list[int], ranks: int) -> None:
    spec = TrainerSpec("mega", _rank, world_size=lambda settings: ranks, shares=lambda settings: shares)
    assert spec.share_of_ranks(Settings()) == tuple(shares)
    assert replace(spec, shares=None).share_of_ranks(Settings()) == tuple(range(ranks))


@table("shares", [[0, 1], [0, 0, 2, 2], [1, 1, 2, 2], []])
def test_shares_that_do_not_fit_the_ranks_are_refused(shares: list[int]) -> None:
    spec = TrainerSpec("mega", _rank, world_size=lambda settings: 4, shares=lambda settings: shares)
    with pytest.raises(ConfigError, match=r"trainer 'mega': shares gives .* for 4 ranks; expected one number a rank"):
        spec.share_of_ranks(Settings())
