"""Seat: how long an engine that fell pauses, and what is told of it."""

import pytest

from slime_core.catalog.catalog import Used
from slime_core.rollout import CheckedEngine
from slime_core.rollout.engine_health import FIRST_PAUSE_S, LONGEST_PAUSE_S, SERVED_PAUSES, Seat
from slime_core.rollout.engine_member import Member


def member(number: int) -> Member:
    return Member(number, CheckedEngine(Used("none", "tests", object())))  # type: ignore[arg-type]  # nobody asks it


def test_pauses_double_up_to_the_longest() -> None:
    seat = Seat(0, member(0), since=1e9)
    paused = []
    for _ in range(40):
        seat.fall("died", 1e9)
        paused.append(seat.pause_s())
    assert paused[:4] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S, 8 * FIRST_PAUSE_S]
    assert paused[9:] == [LONGEST_PAUSE_S] * 31


@pytest.mark.parametrize(("served", "falls"), [(SERVED_PAUSES * 4.0, 1), (SERVED_PAUSES * 4.0 - 0.5, 4)])
def test_who_served_for_long_begins_with_a_short_pause(served: float, falls: int) -> None:
    seat = Seat(0, member(0), since=0.0)
    for _ in range(3):
        seat.fall("died", 0.0)
    assert (seat.falls, seat.pause_s()) == (3, 4.0)
    seat.rise(member(0), 100.0)
    seat.fall("died", 100.0 + served)
    assert seat.falls == falls


def test_why_it_fell_and_what_became_of_the_last_restart_is_told() -> None:
    seat, other = Seat(3, member(3), since=0.0), member(3)
    seat.fall("died: killed by SIGKILL", 0.0)
    assert seat.told == "engine 3: died: killed by SIGKILL"
    seat.falls, seat.restart = 4, "no port"
    assert seat.told == "engine 3: died: killed by SIGKILL; restart 3 failed: no port"
    seat.rise(other, 5.0)
    assert (seat.member, seat.since, seat.trouble) == (other, 5.0, "")
    seat.fall("hung", 6.0)
    assert seat.told == "engine 3: hung"
