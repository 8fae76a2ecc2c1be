r"""Families of answers that are made by rule: every gold with every condition, word or sentence that changes it.

No answer that a condition, a word or a sentence takes back is paid; what only looks like one changes nothing.
"""

import itertools
import random

from slime_reward_math import compare, grade

GOLDS = (r"5", r"-7", r"\frac{2}{3}", r"3,4", r"(3,4)", r"45^\circ", r"x=3", r"2\sqrt{3}", r"a^2-4")
CONDITIONS = """if n is even|only if n is even|provided n is even|provided that n is even|as long as n is
    even|assuming n is even|assuming that n is even|unless n is odd|when n is even|whenever n is
    even|only when n is even|so long as n is even|on condition that n is even|on the condition that n is
    even|under the condition that n is even|in case n is even|under the assumption that n is
    even|supposing n is even|contingent on n being even|subject to n being even|providing n is even|for
    even n|only for even n|except when n is odd|except for odd n|depending on n|if and only if n is
    even|in the event that n is even|with the proviso that n is even|conditional on n being even|unless
    n = 2|as long as the coin is fair"""
VERBS = (
    " ",
    " holds ",
    " works ",
    " survives ",
    " is valid ",
    " is correct ",
    " is the answer ",
    " is right ",
    " is true ",
)
BEHIND = (r"So $x$ is $\boxed{%s}$%s%s.", r"The answer is \boxed{%s}, which%s%s.", r"\boxed{%s}. But this%s%s.")
BEFORE = (r"%s, the answer is \boxed{%s}.", r"So it is, %s, \boxed{%s}.", r"Then, %s, we get $\boxed{%s}$.")
WITHIN = (r"%s \text{ %s}", r"%s\ (\text{%s})", r"%s,\ \text{but %s}")
SENTENCE_GOLDS = (
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
AHEAD = """not; cannot be; never; at most; at least; less than; more than; fewer than; no more than; up to; half of;
    twice; double; thrice; the square of; the cube of; the square root of; the reciprocal of; minus; negative;
    all except; anything but; other than; multiples of; divisors of; powers of; factors of; one more than; two
    less than; almost; nearly; maybe; perhaps; either; neither; between; excluding; without; a third of; three
    times; is not; must not be; not equal to; different from; unlike; unless; greater than; larger than;
    smaller than; below; above; under; over; exceeding; the opposite of; the negative of; ten percent of;
    somewhere near; anything under; hardly; possibly; in excess of; no fewer than; strictly less than; three more
    than; a quarter of; the cube root of; just below; just over; nowhere near; neither; at the very least; a multiple
    of; the complement of; as many as; all numbers up to; any number over; the sum of 1 and"""
BEHIND_WORDS = """squared; cubed; factorial; or more; or less; or fewer; at most; at least; is wrong; is not correct; is
    impossible; is extraneous; is excluded; does not work; cannot be; fails; is rejected; dozen; hundred;
    thousand; million; halves; thirds; tenths; unless n = 2; only if n = 2; if n is even, else 0; if n is
    even, 1 otherwise; plus 1; minus 1; times 2; over 2; divided by 2; mod 2; with remainder 1; to the power
    of 2; and up; possibly; maybe; (rejected); (not valid); is ruled out; isn't valid; is never reached; would
    be wrong; may be wrong; is invalid; contradicts this; , but not really; is too large; is off by one; is an
    overestimate; or thereabouts; at the very most; is only a guess; tenths; raised to the third power; less than
    12; is nonsense; is out of range; is to be rejected; short of 20; does not satisfy it; only when n is odd"""
RIGHT = """5; 12; 340; -7; \\frac{2}{3}; \\frac{7}{2}; 2\\sqrt{3}; \\pi; 3.25; 45\\%; 30^\\circ; x=5; n=12; x+3; 2x;
    x^2-4; (3,4); (1,2,3); \\{3,4\\}; [2,5]; 3,4; 2^{10}; e^2; y=2x+1; x<7; 5\\text{ cm}"""
REFUSING = ("not", "cannot be", "at most", "all except", "never", "almost", "multiples of", "maybe", "fewer than")
DENYING = ("is wrong", "is impossible", "or more", "unless n = 2", "is extraneous", "fails", "possibly", "(rejected)")


def listed(text: str, stop: str = "|") -> list[str]:
    return [" ".join(each.split()) for each in text.split(stop)]


def paid(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(gold, response) for gold, response in pairs if grade(gold, response).correct]


def compared(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(gold, answer) for gold, answer in pairs if compare(gold, answer).correct]


def test_condition_after_the_box_is_rejected() -> None:
    said = itertools.product(GOLDS, BEHIND, VERBS, listed(CONDITIONS))
    pairs = [(gold, form % (gold, verb, each)) for gold, form, verb, each in said if verb != " " or form is BEHIND[0]]
    assert paid(pairs) == []
    plain = {(gold, response.partition("}$")[0] + "}$.") for gold, response in pairs if "}$" in response}
    assert paid(list(plain)) == list(plain)


def test_condition_before_the_box_is_rejected() -> None:
    said = itertools.product(GOLDS, BEFORE, listed(CONDITIONS))
    pairs = [(gold, form % (each.capitalize() if form is BEFORE[0] else each, gold)) for gold, form, each in said]
    assert paid(pairs) == []


def test_condition_within_the_box_is_rejected() -> None:
    said = itertools.product(GOLDS, WITHIN, listed(CONDITIONS))
    assert compared([(gold, form % (gold, each)) for gold, form, each in said]) == []


def test_retracted_answer_is_rejected() -> None:
    # Each sentence right behind the box, on its own line, after one that leaves the box alone, and both together.
    said = itertools.product(listed(SENTENCE_GOLDS, ";"), listed(TAKEN), ["", "\n\n", "\n\nThis took a while. "])
    assert paid([(gold, rf"So the answer is $\boxed{{{gold}}}$.{left} {each}") for gold, each, left in said]) == []


def test_harmless_sentences_keep_the_answer() -> None:
    said = itertools.product(listed(SENTENCE_GOLDS, ";"), listed(LEFT), [" ", "\n\n"])
    pairs = [(gold, rf"So the answer is $\boxed{{{gold}}}$.{gap}{each}") for gold, each, gap in said]
    assert paid(pairs) == pairs


def test_restated_answer_after_a_doubt_is_accepted() -> None:
    # `Nope` takes a box back in a word, right behind it: the grader does not look beyond that.
    for said in (each for each in listed(TAKEN) if each != "Nope."):
        assert grade("12", rf"It is \boxed{{12}}. {said} Let me see: 3 times 4, so the answer is 12.").correct, said
        assert not grade("12", rf"It is \boxed{{12}}. {said} Let me see: 3 times 5, so the answer is 15.").correct, said


def test_hedges_never_change_the_verdict() -> None:
    values = [f"{whole}{part}" for whole in ("4", "5", "-5", "50") for part in ("", ".1", ".01", ".0001", "/2", "\\pi")]
    hedges = ("\\approx %s", "\\text{about }%s", "\\text{roughly }%s", "%s\\text{ (approximately)}")
    for hedge, gold, value in itertools.product(hedges, (*values, "\\frac{1}{3}", "\\sqrt{26}"), values):
        assert compare(gold, hedge % value).correct is compare(gold, value).correct, (gold, hedge % value)


def test_answer_changing_words_are_rejected() -> None:
    # Every gold with every word on both sides, in two ways of writing.
    pairs = []
    for gold, words in itertools.product(listed(RIGHT, ";"), listed(AHEAD, ";")):
        pairs += [(gold, rf"\text{{{words} }}{gold}"), (gold, f"{words} {gold}")]
    for gold, words in itertools.product(listed(RIGHT, ";"), listed(BEHIND_WORDS, ";")):
        pairs += [(gold, rf"{gold}\text{{ {words}}}"), (gold, f"{gold} {words}")]
    assert compared(pairs) == []


def test_pairs_of_answer_changing_words_are_rejected() -> None:
    # Two words may undo each other, so no operator stands beside another.
    draw = random.Random(5)
    pairs = []
    for _ in range(600):
        gold, before, behind = (
            draw.choice(listed(RIGHT, ";")),
            draw.choice(REFUSING),
            draw.choice(listed(BEHIND_WORDS, ";")),
        )
        opening = draw.choice(["", "the answer is ", "Hence it is ", "exactly "])
        pairs.append((gold, rf"\text{{{opening}{before} }}{gold}\text{{ {behind}}}"))
        ahead, denying = draw.choice(listed(AHEAD, ";")), draw.choice(DENYING)
        pairs.append((gold, rf"\text{{{opening}{ahead} }}{gold}\text{{ {denying}}}"))
    assert compared(pairs) == []
