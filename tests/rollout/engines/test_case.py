"""Case: how often a request is asked again, and when it, and not its engines, is at fault."""

import pytest

from slime_core.catalog.catalog import Used
from slime_core.errors import RequestError, WorkerError
from slime_core.rollout import CheckedEngine
from slime_core.rollout.engine_member import MOST_LOST, Case, Cause, Member, Quarantine, told


def member(number: int, cause: Cause = Cause.DIED) -> Member:
    engine = CheckedEngine(Used("none", "tests", object()))  # type: ignore[arg-type]  # nobody asks it
    return Member(number, engine, Quarantine(cause, "killed by SIGKILL"))


def test_one_that_two_engines_died_of_is_asked_alone() -> None:
    case = Case()
    assert (case.is_suspect, case.is_to_be_tried) == (False, False)
    case.lose(member(0), 1, out=set(), alone=False)
    assert (case.is_suspect, case.is_to_be_tried) == (True, False)
    case.lose(member(1, Cause.HUNG), 2, out=set(), alone=False)
    assert (case.is_suspect, case.is_to_be_tried) == (True, True)


@pytest.mark.parametrize("cause", [Cause.SLOW, Cause.GARBAGE, Cause.ERRORS, Cause.STALE])
def test_an_engine_that_was_taken_out_for_itself_casts_no_suspicion(cause: Cause) -> None:
    case = Case()
    case.lose(member(0, cause), 1, out=set(), alone=True)
    assert not case.is_suspect


def test_two_that_died_of_nothing_else_one_after_the_other_are_enough() -> None:
    case, first, second = Case(), member(0), member(1)
    case.lose(first, 1, out={first}, alone=True)
    with pytest.raises(RequestError) as raised:
        case.lose(second, 2, out={first, second}, alone=True)
    first_line, *lines = str(raised.value).splitlines()
    assert first_line.startswith("2 engines died or hung over one request, 2 of them while they were asked nothing")
    assert lines == ["  engine 0 died: killed by SIGKILL", "  engine 1 died: killed by SIGKILL"]


@pytest.mark.parametrize(
    ("deaths", "others", "alone"),
    [(3, 0, True), (2, 1, True), (2, 0, False)],
    ids=["another died meanwhile", "another is out", "it was at something else"],
)
def test_what_may_have_another_reason_counts_from_the_beginning(deaths: int, others: int, alone: bool) -> None:
    case, first, second, third, fourth = Case(), *(member(number) for number in range(4))
    case.lose(first, 1, out={first}, alone=True)
    case.lose(second, deaths, out={first, second, *[member(9)] * others}, alone=alone)
    case.lose(third, deaths + 1, out={third}, alone=True)
    with pytest.raises(RequestError, match="4 engines died or hung over one request, 2 of them"):
        case.lose(fourth, deaths + 2, out={fourth}, alone=True)


def test_no_request_may_cost_engines_without_end() -> None:
    case = Case()
    for number in range(MOST_LOST - 1):
        case.lose(member(number), number, out=set(), alone=False)
    with pytest.raises(RequestError, match=f"{MOST_LOST} engines died or hung over one request, 0 of them"):
        case.lose(member(99), 99, out=set(), alone=False)


def test_what_three_engines_fail_fails_and_leaves_none_in_doubt() -> None:
    case, members = Case(), [member(number) for number in range(3)]
    errors = [ValueError(str(number)) for number in range(3)]
    for each, error in zip(members[:2], errors, strict=False):
        case.fail(each, error)
    assert case.members == members[:2]
    assert [each.doubts for each in members] == [1, 1, 0]
    with pytest.raises(ValueError, match="2"):
        case.fail(members[2], errors[2])
    case.close()
    case.close()
    assert [each.doubts for each in members] == [0, 0, 0]
    assert case.members == []


def test_our_own_errors_speak_for_themselves_and_others_by_name() -> None:
    assert told(WorkerError("engine 3 died")) == "engine 3 died"
    assert told(KeyError("x")) == "KeyError: 'x'"
