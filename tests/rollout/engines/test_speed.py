"""Speed: the least and the most that an engine can have been, and who is slow beside others."""

import pytest

from slime_core.rollout.engine_member import ENOUGH, NOTICEABLE_S, TIMES, WINDOW, Speed, slow_ones


def answered(answers: int, tokens: int, seconds: float) -> Speed:
    speed = Speed()
    for _ in range(answers):
        speed.answer(tokens, seconds)
    return speed


def test_an_answer_is_its_tokens_and_one_more_over_its_time() -> None:
    speed = answered(4, 9, 5.0)
    assert speed.at_least(100.0) == speed.at_most(100.0) == pytest.approx(10 / 5)


def test_what_runs_may_have_made_nothing_or_all_of_its_budget() -> None:
    speed = answered(1, 9, 5.0)
    speed.begin(19, 10.0)
    speed.begin(29, 12.0)
    assert speed.at_least(15.0) == pytest.approx(10 / (5 + 5 + 3))
    assert speed.at_most(15.0) == pytest.approx((10 + 20 + 30) / (5 + 5 + 3))
    speed.drop(29, 12.0)
    assert speed.at_most(15.0) == pytest.approx((10 + 20) / (5 + 5))
    speed.drop(19, 10.0)
    assert (speed.running, speed.budget, speed.began) == (0, 0.0, 0.0)
    assert speed.at_most(15.0) == pytest.approx(10 / 5)


def test_old_answers_weigh_half() -> None:
    speed = answered(WINDOW - 1, 9, 1.0)
    assert speed.answers == WINDOW - 1
    speed.answer(9, 1.0)
    assert (speed.answers, speed.tokens, speed.seconds) == (WINDOW / 2, WINDOW * 10 / 2, WINDOW / 2)


@pytest.mark.parametrize(("answers", "seconds", "telling"), [(8, 2.0, True), (7, 9.0, False), (8, 1.9, False)])
def test_so_many_answers_of_so_many_seconds_are_telling(answers: int, seconds: float, telling: bool) -> None:
    assert (ENOUGH, NOTICEABLE_S) == (8, 2.0)
    assert answered(answers, 9, seconds).is_telling(1000.0) == telling


def test_requests_under_way_are_telling_too() -> None:
    speed = answered(6, 9, 2.0)
    speed.begin(16, 0.0)
    speed.begin(16, 0.0)
    assert speed.is_telling(2.0)
    assert not speed.is_telling(1.5)


def test_nothing_is_slow_alone_or_beside_nobody_who_answered_enough() -> None:
    slow = answered(ENOUGH, 0, 1000.0)
    assert slow_ones([], 0.0) == {}
    assert slow_ones([slow], 0.0) == {}
    assert slow_ones([slow, answered(ENOUGH - 1, 99, 1.0)], 0.0) == {}
    assert set(slow_ones([slow, answered(ENOUGH, 99, 1.0)], 0.0)) == {0}


def test_slow_is_so_many_times_slower_than_the_usual_peer() -> None:
    assert TIMES == 20.0
    peers = [answered(ENOUGH, 99, 1.0), answered(ENOUGH, 199, 1.0), answered(ENOUGH, 0, 1.0)]  # 100, 200 and 1 a second
    at_the_limit, below = answered(ENOUGH, 9, 2.0), answered(ENOUGH, 9, 2.1)
    assert slow_ones([*peers, at_the_limit], 0.0) == {}
    assert slow_ones([*peers, below], 0.0) == {3: "it makes at most 4.8 tokens a second for a request, its peers 1e+02"}
