r"""The words right behind a box: whether they go on with its value, or take it back.

Example:

    refused(" is impossible")      # True
    refused(" is the number of ways.")      # False
"""

import re

from slime_reward_math.context.conditions import conditional
from slime_reward_math.read.loaded import changes_behind, is_loaded
from slime_reward_math.tree import listed

REACH = 160
"""Characters behind a box that are looked at."""
_FRAME = re.compile(r"(?:[ \t$)\]\\*_}←⟵#]|<-+|//|\n(?!\s*\n))*")
_TEXT = re.compile(r"\\(?:text|mathrm|mbox)\{([^{}]*)\}")
_NOTE = re.compile(r"[ \t]*[(\[]([^()\[\]]{1,80})[)\]]")
_PHRASE = re.compile(r"[A-Za-z][A-Za-z'’\- ]*")
_CUT = re.compile(
    r"(?<=\w )(?:more|less|fewer|greater|\w+er) than\b|\b(?:which|because|since|as|so|that|who|whose|by|where|when|"
    r"while|using|after|before|for|in|of|on|at|with|from|through|until|respectively|(?<=\w )(?:below|above|under|"
    r"between|among|within|exceeding)|"
    r"and|but|or|if|provided|assuming|hence|therefore|thus|with|"
    r"(?:(?<=s )|(?<=people )|(?<=men )|(?<=children ))(?:were|are|aren't|weren't|have|haven't|do|don't|did|didn't|"
    r"failed|fail|without|not|never|neither|nor|"
    r"that)|"
    r"(?<=\w )without|(?:every|each) (?:single )?(?:second|minute|hour|day|night|week|weekday|weekend|month|year|"
    r"morning|afternoon|evening|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day))\b"
)
"""What ends the words that speak of the value itself."""
_AND = re.compile(
    r"(?:and|&|to|through|–|or maybe|or perhaps|or possibly|or even|and also|and maybe|alternatively|otherwise|"
    r"else)\b,? ?(?:even |also |maybe |perhaps |possibly |it is |is it |it's |it could be |is )*"
    r"[$\\(]*\s*(?:-?\d|\\[dt]?frac)(?!\s*=)"
)
"""A second value."""
_COMMENT = re.compile(r"[ \t$)*_]*(?:<-|←|⟵|#|//|%)")
"""What points at a box: `<- wrong`."""
_OR_ALONE = re.compile(r"[a-z ]{2,20} or (?:about )?\$?\d[\d.,]*\$?(?=\s*(?:[.,;!?)]|$))")
_RATHER = re.compile(r"(?:,? ?(?:and )?not|rather than|instead of|, not|and not|as opposed to|unlike|, never)\b")
_DOUBT = re.compile(
    r"(?:(?:more|less|fewer|greater|larger|smaller|higher|lower|bigger) (?:than|or)|times|squared|cubed|factorial|"
    r"dozen|hundred|thousand|million|billion|"
    r"percent(?:age points)? (?:more|less)|plus|minus|halves|thirds|or (?:more|less|fewer|so|higher|lower|above|below|"
    r"greater|larger|smaller)|and (?:up|above|below|over)|mod|modulo|choose|"
    r"to the power|raised|divided|multiplied|over|at (?:most|least|best)|is (?:(?:the|a|an|only|just|merely|"
    r"simply) )?(?:\w+ )?(?:upper|lower|bound|half|twice|double|one of|part of|not|n't|never|wrong|"
    r"too|off|more|less|bigger|smaller|larger|greater|close|near|almost|far|what (?:I|we|you|he|she|they) (?:got|"
    r"thought|had)|wrong|guess|estimate|start|beginning|"
    r"intermediate|partial|counterexample|trap|distractor|typo|mistake|error|lie|joke))\b"
)


_V = (
    r"(?:it |the answer |this |that |we |there |they )?(?:is |are |get |gets |gives |give |have |equals |becomes |"
    r"would be |= ?)*[\s$\\(]*(?:boxed\{)?-?(?:\d|[dt]?frac|[a-z]\s*=|infinit|undefined|diverg|does not|none\b|"
    r"no\b|zero\b|one\b|two\b|three\b)"
)
_CASE = r"(?:for|if|when|whenever|in case|in the case|provided|assuming)\b"
_CASES = re.compile(
    rf",? ?{_CASE}[^.\n]{{1,80}}?(?:[,;]|\band\b|\bbut\b|\bwhile\b|\bwhereas\b|\bor\b)(?: and| but| while| "
    rf"whereas)? {_V}[^.,;\n]{{0,25}}"
    rf"\b(?:{_CASE}|otherwise\b|elsewhere\b|else\b|in the other)"
    rf"|[^.\n]{{0,80}}?[,;](?: and| but| while| whereas)? (?:{_CASE}|otherwise\b|else\b)(?![^.\n]*\b(?:were|would|"
    r"could|had)\b)"
    rf"[^.,;\n]{{0,60}},(?: then)? {_V}"
    r"|[^.\n]{0,80}?[,;](?: and| but)? otherwise\b(?![^.\n]*\b(?:would|could|might)\b)"
    rf"|[\s,;(]*(?:but |and |while |whereas ){_V}[^.,;\n]{{0,12}} {_CASE}"
)
"""Another case with another answer, in the sentence of a box."""
_OF_NUMBER = re.compile(r"\s*\$?\s*(?:\\text\{ ?)?of \$?\d")
"""What a percentage in a box is taken of."""


_NOTED_CASE = re.compile(r"[\s$]*\((?:for|if|when|in)\b[^()]*\)\s*[,;](?: and)?[\s$\\(]*-?(?:\d|[dt]?frac)")
"""A case in brackets, and the value of another: `\boxed{2} (for n even), 0 (for n odd)`."""


