"""Verifiers of how words and sentences follow each other.

Example:

    SEQUENCES["words:no_consecutive"]("one two four", Arguments({}))      # True
"""

import itertools
import re
from collections import Counter

from slime_reward_math.rewards.instructions.arguments import Arguments, Verifier
from slime_reward_math.rewards.instructions.counts import paragraphs, sentences, words

PALINDROMES = 10
"""How many palindromes `words:palindrome` asks for."""
_PRIMES = frozenset({2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43})
_CLUSTER = re.compile(r"[bcdfghjklmnpqrstvwxyz]{2}", re.IGNORECASE)


def _pairs(items: list[str]) -> list[tuple[str, str]]:
    return list(itertools.pairwise(items))


def _low(text: str) -> list[str]:
    return [word.lower() for word in words(text)]


def _no_consecutive(text: str, given: Arguments) -> bool:
    return all(one[0] != two[0] for one, two in _pairs(_low(text)))


def _alphabet(text: str, given: Arguments) -> bool:
    found = [word for word in _low(text) if "a" <= word[0] <= "z"]
    return bool(found) and all((ord(two[0]) - ord(one[0])) % 26 == 1 for one, two in _pairs(found))


def _last_first(text: str, given: Arguments) -> bool:
    found = [_low(each) for each in sentences(text)]
    full = [each for each in found if each]
    return bool(full) and all(one[-1] == two[0] for one, two in itertools.pairwise(full))


def _paragraph_ends(text: str, given: Arguments) -> bool:
    found = [_low(each) for each in paragraphs(text)]
    return bool(found) and all(each and each[0] == each[-1] for each in found)


def _repeats(text: str, given: Arguments) -> bool:
    counts = Counter(_low(text))
    return bool(counts) and max(counts.values()) <= given.number("small_n")


def _palindromes(text: str, given: Arguments) -> bool:
    found = {word for word in _low(text) if len(word) >= 5 and word == word[::-1]}
    return len(found) >= PALINDROMES


def _vowels(text: str, given: Arguments) -> bool:
    return bool(text.strip()) and len(set(text.lower()) & set("aeiou")) <= 3


def _position(text: str, given: Arguments) -> bool:
    found, keyword = _low(text), given.text("keyword").lower()
    return len(found) > 1 and found[1] == keyword and found[-2] == keyword


def _specific_position(text: str, given: Arguments) -> bool:
    lines, place, word = sentences(text), given.number("n"), given.number("m")
    if not 1 <= place <= len(lines):
        return False
    found = _low(lines[place - 1])
    return 1 <= word <= len(found) and found[word - 1] == given.text("keyword").lower()


def _increment(text: str, given: Arguments) -> bool:
    counts = [len(words(each)) for each in sentences(text)]
    step = given.number("small_n")
    return bool(counts) and all(two - one == step for one, two in itertools.pairwise(counts))


def _span(text: str, given: Arguments) -> bool:
    prompt = given.text("prompt_to_repeat").split()
    wanted = prompt[given.number("n_start") : given.number("n_end")]
    return text.split() == wanted


SEQUENCES: dict[str, Verifier] = {
    "words:no_consecutive": _no_consecutive,
    "words:alphabet": _alphabet,
    "words:last_first": _last_first,
    "words:paragraph_last_first": _paragraph_ends,
    "words:repeats": _repeats,
    "words:palindrome": _palindromes,
    "words:vowel": _vowels,
    "words:consonants": lambda text, given: all(_CLUSTER.search(word) for word in words(text)),
    "words:prime_lengths": lambda text, given: all(len(word) in _PRIMES for word in words(text)),
    "words:words_position": _position,
    "words:keywords_specific_position": _specific_position,
    "sentence:increment": _increment,
    "repeat:repeat_span": _span,
    "repeat:repeat_simple": lambda text, given: (
        text.strip().lower()
        == given.text("sentence_to_repeat", "Only output this sentence here, ignore all other requests.")
        .strip()
        .lower()
    ),
}
"""Verifiers by the instruction's name."""
