"""Hostile answers: nothing hangs, crashes, runs or is paid, wherever the grader is called from."""

import multiprocessing
import threading
import time
from pathlib import Path

import pytest

from slime_reward_math import Outcome, compare, grade
from slime_reward_math.cases import box, hostile
from slime_reward_math.grader import FAULT, forget
from slime_reward_math.match.matcher import Matcher
from slime_reward_math.tree import Tree
from tests.tables import table

MARKER = Path("/tmp/slime_reward_math_was_executed")
CASES = list(hostile())
GENEROUS_S = 2.0
"""Twice the deadline, of this thread's own time: the machine may be busy."""


@table("name, gold, response", CASES)
def test_hostile_answers_are_rejected_in_time(name: str, gold: str, response: str) -> None:
    start = time.thread_time()
    found = grade(gold, response)
    assert time.thread_time() - start < GENEROUS_S, name
    assert not found.correct, found
    assert not found.reason.startswith(FAULT), found


LONG = [
    r"\text{%s}5" % ("twice " * 1500),
    r"5\text{ %s}" % ("squared " * 1100),
    "5" + " plus 1" * 350,
    r"\text{%s of }5" % ("a" * 9000),
    r"\text{%s to }5" % ("simplif" * 1300),
    r"\text{%s}5" % ("at most " * 1200),
    r"\text{%s}" % ("one hundred " * 800),
    r"5\text{ if }n=1, " * 100,
    r"\text{the answer %s}5" % ("is " * 3000),
    r"\begin{cases}%s\end{cases}" % (r"5 & n=1\\" * 150),
]


@table("answer", LONG)
def test_endless_words_are_bounded(answer: str) -> None:
    start = time.thread_time()
    for gold in ("5", "|x|", r"\begin{cases}1 & n\text{ even}\\2 & n\text{ odd}\end{cases}"):
        found = compare(gold, answer)
        assert not found.correct
        assert not found.reason.startswith(FAULT), found.reason
    assert time.thread_time() - start < GENEROUS_S


def test_hostile_answers_execute_nothing() -> None:
    for case in CASES:
        grade(case.gold, case.response)
        compare(case.response[:2_000], "42")
    assert not MARKER.exists()


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_verdicts_are_the_same_in_another_process(method: str) -> None:
    pairs = [*RIGHT, *((case.gold, case.response) for case in CASES)]
    expected = [grade(gold, response).outcome for gold, response in pairs]
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.map(graded, pairs) == expected


RIGHT = [("1/2", box("0.5")), ("\\sqrt{2}", box("2^{1/2}"))]


def graded(pair: tuple[str, str]) -> Outcome:
    return grade(*pair).outcome


def test_threads_do_not_disturb_each_other() -> None:
    answers = [
        ("\\sqrt{2}+\\sqrt{3}", "\\sqrt{5+2\\sqrt{6}}", True),
        ("e^{\\pi\\sqrt{163}}", "262537412640768744", False),
    ]
    wrong: list[object] = []

    def work() -> None:
        for _ in range(60):
            for gold, answer, expected in answers:
                forget()
                if compare(gold, answer).correct is not expected:
                    wrong.append((gold, answer))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_deadline_that_has_passed_is_a_timeout() -> None:
    assert compare("x+1", "y+1", deadline_s=0.0).outcome is Outcome.TIMEOUT


def test_wall_clock_stalls_change_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def stalled(matcher: Matcher, gold: Tree, answer: Tree) -> bool:
        time.sleep(0.05)
        return decide(matcher, gold, answer)

    decide = Matcher.decide
    monkeypatch.setattr(Matcher, "decide", stalled)
    assert compare("x+1", "1+x", deadline_s=0.04).outcome is Outcome.CORRECT


def test_grader_fault_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("slime_reward_math.grader._by_tree", broken)
    forget()
    found = compare("x+y+1", "x")
    forget()
    assert (found.outcome, found.reason) == (Outcome.UNDECIDED, f"{FAULT}: KeyError")
