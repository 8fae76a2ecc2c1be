"""Words beside a value: operators are applied, comparisons are sets, denials refused, units and names not seen."""

import itertools
import random

import pytest

from slime_reward_math import Outcome, compare, grade
from slime_reward_math.cases import box

HEDGED = {
    "5": """at most 5; fewer than 5; all except 5; cannot be 5; half of 5; 5 squared; multiples of 5; 5 dozen; up to 5;
        more than 5; no more than 5; at least 5; less than 5; 5 or more; 5 or fewer; 5 and up; 5 at most; between 5;
        double 5; thrice 5; 5 cubed; reciprocal of 5; opposite of 5; 5 percent of; 5 hundred; 5 thousand; almost 5;
        nearly 5; maybe 5; either 5; never 5; anything but 5; excluding 5; other than 5; 5 unless n=2; 5 only if n=2;
        5 halves; 5 tenths; divisible by 5; power of 5; cube root of 5; one less than 5; 5 plus 1; 5 minus 1;
        5 less than 12; 5 mod; pairs of 5; 5 percent of 60; 5 does not work; 5 fails; 5 possibly; 5 (rejected);
        5 (not possible); 5 (at most); 5 if n is even, else 0; 5 if n is even and 7 if n is odd; square of 5;
        factorial of 5; 5 with remainder 2; 5 is excluded; the answer is not 5; a third of 5; three times 5;
        two more than 5; without 5; instead of 5; 5 is a wrong guess; 5 cannot occur; close to 5; any 5; every 5""",
    "3": """negative 3; minus 3; twice 3; square root of 3; 3 factorial; 3 is impossible; 3 is extraneous; 3 squared""",
    "7": "7 with remainder 2; 7 remainder 2; 7 mod 2; 7 choose 2; 7 over 2; 7 to the power of 2",
    "x=2": "x=2 is extraneous; x=2 is rejected; x=2 does not work; x is not 2; x=2 or more; x=twice 2; x=at most 2",
    "Yes": "Yes, unless n=2; Yes unless n=2; Yes, but only if n>2; Yes, except for n=2; Yes or no; Yes if n>2",
    "No": "No, except for n=2; No, unless it is prime; No or yes",
    "2x": "2x if n is even else 0; 2x if n is even, 0 otherwise; 2x for n>0, x for n<0; 2x squared; half of 2x",
    "B": "(B) is wrong; (B) is not correct; B or C; not B",
    "(1,2)": "not (1,2); all except (1,2); (1,2) is excluded; (1,2) is extraneous",
    "[1,2]": "everything except [1,2]; [1,2] is impossible; outside of neither [1,2]",
}


def wrapped(answer: str) -> list[str]:
    r"""An answer as it is, in `\text`, and with the words alone in `\text`."""
    pieces = [
        "".join(group) for _, group in itertools.groupby(answer, key=lambda sign: sign.isdigit() or sign in "=()[]")
    ]
    words = "".join(rf"\text{{{each}}}" if any(sign.isalpha() for sign in each) else each for each in pieces)
    return [answer, rf"\text{{{answer}}}", words]


@pytest.mark.parametrize(
    ("gold", "hedged"), [(g, " ".join(a.split())) for g, row in HEDGED.items() for a in row.split(";")]
)
def test_an_answer_that_is_hedged_is_not_paid(gold: str, hedged: str) -> None:
    for answer in wrapped(hedged):
        assert not compare(gold, answer).correct, answer


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("-3", r"\text{negative }3"),
        ("-3", "minus 3"),
        ("-3", r"\text{minus three}"),
        ("6", r"\text{twice }3"),
        ("25", r"5\text{ squared}"),
        ("6", r"3\text{ factorial}"),
        ("\\sqrt{3}", r"\text{the square root of }3"),
        ("60", r"5\text{ dozen}"),
        ("500", r"5\text{ hundred}"),
        ("\\frac{5}{2}", r"\text{half of }5"),
        ("\\frac{1}{5}", r"\text{the reciprocal of }5"),
        ("x\\le 5", r"\text{at most }5"),
        ("x>5", r"\text{more than }5"),
        ("[5,\\infty)", r"5\text{ or more}"),
        ("(-\\infty,5)", r"\text{fewer than }5"),
        ("3", r"30\text{ percent of }10"),
        ("7", r"5\text{ plus }2"),
        ("11\\text{ R }3", r"11\text{ with remainder }3"),
        ("\\text{cannot be }5", r"\text{cannot be } 5"),
        ("3", r"\text{one less than }4"),
        ("35", r"7\text{ choose }3"),
        ("\\text{at most }5", r"\text{no more than }5"),
        ("150", r"\text{one hundred fifty}"),
        ("\\frac23", r"\text{two thirds}"),
    ],
)
def test_what_words_do_is_done(gold: str, answer: str) -> None:
    assert compare(gold, answer).correct


