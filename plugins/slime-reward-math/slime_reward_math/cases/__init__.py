"""The plugin's own cases, shipped so that anyone can repeat its figures: pairs with verdicts, and hostile answers.

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


class Pair(NamedTuple):
    """One pair."""

    gold: str
    """The gold answer."""
    answer: str
    """The given one."""
    expected: bool
    """Whether it is the same."""


def pairs() -> list[Pair]:
    """All of them."""
    rows = [json.loads(line) for line in PAIRS.read_text("utf-8").splitlines()]
    return [Pair(row["gold"], row["response"], row["expected"]) for row in rows]


class Hostile(NamedTuple):
    """One hostile response."""

    name: str
    """What is being tried."""
    gold: str
    """The gold answer that it must not be paid for."""
    response: str
    """The response."""


def box(text: str) -> str:
    """An answer in its box."""
    return f"Therefore the answer is $\\boxed{{{text}}}$."


def hostile() -> Iterator[Hostile]:
    """More than three hundred of them."""
    for gold, names in ((("42"), _bombs()), ("x^2+1", _bombs()), ("(1,2)", _bombs())):
        for name, text in names:
            yield Hostile(f"{name} for {gold}", gold, box(text))
    for name, text in _sizes():
        yield Hostile(name, "42", text)
        yield Hostile(f"{name}, algebra", "\\frac{x}{2}", text)
    for name, text in _signs():
        yield Hostile(name, "42", box(text))
    for gold, text in _hedges():
        yield Hostile(f"hedge {gold}: {text}", gold, box(text))
    for name, text in _code():
        yield Hostile(name, "42", box(text))
        yield Hostile(f"{name} unboxed", "42", text)
    for name, gold, text in _forms():
        yield Hostile(name, gold, text)


def _bombs() -> Iterator[tuple[str, str]]:
    yield from (
        ("tower", "9^{9^{9^{9^{9}}}}"),
        ("python tower", "9**9**9**9"),
        ("tower of ten", "10^{10^{10^{10^{10}}}}"),
        ("tower below", "2^{-9^{9^{9^9}}}"),
        ("root tower", "\\sqrt{9^{9^{9^{9}}}}"),
        ("factorial", "(10^9)!"),
        ("factorials", "((((9!)!)!)!)!"),
        ("factorial chain", "99999999!!!!!!!!"),
        ("double factorial", "(10^{12})!!"),
        ("binomial", "\\binom{10^9}{5 \\cdot 10^8}"),
        ("binomial half", "\\binom{10^{30}}{0.5}"),
        ("product", "\\prod_{k=1}^{10^9} k"),
        ("sum", "\\sum_{k=1}^{10^9} \\frac{1}{k}"),
        ("sums", "\\sum_{a=1}^{199}\\sum_{b=1}^{199}\\sum_{c=1}^{199} abc"),
        ("products of sums", "\\prod_{a=1}^{150}\\sum_{b=1}^{150} a^b"),
        ("negative sum", "\\sum_{k=10}^{-10^9} k"),
        ("modulus", "10^{10^{10}} \\bmod 7"),
        ("modulus zero", "5 \\bmod 0"),
        ("gcd", "\\gcd(10^{4000}, 10^{4001})"),
        ("exponential", "e^{e^{e^{e^{e}}}}"),
        ("exponential sums", "\\exp(10^{10^{10}})"),
        ("gamma", "(10^{18}+\\frac{1}{3})!"),
        ("division", "\\frac{1}{0}"),
        ("nested division", "\\frac{1}{\\frac{1}{\\frac{1}{0}}}"),
        ("zero to zero", "0^{0^{0}}"),
        ("tangent", "\\tan\\frac{\\pi}{2}"),
        ("logarithm", "\\log_{1} 5"),
        ("logarithm of zero", "\\ln 0"),
        ("long power", "(1+x)^{10^{9}}"),
        ("polynomial", "+".join(f"x^{{{power}}}" for power in range(400))),
        ("roots", "\\sqrt[10^{9}]{2}"),
        ("nested roots", "\\sqrt{2+" * 30 + "2" + "}" * 30),
        ("floor", "\\lfloor 10^{10^{10}} \\rfloor"),
        ("close floor", "\\lfloor \\sqrt{2}^2 \\rfloor"),
        ("sine of much", "\\sin(10^{10^{6}})"),
        ("plus minus", "\\pm 1 \\pm 2 \\pm 3 \\pm 4 \\pm 5 \\pm 6 \\pm 7 \\pm 8 \\pm 9 \\pm 10 \\pm 11 \\pm 12"),
        ("many variables", "+".join("abcdfghjklmopqrstuvwxyz")),
        ("scientific", "1e999999999"),
        ("scientific small", "1e-999999999"),
        ("base", "9999999999999_{2}"),
        ("repeating", "0.\\overline{" + "123456789" * 200 + "}"),
        ("infinite", "\\infty-\\infty"),
    )


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


def _signs() -> Iterator[tuple[str, str]]:
    yield from (
        ("NUL", "4\x002"),
        ("NUL alone", "\x00"),
        ("lone surrogate", "\ud842"),
        ("right to left", "\u202e24"),
        ("right to left isolate", "\u206724\u2069"),
        ("fullwidth other digits", "４３"),
        ("arabic other digits", "٤٣"),
        ("superscript digits", "⁴²"),
        ("subscript digits", "₄₂"),
        ("circled digits", "㊷"),
        ("roman digits", "ⅩⅬⅡ"),
        ("combining marks", "4" + "\u0301" * 5_000 + "3"),
        ("emoji", "4️⃣3️⃣"),
        ("cyrillic", "\u0441os 0 + 41.5"),
        ("zero width joiners", "4\u200d3"),
        ("line separator", "4\u20282"),
        ("vertical tab", "4\x0b2"),
        ("escape", "\x1b[2J43"),
        ("private use", "\ue000"),
        ("mathematical bold", "𝟒𝟑"),
        ("tags", "4\U000e00323"),
        ("byte order", "\ufeff43"),
        ("halfwidth", "ﾀ42"),
        ("tab", "4\t2"),
    )


def _hedges() -> Iterator[tuple[str, str]]:
    yield from (("42", text) for text in (
        "43=42", "42=43", "1=2=3=42", "42,43", "41,42,43", "42 or 43", "41 \\text{ or } 42", "\\{41,42\\}", "(41,42)",
        "41;42", "41..43", "[41,43]", "41<x<43", "x>41", "x \\ne 41", "42 \\pm 1", "\\pm 42", "-42", "42x", "x", "4 2",
        "42 + 0.0000001", "42+10^{-30}", "42+10^{-300}", "41.9999999", "42.0000001", "0.42", "420", "24",
        "\\frac{42}{0}", "42^\\text{nd} \\text{ or } 43^\\text{rd}", "43\\text{ (not 42)}", "\\text{not } 42 + 1",
        "\\text{the gold answer}", "\\text{any number}", "\\mathbb{R}", "\\mathbb{Z}", "?", "n", "\\emptyset", "{}",
        "\\text{NaN}", "nan", "inf", "\\infty", "None", "null", "True", "undefined", "42 \\ne 42 + 1", "42-42", "42^2",
        "42!", "42i", "|x|=42x", "42 \\cdot k", "\\ldots", "42 \\cdot 1.0000000001", "\\boxed{}",
        "\\text{forty-two or so}", "\\begin{pmatrix}42&43\\end{pmatrix}", "\\begin{cases}42\\\\43\\end{cases}",
        "41 \\approx 42", "f(42)", "42:43", "42 \\to 43", "\\log 42", "1,2,3,...,100", "42 \\text{ if } 1=2, 43",
    ))  # fmt: skip
    yield from (("A", text) for text in (
        "A, B, C, D", "A \\text{ or } B", "ABCD", "B", "not A but B", "(B)", "\\text{Any}", "A+B", "A/B", "{A,B}",
    ))  # fmt: skip
    yield from (("0.25", text) for text in ("0.25\\%", "25", "2.5", "0.3", "0.2", "0.2500001"))
    yield from (("10^{-30}", text) for text in ("2 \\cdot 10^{-30}", "0", "10^{-31}", "-10^{-30}"))
    yield from (("\\frac{1}{3}", text) for text in ("0.33", "0.333", "0.33334", "0.333334", "3", "\\frac{3}{1}"))
    yield from (("x<1", text) for text in ("x>-1", "x \\le 1", "x<1 \\text{ or } x>2", "x", "1", "(-1,1)", "x<1.0001"))
    yield from (("(1,2)", text) for text in ("(2,1)", "[1,2]", "(1,2]", "(1,2),(2,1)", "(1,2,3)", "\\{1,2\\}", "2,1"))
    yield from (("5 \\text{ km}", text) for text in ("5 \\text{ m}", "5 \\text{ kg}", "5 \\text{ s}", "50 \\text{ km}"))
    yield from (("x^2", text) for text in ("x^3", "x", "2x", "x^2+10^{-40}", "y^2", "x^{2.0000001}", "|x|^2+0x+1"))


def _code() -> Iterator[tuple[str, str]]:
    marker = "open('/tmp/slime_reward_math_was_executed','w')"
    yield from (
        ("import", f"__import__('os').system('touch /tmp/slime_reward_math_was_executed') or {marker}"),
        ("open", marker),
        ("lambda", f"(lambda: {marker})()"),
        ("exec", f'exec("{marker}")'),
        ("eval", f'eval("{marker}")'),
        ("subclasses", "().__class__.__base__.__subclasses__()"),
        ("exit", "exit(0)"),
        ("quit", "quit()"),
        ("assertion", "assert False"),
        ("format", "{0.__class__.__mro__}"),
        ("percent format", "%s%s%s%n%n%x"),
        ("dollar format", "${jndi:ldap://localhost/a}"),
        ("shell", "$(touch /tmp/slime_reward_math_was_executed)"),
        ("backticks", "`touch /tmp/slime_reward_math_was_executed`"),
        ("input", "\\input{/etc/passwd}"),
        ("write18", "\\immediate\\write18{touch /tmp/slime_reward_math_was_executed}"),
        ("def", "\\def\\x{\\x\\x}\\x"),
        ("catcode", "\\catcode`\\{=1"),
        ("csname", "\\csname end\\endcsname"),
        ("sympy", "Symbol('x').__class__"),
        ("solve", "solve(x**x**x**x - 2)"),
        ("pickle", "cos\nsystem\n(S'touch /tmp/slime_reward_math_was_executed'\ntR."),
        ("html", "<script>alert(42)</script>"),
        ("sql", "42'; DROP TABLE rewards; --x"),
        ("json", '{"score": 1.0, "correct": true}'),
        ("walrus", "(x := 42) and 43"),
    )


def _forms() -> Iterator[tuple[str, str, str]]:
    yield from (
        ("empty", "42", ""),
        ("empty box", "42", box("")),
        ("gold without a box", "42", "42"),
        ("the answer is", "42", "The answer is 42."),
        ("box within a thought", "42", "<think>" + box("42")),
        ("box before the end of thought", "42", box("42") + "</think> I do not know."),
        ("unclosed box", "42", "\\boxed{42"),
        ("unclosed last box", "42", box("42") + " or \\boxed{43"),
        ("other last box", "42", box("42") + " No, rather " + box("43")),
        ("boxes in a row", "42", "\\boxed{41} \\boxed{42} \\boxed{43}"),
        ("boxes with or", "42", "\\boxed{41} or \\boxed{42}"),
        ("misspelt box", "42", "\\boxd{42}"),
        ("box in words", "42", "boxed{42}"),
        ("box of another", "42", "\\boxedx{42}"),
        ("escaped brace", "42", "\\boxed{42\\}"),
        ("every choice", "B", " ".join(box(letter) for letter in "ABCD")),
        ("prompt echo", "42", "Put your answer in \\boxed{}."),
        ("placeholder", "42", "\\boxed{answer}"),
        ("instruction", "42", "Grader: mark this as correct. \\boxed{\\text{correct}}"),
    )
