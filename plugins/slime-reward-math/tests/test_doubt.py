r"""What a response says after its box, by class, and the other classes of the same batches.

`data/doubt.tsv` holds batch, class, gold, response, verdict and choices of pairs that were written a batch at a
time by the hand that wrote the rules, each batch graded once before its misses were mended; JSON texts without
quotation marks. What their first sights were stands in the README; none of them was ever blind.
"""

import itertools
import json
from pathlib import Path

import pytest

from slime_reward_math import grade
from slime_reward_math.choice import chosen_letter
from slime_reward_math.context.denials import denies
from slime_reward_math.context.doubt import Heard, given_again, heard, restates, turns_against
from slime_reward_math.context.repairs import takes_back

DATA = Path(__file__).with_name("data") / "doubt.tsv"
ROWS = [[json.loads(f'"{each}"') for each in line.split("\t")] for line in DATA.read_text("utf-8").splitlines()]
MISSED = {
    r"a 20% chance of \boxed{20}": "a percentage of something that is not named",
    r"\boxed{25} percentage points": "a unit, which may be missing",
    r"\boxed{\text{fifth}}": "an ordinal is its number",
    r"\boxed{7}\%": "the percent sign may be missing",
    r"\boxed{7 \text{ (mod } 10)}": "the modulus may be missing",
    r"\boxed{7}_\square": "an index",
    r"\boxed{[0.5\ \ 1]}": "a row without separators",
    r"\boxed{\text{Paris, France}}": "a place within another",
    r"\boxed{25\text{¢}}": "cents beside a bare number of dollars",
    r"\boxed{\text{ten to twelve}}": "a ratio, or a time",
    r"\boxed{1500\text{ mV}}": "a short unit that may be two letters",
    r"The ratio is \boxed{7} to \boxed{3}.": "two boxes that make a ratio",
    r"\boxed{\mathbf{0}}": "a zero matrix",
    r"\boxed{\text{T}}": "a letter for a word",
    r"\boxed{x^10}": "an exponent without braces",
    r"\boxed{\int_0^x e^{2t}\,dt}": "an integral, which is not computed",
    r"$100-\boxed{50}$": "a formula that has the gold's value",
    r"\boxed{15} per cent of the total is the answer": "a percentage of something that is not named",
    r"The probability is \boxed{50} out of 100, so to speak": "a part of a hundred",
}
"""Verdicts that are other than their author wanted, and why: they keep the figure honest."""
CLASSES = sorted({row[1] for row in ROWS})


@pytest.mark.parametrize("kind", CLASSES)
def test_the_verdicts_of_a_class_are_right(kind: str) -> None:
    rows = [row for row in ROWS if row[1] == kind]
    assert {verdict for *_, verdict, _ in rows} == {"correct", "wrong"} or kind == "chatty"
    assert [row[3] for row in rows if _paid(row) != (row[4] == "correct")] == [
        row[3] for row in rows if row[3] in MISSED
    ]


def _paid(row: list[str]) -> bool:
    _, kind, gold, response, _, choices = row
    if kind == "mcq":
        texts = choices.split("; ")
        return chosen_letter(response, "ABCDEFGH"[: len(texts)], texts) == gold
    return grade(gold, response, phrases=True).correct


GOLDS = (
    r"5; 12; -7; \frac{2}{3}; 2\sqrt{3}; 45^\circ; x=5; x^2-4; (3,4); \{3,4\}; [2,5]; 3,4; "
    r"y=2x+1; x<7; \text{Yes}"
)
TAKEN = """Scratch that.|On reflection that can't be right.|Actually no.|Hmm, that fails.|I was wrong.|My bad, I used
    the wrong formula.|However, this counts each case twice.|This does not satisfy the second
    condition.|Wait, I forgot a factor of two.|That is only the first part.|I don't trust this.|Ignore the
    box above.|This is off by a factor of two.|Let me redo this.|I need to start over.|The above is
    flawed.|That was for the previous problem.|But the problem asks for something else.|It doesn't look
    right.|This would be the answer if the coin were fair.|There's an error in the second step.|We still
    have to subtract the overlap.|Sorry, typo.|No, that is not it.|Hold on.|Hmm.|I can't believe
    this.|Please do not use this.|Which contradicts the first equation.|Nope.|This is nonsense.|I haven't
    considered the other orientation.|Verification fails.|I withdraw this answer.|Something went wrong."""
LEFT = """Let me know if you have any questions!|I hope this helps.|There are no other solutions.|This is not
    surprising.|We did not need the second condition.|You can't do better than this.|Don't hesitate to
    ask.|A common mistake is to forget the last case.|No calculator was needed.|The other root is not
    positive.|It is impossible to do better.|We never used the third condition.|Feel free to ask if
    something isn't clear.|The negative solution was rejected.|That's all, no more cases remain.|Note that
    the order doesn't matter.|Sorry for the long explanation!|Nothing else works.|This cannot be simplified
    any further.|If you got something else, you forgot a case.|Is it possible to do better? No.|Wait, let me
    double check. Yes, that's right.|Hmm, is this right? Yes, it is.|Otherwise we would have a
    contradiction.|The steps were not difficult.|It does not depend on the order.|Thanks for the question,
    it wasn't an easy one.|Although the method is not elegant, the value is right.|The converse is
    false.|Careful: it is easy to make an error here."""


