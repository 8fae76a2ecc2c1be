"""Failing together: one rank's error is every rank's, and nobody waits for one that will not come."""

from collections.abc import Callable

import pytest
import torch

from slime_core.errors import ContractError, NonFiniteError
from slime_testing.tensors.algorithm import Ranks
from slime_train import failing_together

Total = Callable[[torch.Tensor], torch.Tensor]


def heard(errors: dict[int, Exception], ranks: int = 3) -> list[str]:
    """What each of some ranks raises, as text, where some of them fail so."""
    found = [""] * ranks

    def work(rank: int) -> Callable[[Total], torch.Tensor]:
        def run(total: Total) -> torch.Tensor:
            try:
                with failing_together(rank, ranks, total):
                    if rank in errors:
                        raise errors[rank]
            except (NonFiniteError, ContractError) as error:
                found[rank] = f"{type(error).__name__}: {error}"
            return torch.zeros(1)

        return run

    Ranks(ranks).run([work(rank) for rank in range(ranks)])
    return found


def test_where_none_fails_all_go_on() -> None:
    assert heard({}) == ["", "", ""]


def test_the_error_of_one_is_raised_by_all() -> None:
    assert heard({1: NonFiniteError("the loss is naïve")}) == ["NonFiniteError: rank 1: the loss is naïve"] * 3


def test_of_several_errors_the_first_rank_s_is_raised() -> None:
    given = {2: NonFiniteError("late"), 1: ContractError("advantage of plugin x: holds NaN")}
    assert heard(given) == ["ContractError: rank 1: advantage of plugin x: holds NaN"] * 3


def test_a_text_of_any_length_arrives_cut() -> None:
    (one, *others) = heard({0: NonFiniteError("é" * 5000)})
    assert one == others[0] == others[1]
    assert 900 < len(one) < 1100


def test_alone_an_error_is_what_it_was() -> None:
    error = NonFiniteError("alone")
    with pytest.raises(NonFiniteError) as raised, failing_together(0, 1, _never):
        raise error
    assert raised.value is error


def _never(tensor: torch.Tensor) -> torch.Tensor:
    raise AssertionError("one rank has nobody to ask")
