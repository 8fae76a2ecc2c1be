"""Dispatch: who takes a request, by who is at what; nothing runs here."""

from collections.abc import Callable

import pytest

from slime_core.catalog.catalog import Used
from slime_core.roles import GenerateRequest, SamplingParams
from slime_core.rollout import CheckedEngine
from slime_core.rollout import engine_health as _dispatch
from slime_core.rollout.engine_health import AHEAD, CANDIDATES, Dispatch
from slime_core.rollout.engine_member import Member
from slime_core.sample import GroupId

SIZE = 20
"""Tokens of each request here: 4 of the prompt and at most 16 new ones."""


def member(number: int, work: int = 0, **counts: int) -> Member:
    engine = CheckedEngine(Used("none", "tests", object()))  # type: ignore[arg-type]  # nobody asks it
    return Member(number, engine, work=work, **counts)  # type: ignore[arg-type]


def dispatch(*members: Member) -> Dispatch:
    made = Dispatch()
    for each in members:
        made.add(each)
    return made


def asked(group: int | None = None, session: str | None = None) -> GenerateRequest:
    group_id = None if group is None else GroupId("x", 0, group, group)
    return GenerateRequest([1, 2, 3, 4], SamplingParams(16), 0, group_id, session=session)


def test_nobody_takes_what_nobody_serves() -> None:
    assert Dispatch().choose(asked()) is None
    assert Dispatch().choose_again([], suspect=False) is None


def test_the_only_one_takes_everything() -> None:
    lone = member(3, work=10_000, doubts=4)
    assert dispatch(lone).choose(asked(1, "s")) is lone


def test_the_least_busy_takes_a_request_and_the_lowest_number_of_equals() -> None:
    first, second, third = member(0, work=5), member(1, work=2), member(2, work=2)
    made = dispatch(third, first, second)
    assert made.members == [first, second, third]
    assert made.choose(asked()) is second
    second.doubts = 1
    assert made.choose(asked()) is third


@pytest.mark.parametrize("of", [lambda: asked(group=1), lambda: asked(session="s")], ids=["group", "session"])
def test_what_belongs_together_stays_until_its_engine_is_too_far_behind(of: Callable[[], GenerateRequest]) -> None:
    first, second = member(0), member(1)
    made = dispatch(first, second)
    assert made.choose(of()) is first
    first.work = AHEAD * SIZE
    assert made.choose(of()) is first
    first.work += 1
    assert made.choose(of()) is second
    first.work, second.work = 0, 1
    assert made.choose(of()) is second  # where it is now


def test_an_engine_in_doubt_keeps_nothing() -> None:
    first, second = member(0), member(1)
    made = dispatch(first, second)
    assert made.choose(asked(group=1)) is first
    first.doubts = 1
    assert made.choose(asked(group=1)) is second


def test_a_session_begins_with_its_group_and_goes_its_own_way() -> None:
    first, second = member(0), member(1)
    made = dispatch(first, second)
    assert made.choose(asked(group=1)) is first
    first.work = 1
    assert made.choose(asked(1, "s")) is first
    first.work = AHEAD * SIZE + 1
    assert made.choose(asked(group=1)) is second
    first.work = 0
    assert made.choose(asked(1, "s")) is first
    assert made.choose(asked(1, "t")) is second


def test_who_is_reserved_or_gone_takes_nothing_and_keeps_no_group() -> None:
    first, second, third = member(0), member(1, work=1), member(2, work=2)
    made = dispatch(first, second, third)
    assert made.choose(asked(group=1)) is first
    with made.reserved(first):
        assert made.members == [first, second, third]
        assert made.choose(asked(group=1)) is second
        assert made.choose_again([second], suspect=False) is third
    assert made.choose(asked(group=1)) is second
    assert made.choose(asked()) is first
    with made.reserved(first):
        made.remove(first)
    assert made.members == [second, third]
    assert made.choose(asked()) is second


def test_others_are_asked_again_and_suspects_kept_apart() -> None:
    first, second, third = member(0, work=1), member(1, work=2, suspects=1), member(2, work=3)
    made = dispatch(first, second, third)
    assert made.choose_again([first], suspect=False) is second
    assert made.choose_again([first], suspect=True) is third
    assert made.choose_again([first, second, third], suspect=True) is None


def test_of_many_engines_so_many_are_looked_at_in_turn() -> None:
    members = [member(number, work=number) for number in range(2 * CANDIDATES + 3)]
    made = dispatch(*members)
    assert [made.choose(asked()) for _ in range(4)] == [
        members[0],
        members[CANDIDATES],
        members[0],  # three at the end, and the first again
        members[CANDIDATES - 3],
    ]


def test_few_enough_are_all_looked_at_each_time() -> None:
    made = dispatch(*(member(number, work=9 - number % 9) for number in range(CANDIDATES)))
    assert {made.choose(asked()).number for _ in range(3)} == {8}  # type: ignore[union-attr]


def test_no_more_groups_are_remembered_than_so_many_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dispatch, "MOST_HOMES", 2)
    first, second = member(0), member(1, work=1)
    made = dispatch(first, second)
    for group in (1, 2, 3):
        assert made.choose(asked(group)) is first
    first.work = 2
    assert made.choose(asked(2)) is first
    assert made.choose(asked(3)) is first
    assert made.choose(asked(1)) is second
