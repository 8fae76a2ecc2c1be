r"""Choice: which letter a response chooses among A, B, C, ...

Example:

    chosen_letter("I first thought A. Answer: **B**", ("A", "B", "C", "D"))      # "B"

The last marked answer wins; several letters are no choice; a letter in running text is none either.
"""

import re
from collections.abc import Sequence

from slime_reward_math import plain
from slime_reward_math.extract import extract, thought_ends

TAIL = 6_000
"""Characters at the end that are searched."""
_OPEN = r"[\s*_`\"'$(\[{<\\]{0,6}(?:(?:text|textbf|mathrm|mathbf|boxed)\{){0,3}[*_(\[]{0,3}"
_LETTER = r"([A-Z])(?![A-Za-z0-9'’])"
_MARKED = re.compile(
    r"(?:(?:correct|final|best|right|my)?[ ]?(?:answer|option|choice)s?(?:[ ](?:choice|option|letter))?[\s*_`]{0,3}"
    r"(?:is|would be|must be|should be|seems to be|:|=|：)?[:：]?"
    r"|答案(?:是|为|為)?[:：]?|选择?[:：]?|選擇?[:：]?|정답은?[:：]?|[Rr]éponse[ ]?:|[Rr]espuesta[ ]?:|[Aa]ntwort[ ]?:"
    r"|(?:i|would|i'd|we|i'll)[ ](?:pick|choose|select|go with)|(?:think|believe)[ ]it(?:'s|[ ]is))" + _OPEN + _LETTER,
    re.IGNORECASE,
)
_CORRECT = re.compile(
    r"(?<![A-Za-z0-9])\(?([A-Z])\)?[*_]{0,2} is (?:the )?(?:(?:correct |right |best )?answer|correct|right|best)\b"
)
_NOT = re.compile(r"(?:\bnot|n't|\bneither|\brule out|\beliminate|\bexclude)[\s*_(]{0,4}$", re.IGNORECASE)
_MORE = re.compile(
    r"[)\]}*_\s]{0,4}(?:,|/|\+|&|or\b|and\b|nor\b)[\s*_]{0,3}(?:and |or )?[(\[{*_]{0,3}[A-Z](?![A-Za-z])"
)
_WRONG = re.compile(r"[)\]}*_\s]{0,4}(?:is|was)(?: not|n't| wrong| incorrect| false)", re.IGNORECASE)
_ALONE = re.compile(r"[\s*_`\"'$(\[{\\]{0,6}([A-Za-z])[)\]}*_`\"'$.:\s]{0,8}$")
_OPENS = re.compile(r"[\s*_`(\[]{0,4}([A-Za-z])[)\].:][)\]*_`]{0,3}(?=\s|$)")
_CLOSED = re.compile(r"\(([A-Z])\)")


def chosen_letter(response: str, letters: Sequence[str], choices: Sequence[str] = ()) -> str | None:
    """The letter that a response chooses; None if it chooses none, or several.

    Args:
        response: the model's text.
        letters: the letters there are; another one is no choice.
        choices: the texts that they stand for, in order; an answer that repeats exactly one of them chooses it.
    """
    start = thought_ends(response)
    if start is None:
        return None
    found = extract(response).text
    if found is not None:
        letter = _of_short(found, letters, choices)
        if letter is not None or _MARKED.search(response[max(start, len(response) - TAIL) :]) is None:
            return letter
    return _of_text(response[max(start, len(response) - TAIL) :].translate(_WIDE), letters, choices)


_WIDE = {0xFF21 + place: chr(65 + place) for place in range(26)}


def _of_text(text: str, letters: Sequence[str], choices: Sequence[str]) -> str | None:
    marked = [match for match in _MARKED.finditer(text) if _is_letter(match, text)]
    if marked:
        last = marked[-1]
        if _MORE.match(text, last.end()):
            return None
        return _valid(last[1], letters)
    correct = [
        match for match in _CORRECT.finditer(text) if not _NOT.search(text[max(0, match.start() - 20) : match.start()])
    ]
    if correct:
        return _valid(correct[-1][1], letters)
    lines = [line for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return None
    for line in (lines[-1], text.strip()):
        letter = _of_short(line, letters, choices) if len(line) < 400 else None
        if letter is not None:
            return letter
    closed = set(_CLOSED.findall(lines[-1]))
    return _valid(closed.pop(), letters) if len(closed) == 1 and len(lines[-1]) < 200 else None


def _is_letter(match: re.Match[str], text: str) -> bool:
    """Whether a marked letter is a choice: upper case, not denied, and no article or pronoun before a word."""
    if not match[1].isupper() or _WRONG.match(text, match.end()):
        return False
    if _NOT.search(text[max(0, match.start(1) - 20) : match.start(1)]):
        return False
    rest = text[match.end() : match.end() + 12]
    words = match[1] in "AI" and re.match(r" [a-z]+", rest) is not None
    return not words or re.match(r" (?:because|since|as|which|for|and|or|is)\b", rest) is not None


def _of_short(text: str, letters: Sequence[str], choices: Sequence[str]) -> str | None:
    """The letter of a short text: alone, at its front as `B.`, or by the text of exactly one choice."""
    bare = plain.unwrapped(text).strip()
    for pattern in (_ALONE, _OPENS):
        match = pattern.match(bare)
        if match and not _MORE.match(bare, match.end()):
            return _valid(match[1].upper(), letters)
    wanted = _words(bare)
    same = [letter for letter, choice in zip(letters, choices, strict=False) if wanted and _words(choice) == wanted]
    return same[0] if len(same) == 1 else None


def _words(text: str) -> str:
    low = re.sub(r"[^\w.+\-/]+", " ", text.lower()).strip(" .")
    return re.sub(r"^(?:definitely|it is|it's|the answer is|answer) ", "", low)


def _valid(letter: str, letters: Sequence[str]) -> str | None:
    return letter if letter in letters else None
