r"""Choice: which letter a response chooses among A, B, C, ...

Example:

    chosen_letter("I first thought A. Answer: **B**", ("A", "B", "C", "D"))      # "B"

The last marked answer wins, or the only letter that is not ruled out, unless the response takes it back. Several
letters, or a letter in running text, are not a choice. After a box that holds no choice, only the text behind it
counts.
"""

import re
import string
from collections.abc import Sequence
from typing import NamedTuple

from slime_reward_math import plain
from slime_reward_math.context.later import later, stated
from slime_reward_math.extract import extract, gold_text, thought_ends
from slime_reward_math.grader import compare

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
_LEFT = re.compile(
    r"(?:leav(?:es|ing)|left with|remain(?:s|ing)(?:[ ](?:option|choice|one|answer|letter))?(?:[ ]is)?:?|it must be)"
    r"(?:[ ]us)?(?:[ ]with)?(?:[ ](?:only|just))?(?:[ ](?:the )?(?:option|choice|answer))?" + _OPEN + _LETTER,
    re.IGNORECASE,
)
"""The letter that is left: `A, B and C fail, leaving D`."""
_REMAINS = re.compile(
    r"(?<![A-Za-z0-9])\(?([A-Z])\)?[*_]{0,2} (?:alone |only )?(?:remains\b|is left\b|survives\b|is the only (?:\w+ "
    r")?(?:left|remaining|option|choice|possibility|one)\b)|\b[Oo]nly (?:option |choice |answer "
    r")?\(?([A-J])\)?[*_]{0,2} (?:satisf\w+|works|fits|is (?:correct|right|left|possible|consistent|true|valid|an?\b|"
    r"the\b)|remains|holds|match\w+|can\b(?!not)|makes|gives|survives|passes|meets|has|could|agrees|stays|stands|"
    r"yields)"
)
_CONCLUDED = re.compile(
    r"(?:\b[Ss]o|\b[Hh]ence|\b[Tt]hus|\b[Tt]herefore|\b[Ii]t is|\b[Ii]t's|\b[Ii]t must be|\b[Hh]as to be|\bshould be|"
    r"\bguess|[Pp]robably|(?:wrong|incorrect|false|fails?|fits?|works?|correct option|impossible) except(?: for)?|"
    r"which is|\b[Cc]hoose|\b[Pp]ick|\b[Ss]elect|\b[Aa]nswer is|\bgo with|\bmake that|\bactually|\brather)(?:,| "
    r"then)?:? (?:it is |it's |it must be |I'd say |I say |the answer is |we choose |choose |just )?(?:option |choice |"
    r"answer )?[(*\[]{0,3}([A-J])[)*\]]{0,3}(?=[.!,;:]|\s*$| (?:because|since|is (?:the )?(?:correct|right|answer)|"
    r"instead|not\b))|(?<![A-Za-z0-9])[(*]{0,3}([A-J])[)*]{0,3},? (?:it (?:is|must be)|then)(?=[.!,]|\s*$)"
)
"""The letter that a sentence concludes on: `so it is C`."""
_DENIALS = (
    r"(?:wrong|incorrect|false|out\b|ruled out|eliminated|excluded|impossible|invalid|rejected|too \w+|no good|not \w+|"
    r"implausible|untenable|nonsense|contradictory|inconsistent|dismissed|discarded|unlikely|off)"
)
_LIST = (
    r"(?:options? |choices? |answers? )?\(?[A-J]\)?(?:(?:,? and |,? or |, | & |/)(?:options? |choices? "
    r")?\(?[A-J]\)?)*(?![A-Za-z0-9'’])"
)
_STRUCK = re.compile(
    rf"(?<![A-Za-z0-9])({_LIST})[*_]{{0,2}},?(?: also| both| all| then| clearly| obviously| too| therefore)* "
    r"(?:(?:is|are|was|were|can be|can all be|must be|would be|gets?|looks?|seems?)(?: \w+){0,2}? "
    rf"{_DENIALS}|(?:isn't|aren't|wasn't|can't|cannot|fails?|does not|doesn't|do not|don't|violates?|contradicts?|"
    rf"won't|couldn't|misses|overshoots|undershoots|makes? no))|\b(?i:not|nor|rul(?:e|es|ed|ing) out|eliminat(?:e|es|"
    rf"ed|ing)|reject(?:s|ed|ing)?|exclud(?:e|es|ed|ing)|cross(?:es|ed|ing)? (?:out|off)|discard(?:s|ed|ing)?|"
    rf"strik(?:e|es|ing) (?:out|off)?|dismiss(?:es|ed|ing)?|drop(?:s|ped|ping)?|throw(?:s|ing)? out|remov(?:e|es|ed|"
    rf"ing)|rid of|neither) ({_LIST})"
)
"""Letters that a sentence rules out: `A and B fail`, `we can eliminate C`."""
_PLACE = re.compile(r"(?:the )?(first|second|third|fourth|fifth|last) (?:option|choice|one|answer)\.?", re.IGNORECASE)
_LETTER_FIRST = re.compile(r"[(\[]([A-J])[)\]]\s*")
_HYPOTHETICAL = re.compile(r"\s*(?:[)*\]]{0,3})?,? (?:if|unless|only if|had)\b")
_BACK = re.compile(
    r"\b(?:that|this|it)(?:'s| is| was| must be) (?:wrong|incorrect|not right|not correct|a mistake|false|impossible)\b"
    r"|\bscratch that\b|\btake (?:that|it) back\b|\bI was wrong\b|\bignore that\b",
    re.IGNORECASE,
)
_DENIED = (
    r"(?<![A-Za-z0-9]){0}\)?[*_]{{0,2}} (?:(?:is|was|would be|must be) (?:\w+ ){{0,2}}?(?:not|wrong|incorrect|false|"
    r"impossible|invalid|ruled out|out|excluded|eliminated)\b|(?:isn't|wasn't|can't|cannot|fails|does not|doesn't)\b)"
    r"|\b(?:not|rule out|eliminate|reject|exclude) (?:option |choice )?\(?{0}\b(?!')"
)
_NOT = re.compile(r"(?:\bnot|n't|\bneither|\brule out|\beliminate|\bexclude)[\s*_(]{0,4}$", re.IGNORECASE)
_MORE = re.compile(
    r"[)\]}*_\s.…]{0,5}(?:,|/|\+|&|or\b|and\b|nor\b)[\s*_]{0,3}(?:and |or )?[(\[{*_]{0,3}[A-Z](?![A-Za-z])"
)
_WRONG = re.compile(r"[)\]}*_\s]{0,4}(?:is|was)(?: not|n't| wrong| incorrect| false)", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?\n])\s")
_MENTIONED = re.compile(
    r"(?<![A-Za-z0-9])([B-HJ])(?![A-Za-z0-9'’])|\b(A)(?= (?:is|was|are|fails|does|can|would|has|cannot|could)\b|"
    r"[),.;:/]| and B)|\b(?:option|choice)s?\b"
)
_BOXED = re.compile(r"\\(?:boxed|fbox)\{\(?(?:\\(?:text|textbf|mathrm|mathbf)\{)?\(?([A-J])[)}.]*\}")
_QUANTITY = re.compile(r"^(-?[\d.,/]+) ([A-Za-z][A-Za-z/^\d ]*)$")
"""A choice in plain text with a unit: `4 m/s`."""
_LOOSE = re.compile(r"\(\s*([A-J])\s*\)[\\ ]*")
_KIND = re.compile(
    r"^(?:the )?(?:correct )?(?:option|choice|answer)(?: is)?:? (?=[(\[]?[A-Ja-j][)\]]?[.]?$)", re.IGNORECASE
)
_ALONE = re.compile(r"[\s*_`\"'$(\[{\\]{0,6}([A-Za-z])[)\]}*_`\"'$.:\s]{0,8}$")
_OPENS = re.compile(r"[\s*_`(\[]{0,4}([A-Za-z])[)\].:][)\]*_`]{0,3}(?=\s|$)")
_CLOSED = re.compile(r"\(([A-Z])\)")