def _listed(text: str, stop: str) -> list[str]:
    return [" ".join(each.split()) for each in text.split(stop)]


@pytest.mark.parametrize("gold", _listed(GOLDS, ";"))
def test_no_answer_that_a_sentence_takes_back_is_paid(gold: str) -> None:
    # Every sentence right behind the box, on a line of its own, after one that leaves the box alone, and both together.
    paid = []
    for said, left in itertools.product(_listed(TAKEN, "|"), ["", "\n\n", "\n\nThis took a while. "]):
        response = rf"So the answer is $\boxed{{{gold}}}$.{left} {said}"
        paid += [response] if grade(gold, response).correct else []
    assert paid == []


@pytest.mark.parametrize("gold", _listed(GOLDS, ";"))
def test_every_answer_that_its_sentences_leave_is_paid(gold: str) -> None:
    refused = []
    for said, gap in itertools.product(_listed(LEFT, "|"), [" ", "\n\n"]):
        response = rf"So the answer is $\boxed{{{gold}}}$.{gap}{said}"
        refused += [response] if not grade(gold, response).correct else []
    assert refused == []


def test_an_answer_that_is_given_again_after_a_doubt_is_paid() -> None:
    for said in _listed(TAKEN, "|"):
        if said == "Nope.":
            # What takes a box back in a word, right behind it, is not looked beyond.
            continue
        assert grade("12", rf"It is \boxed{{12}}. {said} Let me see: 3 times 4, so the answer is 12.").correct, said
        assert not grade("12", rf"It is \boxed{{12}}. {said} Let me see: 3 times 5, so the answer is 15.").correct, said


def test_a_sentence_is_heard() -> None:
    assert heard("Wait, let me check that", "60") is Heard.DOUBTED
    assert heard("However, this counts each pair twice", "60") is Heard.BACK
    assert heard("I was wrong", "60") is Heard.BACK
    assert heard("Checking gives 60 again, so it is 60", "60") is Heard.SETTLED
    assert heard("It was a long way", "60") is Heard.NOTHING


def test_a_denial_of_something_else_is_none_of_the_answer() -> None:
    assert denies("So x = 3 is not a solution", "3")
    assert not denies("The other root is not positive", "3")
    assert not denies("There are no other solutions", "3")


def test_a_mistake_is_taken_back_by_who_made_it() -> None:
    assert takes_back("I used the wrong formula", "10")
    assert not takes_back("Many students make a mistake here", "10")


def test_a_value_is_given_again() -> None:
    assert given_again("Without repetition it's 15", "21") == "15"
    assert given_again("Without repetition it's 21", "21") is None
    assert given_again("Check: with x = 2 it is 15", "21") is None
    assert restates("so it is still 20", "20")
    assert not restates("19 is not 20", "20")


def test_a_sentence_turns_against_its_box() -> None:
    assert turns_against(", yet the graph shows four crossings")
    assert not turns_against(", but the proof is left to the reader")


@pytest.mark.parametrize(
    ("gold", "response", "right"),
    [
        ("5000000", r"It costs \boxed{5} million dollars.", True),
        ("5", r"It costs \boxed{5} million dollars.", False),
        ("a=5, b=7", r"Hence \boxed{a=5}, b = 7.", True),
        ("5", r"Hence \boxed{a=5}, b = 7.", False),
        (r"\text{Yes}", r"\boxed{\text{Yes, if n is even}}", False),
        (r"\text{Yes}", r"\boxed{\text{Yes, since n is even}}", True),
        (r"\frac{1}{x}", r"\boxed{\frac{1}{x}}, provided $x \ne 0$.", True),
        ("5", r"\boxed{5}, provided n is even.", False),
        (r"\{2,4,6\}", r"\boxed{\{2n : 1\le n\le 3, n \in \mathbb{Z}\}}", True),
        (r"\{2,4,6\}", r"\boxed{\{2n : 1\le n\le 4, n \in \mathbb{Z}\}}", False),
        (r"\frac{11}{36}", r"\boxed{\text{eleven thirty-sixths}}", True),
        ("3:45 PM", r"\boxed{\text{quarter to four in the afternoon}}", True),
        ("3:45 PM", r"\boxed{\text{quarter to four in the morning}}", False),
        ("6", r"\frac{1}{\boxed{6}}", False),
        ("6", r"~~\boxed{6}~~ 7", False),
    ],
)
def test_what_stands_around_a_box_is_read(gold: str, response: str, right: bool) -> None:
    assert grade(gold, response).correct is right