ORDINARY = """5 apples; 5 cm; the answer is 5; 5 ways; exactly 5; only 5; total of 5; 5 in total; 5 people; 5 solutions;
    there are 5 solutions; 5 of them; 5 points per game; 5 miles per hour; 5 dollars; 5 more apples; 5 each; 5
    sides; 5 possible values; 5 even numbers; 5 ordered pairs; 5 multiples; 5 squares; 5 square units; the sum
    is 5; radius is 5; The minimum value is 5; maximum 5; 5 is the answer; 5 when x=2; 5 different ways; 5
    negative integers; 5 roots; an area of 5; a radius of 5; the square of the radius is 5; approximately 5; 5
    (maximum); 5 real solutions; 5 is the maximum value; Therefore the answer is 5; x is 5; the least value is
    5; 5 units; 5 hours; 5 cubic meters; side length 5; the probability is 5; he has 5; Answer: 5; simplifies
    to 5; 5 times; 5 years; 5 months; 5 positive divisors; 5 works; the number of ways is 5; 5 is correct;
    about 5; 5 trips; the value of x is 5"""


@pytest.mark.parametrize("answer", [" ".join(each.split()) for each in ORDINARY.split(";")])
def test_a_name_or_a_unit_is_not_seen(answer: str) -> None:
    pieces = answer.partition("5")
    words = "".join(rf"\text{{{each}}}" if any(map(str.isalpha, each)) and "=" not in each else each for each in pieces)
    assert compare("5", words).correct, words
    assert compare("5", rf"\text{{{answer}}}").correct


AHEAD = """not; cannot be; never; at most; at least; less than; more than; fewer than; no more than; up to; half of;
    twice; double; thrice; the square of; the cube of; the square root of; the reciprocal of; minus; negative;
    all except; anything but; other than; multiples of; divisors of; powers of; factors of; one more than; two
    less than; almost; nearly; maybe; perhaps; either; neither; between; excluding; without; a third of; three
    times; is not; must not be; not equal to; different from; unlike; unless; greater than; larger than;
    smaller than; below; above; under; over; exceeding; the opposite of; the negative of; ten percent of;
    somewhere near; anything under; hardly; possibly; in excess of; no fewer than; strictly less than; three more
    than; a quarter of; the cube root of; just below; just over; nowhere near; neither; at the very least; a multiple
    of; the complement of; as many as; all numbers up to; any number over; the sum of 1 and"""
BEHIND = """squared; cubed; factorial; or more; or less; or fewer; at most; at least; is wrong; is not correct; is
    impossible; is extraneous; is excluded; does not work; cannot be; fails; is rejected; dozen; hundred;
    thousand; million; halves; thirds; tenths; unless n = 2; only if n = 2; if n is even, else 0; if n is
    even, 1 otherwise; plus 1; minus 1; times 2; over 2; divided by 2; mod 2; with remainder 1; to the power
    of 2; and up; possibly; maybe; (rejected); (not valid); is ruled out; isn't valid; is never reached; would
    be wrong; may be wrong; is invalid; contradicts this; , but not really; is too large; is off by one; is an
    overestimate; or thereabouts; at the very most; is only a guess; tenths; raised to the third power; less than
    12; is nonsense; is out of range; is to be rejected; short of 20; does not satisfy it; only when n is odd"""