def chosen_letter(response: str, letters: Sequence[str], choices: Sequence[str] = ()) -> str | None:
    """The letter that a response chooses; None if it chooses none, or several.

    Args:
        response: the model's text.
        letters: the valid letters.
        choices: the letters' texts, in order; an answer that repeats exactly one of them chooses it.
    """
    start = thought_ends(response)
    if start is None:
        return None
    text = response[max(start, len(response) - TAIL) :].translate(_WIDE)
    found = extract(response).text
    if found is None:
        letter = _of_text(text, letters, choices)
        # The sentence that takes back a boxed letter must not itself count as choosing it.
        return None if letter in _BOXED.findall(text)[-1:] else letter
    letter = _of_short(found, letters, choices) or _by_value(found, letters, choices)
    if letter is not None and _contradicts(letter, found, letters, choices):
        return None
    place = text.find(found, max(text.rfind("\\boxed"), text.rfind("\\fbox"), 0))
    rest = text[place + len(found) :] if place >= 0 else ""
    if letter is not None:
        return None if _is_denied(letter, rest) or _another(letter, rest, letters) else letter
    # A box without a choice is still an answer, so the text before it no longer counts.
    return _of_text(rest, letters, choices) if _MARKED.search(rest) else None


def _contradicts(letter: str, found: str, letters: Sequence[str], choices: Sequence[str]) -> bool:
    """Whether a letter has another choice's text behind it: `B. 18` where 18 is C."""
    found = _LOOSE.sub(r"(\1) ", plain.unwrapped(found))
    opening = _OPENS.match(plain.unwrapped(found).strip()) or _LETTER_FIRST.match(plain.unwrapped(found).strip())
    said = plain.unwrapped(found).strip()[opening.end() :].strip(" \\,.:*_`") if opening and choices else ""
    if not said:
        return False
    meant = [each for each, choice in zip(letters, choices, strict=False) if _words(choice) == _words(said)]
    meant = meant or [each for each in (_by_value(said, letters, choices),) if each is not None]
    return bool(meant) and letter not in meant


