"""Accounts: what the moves add up to, before and after a resume."""

import json

import pytest

from slime_core.run import GroupState, LedgerError
from slime_core.run import ledger as module
from slime_core.run.ledger import Accounts, SavedAccounts
from slime_core.sample import GroupId
from tests.tables import table


def ids(*numbers: int) -> dict[GroupId, str]:
    return {GroupId("train", 0, number, number): "" for number in numbers}


def moved(accounts: Accounts, *numbers: int, to: GroupState = GroupState.BUFFERED) -> Accounts:
    for state in (GroupState.DRAWN, GroupState.FINISHED, GroupState.BUFFERED):
        accounts.move(state, ids(*numbers))
        if state is to:
            break
    return accounts


def resumed(accounts: Accounts) -> Accounts:
    saved = {"offset": 0, "sha256": "0" * 64, **json.loads(json.dumps(accounts.to_dict()))}
    return Accounts.restore(SavedAccounts.model_validate(saved), accounts.max_uses)


def test_a_resume_goes_on_with_every_number() -> None:
    accounts = moved(Accounts(3), 0, 1, 2, 3)
    accounts.move(GroupState.TRAINED, ids(0, 1))
    accounts.move(GroupState.TRAINED, ids(0))
    accounts.move(GroupState.TRAINED, ids(0))
    accounts.move(GroupState.DROPPED, dict.fromkeys(ids(3), "old"))
    moved(accounts, 7, to=GroupState.FINISHED)
    moved(accounts, 8, to=GroupState.DRAWN)
    again = resumed(accounts)
    assert again.to_dict() == accounts.to_dict()
    assert again.counts() == accounts.counts()
    assert (again.used, again.uses, again.reasons, again.recorded) == (
        accounts.used,
        accounts.uses,
        accounts.reasons,
        accounts.recorded,
    )
    again.check(buffered=2, in_flight=1, finished=1)
    assert again.move(GroupState.TRAINED, ids(1, 2)) == [2, 1]
    assert again.move(GroupState.TRAINED, ids(1)) == [3]
    assert again.used == {3: 2}


@table("buffered, in_flight, finished", [(3, 1, 1), (2, 2, 1), (2, 1, 2), (1, 1, 1), (0, 0, 0)])
def test_parts_that_hold_another_number_are_named(buffered: int, in_flight: int, finished: int) -> None:
    accounts = moved(moved(moved(Accounts(1), 0, 1), 2, to=GroupState.FINISHED), 3, to=GroupState.DRAWN)
    accounts.check(buffered=2, in_flight=1, finished=1)
    says = f"{in_flight} groups are in flight, {finished} are finished and the buffer holds {buffered}, and the ledger"
    with pytest.raises(LedgerError, match=says):
        accounts.check(buffered=buffered, in_flight=in_flight, finished=finished)


def test_reasons_beyond_so_many_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_REASONS", 2)
    accounts = moved(Accounts(1), *range(6))
    reasons = ["a", "b", "c", "a", "d", "b"]
    accounts.move(GroupState.DROPPED, dict(zip(ids(*range(6)), reasons, strict=True)))
    assert accounts.reasons == {"a": 2, "b": 2, "other reasons": 2}


def test_a_group_that_came_or_went_without_a_move_is_missed() -> None:
    accounts = moved(Accounts(1), 0, 1)
    accounts.recorded["drawn"] += 1
    with pytest.raises(LedgerError, match="3 groups were drawn, and the ledger says"):
        accounts.check(buffered=2, in_flight=0, finished=0)
    accounts.recorded["drawn"] -= 1
    accounts.live.popitem()
    with pytest.raises(LedgerError, match="2 groups were drawn, and the ledger says"):
        accounts.check(buffered=1, in_flight=0, finished=0)