RIGHT = """5; 12; 340; -7; \\frac{2}{3}; \\frac{7}{2}; 2\\sqrt{3}; \\pi; 3.25; 45\\%; 30^\\circ; x=5; n=12; x+3; 2x;
    x^2-4; (3,4); (1,2,3); \\{3,4\\}; [2,5]; 3,4; 2^{10}; e^2; y=2x+1; x<7; 5\\text{ cm}"""


def listed(text: str) -> list[str]:
    return [" ".join(each.split()) for each in text.split(";")]


def test_no_word_that_changes_a_right_answer_is_paid() -> None:
    # Every gold with every word on both sides, in three ways of writing; two words at a time where one was not enough.
    paid = []
    for gold, words in itertools.product(listed(RIGHT), listed(AHEAD)):
        paid += [
            (gold, each) for each in (rf"\text{{{words} }}{gold}", f"{words} {gold}") if compare(gold, each).correct
        ]
    for gold, words in itertools.product(listed(RIGHT), listed(BEHIND)):
        paid += [
            (gold, each) for each in (rf"{gold}\text{{ {words}}}", f"{gold} {words}") if compare(gold, each).correct
        ]
    assert paid == []


def test_no_two_words_that_change_a_right_answer_are_paid() -> None:
    # Not minus minus: two words may undo each other, so no operator stands beside another.
    draw = random.Random(5)
    refusing = ["not", "cannot be", "at most", "all except", "never", "almost", "multiples of", "maybe", "fewer than"]
    denying = [
        "is wrong",
        "is impossible",
        "or more",
        "unless n = 2",
        "is extraneous",
        "fails",
        "possibly",
        "(rejected)",
    ]
    for _ in range(600):
        gold, before, behind = draw.choice(listed(RIGHT)), draw.choice(refusing), draw.choice(listed(BEHIND))
        opening = draw.choice(["", "the answer is ", "Hence it is ", "exactly "])
        one = rf"\text{{{opening}{before} }}{gold}\text{{ {behind}}}"
        two = rf"\text{{{opening}{draw.choice(listed(AHEAD))} }}{gold}\text{{ {draw.choice(denying)}}}"
        assert not compare(gold, one).correct, one
        assert not compare(gold, two).correct, two


@pytest.mark.parametrize(
    "response",
    [
        r"$n=\boxed{5}$ is not possible, so there is no solution",
        r"the answer is not \boxed{5}",
        r"\boxed{5} cannot be",
        r"\boxed{5}. But that is impossible.",
        r"$\boxed{5}$ is extraneous",
        r"$\boxed{5}$ does not satisfy the equation",
        r"$$\boxed{5}$$ Wait, that is wrong.",
        r"\[\boxed{5}\] is wrong",
        r"$x=\boxed{5}$ is rejected, since $x<0$",
        r"$x=\boxed{5}$ contradicts the assumption",
    ],
)
def test_a_box_that_its_sentence_takes_back_is_no_answer(response: str) -> None:
    found = grade("5", response)
    assert (found.outcome, found.reason) == (Outcome.WRONG, "the box is taken back")


@pytest.mark.parametrize(
    "response",
    [
        r"so \boxed{5}.",
        r"\boxed{5}, which is not a coincidence",
        r"The answer is $\boxed{5}$. This is not surprising.",
        r"$\boxed{5}$ is the answer",
        r"I am not sure but \boxed{5}",
        r"$\boxed{5}$ ways. This is not 6.",
        r"It is not 6. \boxed{5}",
        r"Not possible otherwise, so the answer is \boxed{5}. It is impossible to do better.",
        r"$\boxed{5}$ is correct.",
        r"$\boxed{5}$ is the only value that is not excluded",
    ],
)
def test_a_box_that_stands_is_an_answer(response: str) -> None:
    assert grade("5", response).correct


def test_a_box_says_what_its_formula_says() -> None:
    assert not grade("5", r"$x \ne \boxed{5}$").correct
    assert grade(r"x\ne 5", r"$x \ne \boxed{5}$").correct


def test_the_box_says_what_it_says() -> None:
    assert not grade("5", box(r"\text{at most }5")).correct
    assert grade("5", box(r"5\text{ apples}")).correct