def _another(letter: str, rest: str, letters: Sequence[str]) -> bool:
    found = [match for match in _CONCLUDED.finditer(rest) if not _WRONG.match(rest, match.end(1))]
    return bool(found) and found[-1][1] != letter and found[-1][1] in letters


def _is_denied(letter: str, rest: str) -> bool:
    if re.search(_DENIED.format(letter), rest) is not None or _BACK.search(rest) is not None:
        return True
    # A sentence about other letters does not take the answer back.
    own = [
        each
        for each in _SENTENCE.split(rest)
        if {match[1] or match[2] or letter for match in _MENTIONED.finditer(each)} <= {letter}
    ]
    return later(" ".join(own), letter).back


_LISTED = re.compile(r"(?:^|(?<=\s))[(\[]?([A-J])[)\].:][ \t]+", re.MULTILINE)
_WIDE = {0xFF21 + place: chr(65 + place) for place in range(26)}


class _Mark(NamedTuple):
    """A letter that a sentence marks as the answer."""

    letter: str
    start: int
    end: int


def _marks(text: str) -> list[_Mark]:
    found = [match for match in _MARKED.finditer(text) if _is_letter(match, text)]
    found += [match for match in _LEFT.finditer(text) if _is_letter(match, text)]
    found += [match for match in _REMAINS.finditer(text) if not _NOT.search(text[: match.start()][-20:])]
    found += [match for match in _CONCLUDED.finditer(text) if not _WRONG.match(text, match.end(1))]
    groups = [(match, match.lastindex or 1) for match in found]
    marks = [_Mark(match[group], match.start(group), match.end(group)) for match, group in groups]
    return sorted((each for each in marks if not _HYPOTHETICAL.match(text, each.end)), key=lambda each: each.end)


