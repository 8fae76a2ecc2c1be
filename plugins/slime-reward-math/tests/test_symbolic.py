"""The symbolic tier: what it decides, and that nothing that it is given hangs, crashes or outgrows its process."""

import threading
from collections.abc import Callable, Iterator

import pytest

from slime_core import Score, Unscored
from slime_reward_math import Outcome, compare
from slime_reward_math.read import read
from slime_reward_math.symbolic import Settler, Workers
from slime_reward_math.symbolic.workers import packed, unpacked
from slime_reward_math.tree import Node, Tree, number
from tests.tables import table


@pytest.fixture(scope="module")
def settler() -> Iterator[Settler]:
    made = Settler(timeout_s=20.0)
    yield made
    made.close()


RIGHT = (
    (r"\frac{\pi^2}{6}", r"\sum_{n=1}^{\infty}\frac{1}{n^2}"),
    ("2", r"\sum_{n=0}^\infty \frac{1}{2^n}"),
    (r"\frac{1}{3}", r"\int_0^1 x^2\,dx"),
    ("e", r"\lim_{n\to\infty}\left(1+\frac1n\right)^n"),
    ("3x^2", r"\frac{d}{dx}x^3"),
    (r"\{1, \frac{1}{2}\}", r"\{\int_0^1 x\,dx, 1\}"),
)
WRONG = (
    (r"\frac{\pi^2}{8}", r"\sum_{n=1}^{\infty}\frac{1}{n^2}"),
    ("1", r"\sum_{n=0}^\infty \frac{1}{2^n}"),
    (r"\frac{1}{2}", r"\int_0^1 x^2\,dx"),
    ("x^2", r"\frac{d}{dx}x^3"),
)


@table("gold, answer", RIGHT)
def test_what_is_equal_by_algebra_is_correct(settler: Settler, gold: str, answer: str) -> None:
    first = compare(gold, answer)
    assert first.outcome is Outcome.UNDECIDED
    assert settler(first).outcome is Outcome.CORRECT


@table("gold, answer", WRONG)
def test_what_differs_by_algebra_is_wrong(settler: Settler, gold: str, answer: str) -> None:
    assert settler(compare(gold, answer)).outcome is Outcome.WRONG


def test_what_is_decided_is_left_alone(settler: Settler) -> None:
    for gold, answer in (("1", "1"), ("1", "2"), ("x", "y")):
        assert settler(compare(gold, answer)) is compare(gold, answer)


def test_a_slope_is_not_zero(settler: Settler) -> None:
    grade = compare("0", r"\frac{dy}{dx}")
    assert settler(grade).outcome is not Outcome.CORRECT


@table("text", [r"\frac{1}{2}x^2 < \sin y", r"\lim_{x\to 0^+} x", r"\text{no} ", "f(x, -3.5)"])
def test_trees_come_back_from_the_wire(text: str) -> None:
    tree = read(text)
    found = packed(tree)
    assert found is not None
    assert unpacked(found) == tree


def test_a_tree_that_is_too_large_is_not_sent() -> None:
    assert packed(Node("+", tuple(map(number, range(400))))) is None
    assert packed(number(2**5000)) is None


def tower() -> Tree:
    """Sympy would compute this for ever: nothing here guards it but the process's limits."""
    return read(r"\int_0^1 \sin(\cos(\tan(e^{x^x})))^{x^{\pi x}} \ln(\Gamma(x+1)) \,dx")


def test_a_pair_that_takes_too_long_is_given_up_and_its_process_replaced() -> None:
    with Workers(count=1, timeout_s=0.2) as workers:
        assert workers.equal(tower(), number(1)) is None
        assert workers.killed == 1
    with Workers(count=1, timeout_s=20.0) as workers:
        assert workers.equal(read(r"\int_0^1 x\,dx"), read(r"\frac{1}{2}")) is True


def test_a_process_that_needs_too_much_memory_ends_alone() -> None:
    # Too little to import sympy: the worker ends, the caller is told nothing, and goes on.
    with Workers(count=1, timeout_s=5.0, memory_mb=16) as workers:
        assert workers.equal(number(1), number(2)) is None
        assert workers.killed == 1


def test_text_is_never_given_to_sympy() -> None:
    with Workers(count=1, timeout_s=20.0) as workers:
        for text in ("__import__('os')", "open", "lambda"):
            assert workers.equal(Node(f"call:{text}", (number(1),)), Node(f"call:{text}", (number(2),))) is not True
        assert workers.killed == 0


def test_threads_share_the_workers(settler: Settler) -> None:
    found: list[Outcome] = []

    def ask() -> None:
        found.append(settler(compare(*RIGHT[2])).outcome)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [Outcome.CORRECT] * 4


def test_a_reward_settles_what_is_undecided_in_a_thread(score: Callable[..., object]) -> None:
    response = rf"so \boxed{{{RIGHT[2][1]}}}"
    assert isinstance(score("math", RIGHT[2][0], response), Unscored)
    settled = score("math", RIGHT[2][0], response, symbolic=True, symbolic_timeout_s=20.0)
    assert settled == Score(1.0, {"correct": 1.0, "answered": 1.0})
