"""Verifiers that count words, sentences, letters and signs.

Example:

    COUNTS["length_constraints:number_words"]("one two", Arguments({"num_words": 2, "relation": "at least"}))
"""

import re
import string

from slime_reward_math.rewards.instructions.arguments import Arguments, Verifier
from slime_reward_math.tree import listed

_WORD = re.compile(r"\w+(?:['’\-]\w+)*")
_SENTENCE_END = re.compile(r"[.!?]+(?:[\"')\]]*)(?=\s|$)")
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?![\w])")
_CONJUNCTIONS = frozenset({"for", "and", "nor", "but", "or", "yet", "so"})
_PRONOUNS = listed(
    """i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves"""
)


def words(text: str) -> list[str]:
    """The words of a text."""
    return _WORD.findall(text)


def sentences(text: str) -> list[str]:
    """The sentences of a text: what ends in `.`, `!` or `?`, and the rest."""
    found, start = [], 0
    for match in _SENTENCE_END.finditer(text):
        found.append(text[start : match.end()].strip())
        start = match.end()
    return [each for each in (*found, text[start:].strip()) if each]


def paragraphs(text: str) -> list[str]:
    """What blank lines or `***` separate."""
    parts = re.split(r"\n[ \t]*\*\*\*[ \t]*\n|\n[ \t]*\n", text)
    return [each.strip() for each in parts if each.strip()]


def occurrences(text: str, phrase: str) -> int:
    """How often a phrase stands in a text as a whole, in any case."""
    pattern = rf"(?<!\w){re.escape(phrase)}(?!\w)"
    return len(re.findall(pattern, text, re.IGNORECASE))


def _frequency(text: str, arguments: Arguments) -> bool:
    return arguments.compares(occurrences(text, arguments.text("keyword")), "frequency", "relation")


def _letters(text: str, arguments: Arguments) -> bool:
    count = text.lower().count(arguments.text("letter").lower())
    return arguments.compares(count, "let_frequency", "let_relation")


def _capitals(text: str, arguments: Arguments) -> bool:
    count = sum(word.isupper() for word in words(text))
    return arguments.compares(count, "capital_frequency", "capital_relation")


def _nth_paragraph(text: str, arguments: Arguments) -> bool:
    found, place = paragraphs(text), arguments.number("nth_paragraph")
    if len(found) != arguments.number("num_paragraphs") or not 1 <= place <= len(found):
        return False
    first = words(found[place - 1])[:1]
    return bool(first) and first[0].lower() == arguments.text("first_word").lower().strip(string.punctuation)


def _paragraph_count(text: str, arguments: Arguments) -> bool:
    parts = [each for each in re.split(r"\s?\*\*\*\s?", text.strip()) if each.strip()]
    return len(parts) == arguments.number("num_paragraphs")


def _word_range(text: str, arguments: Arguments) -> bool:
    return arguments.number("min_words") <= len(words(text)) <= arguments.number("max_words")


def _unique_words(text: str, arguments: Arguments) -> bool:
    return len({word.lower() for word in words(text)}) >= arguments.number("N")


def _conjunctions(text: str, arguments: Arguments) -> bool:
    return len(_CONJUNCTIONS.intersection(word.lower() for word in words(text))) >= arguments.number("small_n")


def _pronouns(text: str, arguments: Arguments) -> bool:
    return sum(word.lower() in _PRONOUNS for word in words(text)) >= arguments.number("N")


def _keyword_in_sentence(text: str, arguments: Arguments) -> bool:
    found, place = sentences(text), arguments.number("N")
    return 1 <= place <= len(found) and occurrences(found[place - 1], arguments.text("word")) > 0


COUNTS: dict[str, Verifier] = {
    "keywords:existence": lambda text, given: all(occurrences(text, each) for each in given.texts("keywords")),
    "keywords:frequency": _frequency,
    "keywords:forbidden_words": lambda text, given: (
        not any(occurrences(text, each) for each in given.texts("forbidden_words"))
    ),
    "keywords:letter_frequency": _letters,
    "length_constraints:number_sentences": lambda text, given: given.compares(
        len(sentences(text)), "num_sentences", "relation"
    ),
    "length_constraints:number_paragraphs": _paragraph_count,
    "length_constraints:number_words": lambda text, given: given.compares(len(words(text)), "num_words", "relation"),
    "length_constraints:nth_paragraph_first_word": _nth_paragraph,
    "change_case:capital_word_frequency": _capitals,
    "punctuation:no_comma": lambda text, given: "," not in text,
    "count:word_count_range": _word_range,
    "count:unique_word_count": _unique_words,
    "count:numbers": lambda text, given: len(_NUMBER.findall(text)) == given.number("N"),
    "count:conjunctions": _conjunctions,
    "count:pronouns": _pronouns,
    "count:punctuation": lambda text, given: all(sign in text for sign in ".,!?;:"),
    "sentence:keyword": _keyword_in_sentence,
}
"""Verifiers by the instruction's name."""
