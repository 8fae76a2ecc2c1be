"""The plugin's test cases, shipped to make its figures reproducible: pairs with verdicts, and hostile answers.

Example:

    [pair for pair in pairs() if compare(pair.gold, pair.answer).correct is not pair.expected]

A hostile answer tries to hang, crash, fool or run the grader; none may be paid.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAIRS = Path(__file__).with_name("pairs.jsonl")
"""One JSON object a line: gold, response, expected, kind, rule."""
HOSTILE = Path(__file__).with_name("hostile.jsonl")
"""One JSON object a line: name, gold, response."""


class Pair(NamedTuple):
    """One pair."""

    gold: str
    answer: str
    expected: bool


def pairs() -> list[Pair]:
    """All of them."""
    rows = [json.loads(line) for line in PAIRS.read_text("utf-8").splitlines()]
    return [Pair(row["gold"], row["response"], row["expected"]) for row in rows]


class Hostile(NamedTuple):
    """One hostile response."""

    name: str
    gold: str
    """The gold answer that it must not be paid for."""
    response: str


def box(text: str) -> str:
    """An answer in its box."""
    return f"Therefore the answer is $\\boxed{{{text}}}$."


def hostile() -> Iterator[Hostile]:
    """More than 400 hostile responses: from the file, and generated ones of extreme size."""
    for line in HOSTILE.read_text("utf-8").splitlines():
        yield Hostile(**json.loads(line))
    for name, text in _sizes():
        yield Hostile(name, "42", text)
        yield Hostile(f"{name}, algebra", "\\frac{x}{2}", text)


def _sizes() -> Iterator[tuple[str, str]]:
    yield from (
        ("a million digits", box("9" * 1_000_000)),
        ("nine thousand digits", box("9" * 9_000)),
        ("four thousand digits", box("7" * 3_999)),
        ("long decimal", box("0." + "3" * 9_000)),
        ("long ratio", box("9" * 3_000 + "/" + "7" * 3_000)),
        ("commas", box("1," * 4_000 + "1")),
        ("groups", box("1" + ",111" * 2_000)),
        ("spaces", box(" " * 9_000)),
        ("a sum of thousands", box("1+" * 4_900 + "1")),
        ("a product of thousands", box("x" * 9_900)),
        ("nested boxes", "\\boxed{" * 5_000 + "1" + "}" * 5_000),
        ("open boxes", "\\boxed{" * 150_000),
        ("open braces", "\\boxed{" + "{" * 1_000_000),
        ("nested braces", box("{" * 4_000 + "1" + "}" * 4_000)),
        ("nested brackets", box("(" * 4_900 + "1" + ")" * 4_900)),
        ("nested fractions", box("\\frac{1}{" * 1_000 + "2" + "}" * 1_000)),
        ("nested roots", box("\\sqrt{" * 1_400 + "2" + "}" * 1_400)),
        ("nested sets", box("\\{" * 2_000 + "1" + "\\}" * 2_000)),
        ("nested functions", box("\\sin" * 2_400 + " x")),
        ("nested powers", box("x^{" * 2_400 + "2" + "}" * 2_400)),
        ("a tower of letters", box("x^" * 4_900 + "x")),
        ("signs", box("-" * 9_900 + "1")),
        ("alternating signs", box("+-" * 4_900 + "1")),
        ("bars", box("|" * 9_900)),
        ("factorials", box("3" + "!" * 9_900)),
        ("primes", box("x" + "'" * 9_900)),
        ("subscripts", box("x" + "_1" * 4_000)),
        ("relations", box("=".join("1" * 4_000))),
        ("inequalities", box("<".join(str(each) for each in range(1_500)))),
        ("unions", box("\\cup".join(f"({each},{each + 1})" for each in range(500)))),
        ("pairs", box(",".join(f"({each},{each})" for each in range(800)))),
        ("matrix", box("\\begin{pmatrix}" + "1&" * 2_000 + "1\\end{pmatrix}")),
        ("matrices", box("\\begin{matrix}" * 500 + "\\end{matrix}" * 500)),
        ("texts", box("\\text{a}" * 1_400)),
        ("open texts", box("\\text{" * 1_500)),
        ("ends of thought", "</think>" * 120_000),
        ("starts of thought", "<think>" * 120_000 + box("43")),
        ("a megabyte of prose", "We compute further. " * 50_000),
        ("a megabyte before a box", "We compute further. " * 50_000 + box("43")),
        ("a megabyte of dollars", "$" * 1_000_000 + box("43")),
        ("a megabyte of backslashes", "\\" * 1_000_000 + box("43")),
        ("many wrong boxes", box("43") * 40_000),
        ("dots", box("." * 9_000)),
        ("newlines", box("\n" * 9_000 + "43")),
        ("integrals", box("\\int " * 1_500 + "x dx")),
        ("sums", box("\\sum_{k=1}^{9}" * 600 + "1")),
        ("conditions", box("1 \\text{ if } x, " * 500)),
    )
