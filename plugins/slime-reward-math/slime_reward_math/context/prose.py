r"""Prose: the answer that a sentence states where there is no box: `The final answer is **5 apples**, since ...`.

Example:

    stated("So the answer is $5$ apples.")      # Stated(r"5\text{ apples}", ".")
"""

import re
from typing import NamedTuple

from slime_reward_math.context.before import before_box, denied

_LEAD = re.compile(
    r"(?:final answer|answer)(?:\*\*|__)?(?: (?:to|of|for) [^.:=\n]{1,80}?)?(?:\*\*|__)?(?: ?(?::|=|-(?= ))|"
    r"\s*\n+(?=[\d$\\-])| ?\b(?:is|equals|comes out (?:to|as)|would be|must be|should be)\b:?)(?:\*\*|__)?",
    re.IGNORECASE,
)
_AFTERWARDS = re.compile(
    r"(?:^|(?<=[\n.:,;] )|\n|(?<=so )|(?<=[Hh]ence )|(?<=[Tt]hus )|(?<=[Tt]herefore "
    r"))[\s*_$]*([^\s*_$][^\n*_$]{0,60}?)[*_$]* (?:is|was) (?:indeed |thus |therefore |clearly |our |the )*"
    r"(?:final |correct |right |required |desired )*answer\b(?! (?:to|if|when|for)\b)",
    re.IGNORECASE,
)
"""A value before the word for it: `64 is the answer`."""
_CUT = re.compile(
    r"[;—]| - |,? \((?:see|as|from|by|since|because|check)\b|,? \(?(?:because|since|so|which|where|therefore|thus|"
    r"hence|as (?:we|it|the|required|desired|shown|calculated|computed)|by (?:the|adding|sub\w+|multi\w+|div\w+)|"
    r"using|found by)\b"
    r"|,? (?:and not|but not|not|rather than|instead of|as opposed to)(?= \$?-?[\d\\])"
)
_NOT_BUT = re.compile(r"\s*(?:not|neither) [^,.;\n]{1,30}?,? but (?:rather |actually |instead )?")
"""What an answer is set against: `not 30 but 31`."""
_END = re.compile(r"(?<!i\.e)(?<!e\.g)[.!](?=\s|$)|\n|\?")
_PIECE = re.compile(r"\$\$?(.+?)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)


class Stated(NamedTuple):
    """An answer that a sentence states."""

    text: str | None
    """The answer; None where the sentence denies it, or asks."""
    after: str
    """What the response says behind it."""


def stated(response: str, start: int) -> Stated | None:
    """The last answer that the text from `start` on states in words; None without one."""
    found = list(_LEAD.finditer(response, start))
    if not found:
        said = list(_AFTERWARDS.finditer(response, start))
        return Stated(said[-1][1].strip(), response[said[-1].end() :]) if said else None
    match = found[-1]
    if denied(before_box(response, start, match.start()) + " " + match[0].strip(" :*=")):
        return Stated(None, "")
    place = match.end()
    while place < len(response) and response[place] in " \n\t*_:":
        place += 1
    end = _END.search(_hidden(response, place))
    stop = place + end.start() if end is not None else len(response)
    supposed = (
        match[0].lower().endswith("would be") and re.search(r"\b(?:if|unless|had)\b", response[place:stop]) is not None
    )
    asked = supposed or (end is not None and end[0] == "?")
    text = response[place:stop]
    text = text[set_against.end() :] if (set_against := _NOT_BUT.match(text)) is not None else text
    cut = _CUT.search(_hidden(text, 0))
    text = (text[: cut.start()] if cut else text).replace("**", "").strip(" *_`,")
    return Stated(None if asked or not text else _written(text), response[stop:])


def _hidden(text: str, start: int) -> str:
    """The text with its formulas blanked out, so that their stops and commas are not seen."""
    return _PIECE.sub(lambda match: "x" * len(match[0]), text[start:])


def _written(text: str) -> str:
    r"""Prose with formulas as an answer: words in `\text{}`; plain prose as it is."""
    pieces: list[str] = []
    place = 0
    for match in _PIECE.finditer(text):
        words = text[place : match.start()]
        pieces += [f"\\text{{{words}}}" if words.strip(" ,") else words, next(each for each in match.groups() if each)]
        place = match.end()
    if not pieces:
        return text
    rest = text[place:]
    return "".join([*pieces, f"\\text{{{rest}}}" if rest.strip(" ,.") else ""]).strip()
