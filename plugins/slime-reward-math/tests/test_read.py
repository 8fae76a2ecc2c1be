import contextlib
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime_reward_math.read import Grouping, Unread, clean, read
from slime_reward_math.tree import show
from tests.tables import table

PIECES = (
    r"\frac \sqrt \sin \log \left( \right) \{ \} { } ( ) [ ] | ^ _ + - * / = < \le \in \cup , ; : ! ' % & \\ \pm x y "
    r"n 1 2 34 0.5 1,234 \pi \infty \circ \text{and} \text{if} \text{cm} \begin{cases} \end{cases} d \int \mid "
    r"\begin{pmatrix} \sum_{k=1}^{n} \lim \binom{ \mathbb{R} \overline{ \vec{ \cdot \ldots . .. $ ~ \, \quad"
)


@table(
    "text, form",
    [
        (r"1\frac{1}{2}", "(1 + (1/2))"),
        (r"\frac12x", "((1/2)*x)"),
        (r"\frac1234", "((1/2)*34)"),
        (r"2\sin^2 x\cos y", "(2*(sin(x)^2)*cos(y))"),
        (r"\sqrt[3]{x}", "root(x, 3)"),
        (r"x^{2^{3}}", "(x^(2^3))"),
        (r"2^{k+1}-1", "((2^(k + 1)) + -1)"),
        (r"]1,2]", "(1, 2]"),
        (r"\{x \mid x>1\}", "such(x, x > 1)"),
        (r"1, 2 \text{ and } 3", "and(1, 2, 3)"),
        (r"0.1\overline{6}", "(1/6)"),
        (r"||x||", "abs(abs(x))"),
        (r"f(x)=2", "f(x) = 2"),
        (r"a(b+c)", "(a*(b + c))"),
        (r"12^{\text{th}}", "12"),
        (r"\int_0^1 x\,dx", "int(x, x, 0, 1)"),
        (r"\text{Max: } 2", "label('max', 2)"),
        (r"5\text{ m/s}^2", "unit(5, 'm/s^2')"),
        ("3128 1/2", "(3128 + (1/2))"),
        ("2pi", "(2*pi)"),
        (r"1,234", "1234"),
        (r"(1,234)", "(1, 234)"),
    ],
)
def test_expressions_are_read(text: str, form: str) -> None:
    assert show(read(clean(text))) == form


@table("text", ["", "(", "1 2", "(1]", "\\frac{1", "+", "\\unknown", "\ue000", "{" * 100, "(" * 60 + "1" + ")" * 60])
def test_unreadable_text_is_refused(text: str) -> None:
    with pytest.raises(Unread):
        read(clean(text))


@table("grouping, form", [(Grouping.NOWHERE, "list(1, 234)"), (Grouping.EVERYWHERE, "1234")])
def test_commas_follow_the_grouping(grouping: Grouping, form: str) -> None:
    assert show(read("1,234", grouping)) == form


@given(st.lists(st.sampled_from(PIECES.split()), max_size=25))
@settings(max_examples=400)
def test_random_pieces_are_read_or_refused(pieces: list[str]) -> None:
    with contextlib.suppress(Unread):
        show(read(clean("".join(pieces))))


@given(st.fractions(max_denominator=10**9))
def test_fractions_are_read_exactly(value: Fraction) -> None:
    tree = read(clean(f"\\frac{{{value.numerator}}}{{{value.denominator}}}"))
    assert show(tree).replace("(", "").replace(")", "").replace("/1", "") in (
        str(value),
        f"{value}/1".replace("/1", ""),
    )


@table(
    "text, cleaned",
    [
        ("−3", "-3"),
        ("４２", "42"),
        ("x²³", "x^{23}"),
        ("10⁻³", "10^-{3}"),
        ("$1{,}234$", "1234"),
        ("0{,}5", "0.5"),
        ("\\\\frac{1}{2}", "\\frac{1}{2}"),
        ("3<sup>x</sup>", "3^{x}"),
        ("(1) 5; (2) 7", "(5; 7)"),
        ("6 p.m.", "6 pm"),
        ("`7`", "7"),
    ],
)
def test_texts_are_cleaned(text: str, cleaned: str) -> None:
    assert clean(text).replace("^{-3}", "^-{3}") == cleaned