def refused(after: str, content: str = "") -> bool:
    """Whether the words behind a box change or take back what it holds.

    Args:
        after: the words.
        content: what the box holds.
    """
    if (content.endswith("%") and _OF_NUMBER.match(after)) or _NOTED_CASE.match(after):
        return True
    rest = _TEXT.sub(r"\1", after)[: len(after)]
    frame = _FRAME.match(rest)
    rest = rest[frame.end() :] if frame else rest
    if rest.startswith("?"):
        return re.match(r"\?+[\s$*)]*(?:yes|yep|indeed|correct|right)\b", rest, re.IGNORECASE) is None
    note = _NOTE.match(after if after.lstrip(" \t")[:1] in ("(", "[") else rest)
    if note is not None and _loaded_note(note[1], content):
        return True
    if conditional(after, content) or _OR_ALONE.match(rest) or _CASES.match(rest):
        return True
    if _AND.match(rest.lstrip(", ")):
        return True
    if _COMMENT.match(after) and is_loaded(rest.partition("\n")[0].lower()):
        return True
    match = _PHRASE.match(rest)
    if match is None or _RATHER.match(rest):
        return False
    words = match[0].strip()
    if _BETTERED.match(words) or _OTHER_VALUE.match(rest) or _REMAINS.fullmatch(words):
        return False
    if _DOUBT.match(words):
        return not words.startswith("times") or re.match(r"times(?: a| per| each| in|$)", words) is None
    cut = _CUT.search(words)
    spoken = words[: cut.start()].strip() if cut else words
    if not spoken:
        return False
    first = spoken.split()[0].lower()
    if first == "or":
        # `or 50%` has to be the same: that is compared.
        return _OR_VALUE.match(rest) is None
    if first in _FULFILS:
        return is_loaded(spoken.lower())
    if first in ("gives", "makes", "leads"):
        return True
    if first in _VERBS:
        return changes_behind(spoken.lower()) and not _harmless(words.lower())
    return first not in ("percent", "to", "in") and changes_behind(spoken.lower())


def _loaded_note(note: str, content: str) -> bool:
    if re.match(r"(?:and )?not -?\d", note):
        return False
    words = " ".join(re.findall(r"[A-Za-z']+", note)).lower()
    if conditional(note, content) or re.match(
        r"(?:edit|correction|wrong|was|should|formerly|old|unless|to be|tbc|pending)\b", words
    ):
        return True
    return (
        is_loaded(words)
        and re.match(
            r"(?:(?:or|since|because|as|if|in)\b|round|approx|not (?:drawn|to|simpl|nec|since|because|as))", words
        )
        is None
    )


_OR_VALUE = re.compile(
    r"or,? ?(?:equivalently,? |simply |just |rather |in other words,? |about |approximately |roughly |in \w+ (?:form|"
    r"terms),? |as a \w+,? )*[$\\(-]*[\d$\\]"
)
_BETTERED = re.compile(
    r"(?:cannot|can't|can not|could not|may not) be (?:improved|exceeded|beaten|lowered|reduced|larger|smaller|"
    r"surpassed|higher|lower|less|more|greater|any|"
    r"simplified|further|increased|decreased|made)\b"
)
_REMAINS = re.compile(
    r"(?:alone |now |still )?(?:remains?|survives?|works?|(?:is|are) left(?: over)?)"
    r"(?: (?:in total|in all|altogether|at the end|in the end))?"
)
"""What says that a box is what is left when others are thrown out, and no more: `only x = 3 remains`."""
_OTHER_VALUE = re.compile(r"(?:is|are|was|and) (?:certainly |definitely |of course )?not \$?-?[\d\\]")
"""What is denied of another value: `5 is not 6`."""
_FULFILS = frozenset({"satisfies", "works", "meets", "fits", "holds", "matches", "suffices", "fulfils", "fulfills"})
_VERBS = listed(
    """is are was were be does do did has have had can could may might must shall should will would seems appears
    contradicts belongs fails violates gives leads makes"""
)
_HARMLESS = re.compile(
    r"(?:is|are|was|were|will be|would be|must be|should be|has|have|can|gives|does|do) (?:indeed |also |clearly |"
    r"thus |therefore |then |in fact |the |our |a |an |my |"
    r"exactly |precisely |what |all |how |been |be |always |definitely |certainly |really |actually |truly |)*"
    r"(?:answer|correct|right|final|only|unique|required|desired|requested|result|solution|valid|minimum|maximum|"
    r"minimal|maximal|smallest|largest|"
    r"greatest|least|total|number|value|area|volume|length|probability|possible|sum|product|we (?:want\w*|need\w*|"
    r"seek|sought|were|are|set out|had to)|"
    r"was asked|asked|is asked|sought|"
    r"obtained|achieved|attained|prime|even|odd|positive|integer|least|best|true|reached|satisfies|satisfy|work|works|"
    r"median|mean|mode|average|"
    r"perimeter|radius|distance|time|cost|price|speed|measure|angle|height|width|ratio|remainder|quotient|degree|"
    r"amount|many|much|long|old|far|the)\b"
)

_REMAINDER = re.compile(
    r"(?:is|was) (?:indeed |thus |therefore )?the (?:required |desired )?remainder (?:when|after|on|upon|left|in|for)\b"
)
"""What a box is called that no other value is made of: `is the remainder when n is divided by 7`."""


def _harmless(words: str) -> bool:
    """Whether a verb behind a box says only that it is the answer, or what it is called."""
    return _REMAINDER.match(words) is not None or (_HARMLESS.match(words) is not None and not is_loaded(words))
