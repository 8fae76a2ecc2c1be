r"""Words that only finish the sentence of a box, and forms that say the same: each with its look-alikes that do not."""

import pytest

from slime_reward_math import compare, grade

FINISHES = ("every evening", "each morning", "every single day", "every Sunday")
LEFT = ("remains", "survives", "works", "is left", "remains in the end", "is left over")
NOT_LEFT = ("remains unproven", "remains to be checked", "remains only when n is even", "never remains")
SCALED = [
    (r"\left(\frac35,\frac45\right)", r"\frac15(3,4)", True),
    (r"\frac15(3,4)", r"\left(\frac35,\frac45\right)", True),
    (r"(3/5,4/5)", r"\frac{(3,4)}{5}", True),
    (r"(-3/5,-4/5)", r"-\frac15(3,4)", True),
    (r"\begin{pmatrix}3/5\\4/5\end{pmatrix}", r"\frac15(3,4)", True),
    (r"\left(\frac35,\frac45\right)", r"\frac15(4,3)", False),
    (r"\left(\frac35,\frac45\right)", r"\frac15(3,4,0)", False),
    (r"(3/5,4/5)", r"-\frac15(3,4)", False),
    (r"\begin{pmatrix}-2&1\\3/2&-1/2\end{pmatrix}", r"-\frac12\begin{pmatrix}4&-2\\-3&1\end{pmatrix}", True),
    (r"\begin{pmatrix}-2&1\\3/2&-1/2\end{pmatrix}", r"\frac12\begin{pmatrix}4&-2\\-3&1\end{pmatrix}", False),
    (r"\begin{pmatrix}-2&1\\3/2&-1/2\end{pmatrix}", r"-\frac12\begin{pmatrix}4&-2\\3&1\end{pmatrix}", False),
]
CASES = [
    ("2 if n is even, 0 if n is odd", "1+(-1)^n", True),
    ("0 if n is odd, 2 if n is even", "1+(-1)^n", True),
    ("2 if n is even, 0 if n is odd", "1-(-1)^n", False),
    ("2 if n is odd, 0 if n is even", "1+(-1)^n", False),
    (r"\max(a,b)", r"\begin{cases}a & a\ge b\\b & a<b\end{cases}", True),
    (r"\begin{cases}a & a\ge b\\b & a<b\end{cases}", r"\max(a,b)", True),
    (r"\max(a,b)", r"\begin{cases}a & \text{if } a > b\\b & \text{otherwise}\end{cases}", True),
    (r"\min(a,b)", r"\begin{cases}a & a\le b\\b & a>b\end{cases}", True),
    (r"\min(a,b)", r"\begin{cases}a & a\ge b\\b & a<b\end{cases}", False),
    (r"\max(a,b)", r"\begin{cases}b & \text{if } a > b\\a & \text{otherwise}\end{cases}", False),
    (r"\max(a,b)", r"\begin{cases}a & a>b\\b & a>b\end{cases}", False),
    (r"\max(a,c)", r"\begin{cases}a & a\ge b\\b & a<b\end{cases}", False),
]
COUNTED = [
    (r"p \equiv 1 \pmod 4", r"p=4k+1 \text{ for some integer } k", True),
    (r"p \equiv 1 \pmod 4", r"p=4k+1 \text{ where } k \text{ is an integer}", True),
    (r"p=4k+1 \text{ for some integer } k", r"p \equiv 1 \pmod 4", True),
    (r"p \equiv 1 \pmod 4", r"p=4k+3 \text{ for some integer } k", False),
    (r"p \equiv 1 \pmod 4", r"p=4k+1 \text{ for some prime } k", False),
    (r"p \equiv 1 \pmod 4", r"p=8k+1 \text{ for some integer } k", False),
]


@pytest.mark.parametrize("words", FINISHES)
def test_how_often_something_is_leaves_the_box_alone(words: str) -> None:
    assert grade("90", rf"She reads for $\boxed{{90\text{{ minutes}}}}$ {words}.").correct
    assert not grade("90", rf"She reads for $\boxed{{80\text{{ minutes}}}}$ {words}.").correct


@pytest.mark.parametrize("words", LEFT)
def test_what_is_left_when_others_are_thrown_out_is_the_answer(words: str) -> None:
    said = rf"The candidate $x=-2$ is extraneous and is rejected. Hence only $\boxed{{x=3}}$ {words}."
    assert grade("x=3", said).correct
    assert not grade("x=-2", said).correct
    assert not grade("x=3", said + " Wait, that is wrong.").correct


@pytest.mark.parametrize("words", NOT_LEFT)
def test_what_is_said_of_what_is_left_still_counts(words: str) -> None:
    assert not grade("x=3", rf"So $\boxed{{x=3}}$ {words}.").correct


def test_an_answer_that_would_be_if_only_something_held_is_none() -> None:
    denied = "Since it doesn't, the limit does not exist, and that is my final answer."
    said = rf"So the answer would be \boxed{{1}}, if only the left-hand limit agreed. {denied}"
    assert not grade("1", said).correct
    assert grade("1", r"So the answer is \boxed{1}, since the left-hand limit agrees.").correct


@pytest.mark.parametrize(("gold", "answer", "right"), [*SCALED, *CASES, *COUNTED])
def test_forms_that_say_the_same_are_the_same(gold: str, answer: str, right: bool) -> None:
    assert compare(gold, answer).correct is right