def _of_text(text: str, letters: Sequence[str], choices: Sequence[str]) -> str | None:
    marked, left = _marks(text), _left_over(text, letters)
    if left is not None and all(_MORE.match(text, each.end) for each in marked):
        return left
    if marked:
        last = marked[-1]
        if _MORE.match(text, last.end):
            return None
        if _is_denied(last.letter, text[last.end :]):
            return left if left != last.letter else None
        if _contradicts(last.letter, text[last.start :].partition("\n")[0].partition(". ")[0], letters, choices):
            return None
        return _valid(last.letter, letters)
    correct = [
        match for match in _CORRECT.finditer(text) if not _NOT.search(text[max(0, match.start() - 20) : match.start()])
    ]
    if correct:
        last_one = correct[-1]
        return None if _is_denied(last_one[1], text[last_one.end() :]) else _valid(last_one[1], letters)
    said = stated(text, 0)
    if said is not None and said.text:
        return _of_short(said.text, letters, choices) or _by_value(said.text, letters, choices)
    return _of_lines(text, letters, choices)


def _of_lines(text: str, letters: Sequence[str], choices: Sequence[str]) -> str | None:
    """The letter of a text without a marking sentence: from its last line, or from the whole text."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return None
    for line in (lines[-1], text.strip()):
        letter = _of_short(line, letters, choices) if len(line) < 400 else None
        if letter is not None:
            return None if _contradicts(letter, line.strip(" *_`"), letters, choices) else letter
    closed = set(_CLOSED.findall(lines[-1])) - _struck(text)
    return _valid(closed.pop(), letters) if len(closed) == 1 and len(lines[-1]) < 200 else None


def _left_over(text: str, letters: Sequence[str]) -> str | None:
    """The one letter that a text does not rule out: `options A, C and D are wrong`; None without one."""
    left = set(letters) - _struck(text)
    return left.pop() if len(left) == 1 else None


def _struck(text: str) -> set[str]:
    return {each for match in _STRUCK.finditer(text) for each in re.findall(r"\b[A-J]\b", match[1] or match[2])}


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
    bare = _KIND.sub("", _LOOSE.sub(r"(\1) ", plain.unwrapped(text)).strip())
    for pattern in (_ALONE, _OPENS):
        match = pattern.match(bare)
        if match and not _MORE.match(bare, match.end()):
            return _valid(match[1].upper(), letters)
    if (place := _PLACE.fullmatch(bare)) is not None:
        places = ("first", "second", "third", "fourth", "fifth")
        at = len(choices) - 1 if place[1].lower() == "last" else places.index(place[1].lower())
        return letters[at] if 0 <= at < len(letters) else None
    wanted = _words(bare)
    same = [letter for letter, choice in zip(letters, choices, strict=False) if wanted and _words(choice) == wanted]
    return same[0] if len(same) == 1 else None


def _by_value(text: str, letters: Sequence[str], choices: Sequence[str]) -> str | None:
    r"""The letter of the one choice that a box holds in other signs: `1/2` for `\frac{1}{2}`."""
    golds = [_QUANTITY.sub(r"\1\\text{ \2}", gold_text(choice)) for choice in choices]
    same = [letter for letter, gold in zip(letters, golds, strict=False) if compare(gold, text).correct]
    return same[0] if len(same) == 1 else None


def listed_choices(prompt: str) -> list[str]:
    """The choices that a prompt lists as `(A) 1/2 (B) 2/3` or line by line; none unless they run from A on."""
    found = list(_LISTED.finditer(prompt[-TAIL:]))
    starts = [place for place, match in enumerate(found) if match[1] == "A"]
    run = found[starts[-1] :] if starts else []
    run = [match for place, match in enumerate(run) if match[1] == string.ascii_uppercase[place % 26]]
    if len(run) < 2 or len(run) != len(found) - starts[-1]:
        return []
    ends = [match.start() for match in run[1:]] + [len(prompt[-TAIL:])]
    texts = [prompt[-TAIL:][match.end() : end].strip(" \n\t,;$") for match, end in zip(run, ends, strict=True)]
    return [*texts[:-1], texts[-1].split("\n")[0].strip(" \t,;$")]


def _words(text: str) -> str:
    low = re.sub(r"[^\w.+\-/<>=≤≥]+", " ", text.lower()).strip(" .")
    return re.sub(
        r"^(?:(?:definitely|it is|it's|the answer is|answer|so|thus|hence|therefore|so,|option|choice),? )+", "", low
    )


def _valid(letter: str, letters: Sequence[str]) -> str | None:
    return letter if letter in letters else None
