r"""Around: the answer of a box together with its sentence, its formula, and the words right behind it.

Example:

    around(r"The answer is twice $\boxed{5}$.", 0, 21, 29, "5").text      # r"\text{twice }5"
    formula(r"it is $2\cdot\boxed{5}$", 0, 13, 21, "5")      # r"2\cdot5"
    refused(" is impossible")      # True
"""

import re
from typing import NamedTuple

from slime_reward_math.context.before import PLAIN, before_box, changing, conditional, conditional_before, denied
from slime_reward_math.read.loaded import changes_behind, is_loaded
from slime_reward_math.tree import listed
from slime_reward_math.value.units import is_unit, measure

FORMULA_REACH = 200
"""Characters on each side that a formula around a box may have."""
_OPERATOR_BEFORE = re.compile(
    r"(?:[-+*/^_<>≤≥≠±|]|\\(?:cdot|times|div|pm|mp|leq?|geq?|leqslant|geqslant|lt|gt|neq?|ll|gg|sqrt|approx\s*-|circ|"
    r"setminus)|\\(?:ln|log|sin|cos|tan|lfloor|lceil)|(?<![\w.])\d+(?:\.\d+)?|\\pi|(?:\\sqrt|"
    r"\\[dt]?frac\{[^{}]{0,40}\})\{[^{}]{0,40}\})\s*$"
)
_ENCLOSED = re.compile(
    r"(?:\\[dt]?frac\s*\{|\\[dt]?frac\s*\{[^{}]{0,60}\}\s*\{|\\sqrt(?:\[\d\])?\s*\{|[\^_]\s*\{)[^{}$]{0,40}$|\d\s*:\s*$"
)
_OPERATOR_AFTER = re.compile(
    r"\s*(?:[-+*/^_<>≤≥≠!×·]|:\s?\d|\d|[A-Za-z](?![A-Za-z])|\\(?:cdot|times|div|pi|sqrt|[dt]?frac|pm|mp|leq?|geq?|lt|"
    r"gt|neq?|cup|cap|setminus|ln|log|sin|cos|tan|theta|alpha|beta|%|text|mathrm|mbox|operatorname|degree|circ|times|"
    r"binom|choose|left)(?![A-Za-z])|%|°)"
)
_GLUED_AFTER = re.compile(
    r"\s*\\(?:cdot|times|div)(?![A-Za-z])|\s*[+*/×·÷^]\s?[\d(\\]|\s+-\s?\d+\s*(?:$|[.,;)=])|[*/^_×·]|!(?=[^\s])|"
    r"[+-]\d|\d|\\(?:cdot|times|div|pi|sqrt|%|circ)(?![A-Za-z])|%|°|[a-z](?![A-Za-z])"
)
GLUED = 40
"""Characters of a sign or number that is glued to a box."""
_GLUED_BEFORE = re.compile(r"(?:(?<![\w}])[-−]|[+*/^√<>≤≥≠]|(?<![\w.])\d+)\Z")
"""Anchored at the very end: `$` also matches before a newline, and the end of the previous line is no factor."""
_WITHIN = re.compile(
    r"\\(?:[dt]?frac\s*(?:\{[^{}]{0,60}\}\s*)?|sqrt(?:\[\d\])?\s*)\{[^{}$]{0,40}$|\\(?:log|ln|sin|cos|tan|cot|exp|"
    r"arcsin|arccos|arctan)(?:_\{?\w+\}?)?\s*[({]?\s*$"
)
_FUNCTION = re.compile(
    r"\\(?:log|ln|sin|cos|tan|cot|exp|arcsin|arccos|arctan|max|min)(?:_\{?\w+\}?)?\s*(?:\\left)?\s*$"
    r"|(?<![A-Za-z\\])[fgh]\Z"
)
_PROSE_END = re.compile(r"[,;:\n]|\.(?!\d)|(?<![\\A-Za-z])[A-Za-z]{2,}")
_BRACKET = re.compile(r"(?<!\\)[()\[\]]|\\[{}]")
_RIGHT_BRACKET_END = re.compile(r"\$|\\\)(?!\w)|\\\]|\n|=")
_LEFT_END = re.compile(
    r"=|≈|\\approx|\\therefore|\\implies|\\iff|\\[Rr]ightarrow|\\Longrightarrow|\\to\b|:|,(?!\\)|;|&|\\\\|\\q?quad|"
    r"\\text\{[^{}]*\}|\\in\b|\n"
)
_RIGHT_END = re.compile(
    r"[$\n=≈;&]|\\\)|\\\]|\\\\|\\approx|, |\.\s|\.$|\\q?quad|\\[Rr]ightarrow|\\implies|\\end|\\tag|\\p?mod(?![a-z])|"
    r",$|\\;|\\in\b"
)

_EQUALS = re.compile(
    r"[\s\\,;!]*=\s*([^$\n\\,][^$\n]{0,120}?)\s*(?:\$|\\\)|\\\]|\n|\.(?=\s|$)|$)|"
    r"[\s\\,;!]*=\s*(\\(?![\])])[^$\n]{1,120}?)\s*(?:\$|\\\)|\\\]|\n|\.(?=\s|$)|$)"
)
_UNNAMED = re.compile(r"\\(?:[dt]?frac|sqrt|pi|cdot|times|left|right|circ|pm|text\{ ?(?:and|or) ?\})(?![A-Za-z])")


def equation(after: str, content: str) -> tuple[str, str] | None:
    r"""The equation that a box with a name opens, `S = 12` of `\boxed{S} = 12`, and the text behind it; else None."""
    if "=" not in after[:4] or "=" in content or not any(map(str.isalpha, _UNNAMED.sub("", content))):
        return None
    match = _EQUALS.match(after)
    return None if match is None else (f"{content}={match[1] or match[2]}", after[match.end() :])


def formula(response: str, start: int, place: int, end: int, content: str) -> str | None:
    """The formula around a box, from `place` to `end`, with its content; None if the box is the whole formula."""
    before, after = response[max(start, place - FORMULA_REACH) : place], response[end : end + FORMULA_REACH]
    inside = _opening(before)
    if inside is None and (within := _WITHIN.search(before)) is not None:
        inside = within.start()
    if inside is None:
        glued = _GLUED_BEFORE.search(before, max(0, len(before) - GLUED))
        follows = _GLUED_AFTER.match(after)
        if glued is None and follows is None:
            return None
        left = glued[0] if glued is not None else ""
        right = _PROSE_END.split(after, maxsplit=1)[0] if follows is not None else ""
        return left + _grouped(content) + right
    left = before[inside:]
    opened = _bracket(left)
    if opened is not None:
        named = _FUNCTION.search(left[:opened])
        opened = named.start() if named is not None else opened
        stop = _RIGHT_BRACKET_END.search(after)
        return left[opened:] + _grouped(content) + (after[: stop.start()] if stop else after)
    if not (_OPERATOR_BEFORE.search(left) or _ENCLOSED.search(left) or _OPERATOR_AFTER.match(after)):
        return None
    enclosed = _ENCLOSED.search(left)
    cuts = [match.end() for match in _LEFT_END.finditer(left[: enclosed.start()] if enclosed else left)]
    stop = _RIGHT_END.search(after)
    left, right = left[cuts[-1] if cuts else 0 :], after[: stop.start()] if stop else after
    return (left + _grouped(content) + right).strip(" .")


def _opening(before: str) -> int | None:
    dollar = before.rfind("$") + 1
    if dollar and before.rpartition("\n\n")[2].count("$") % 2:
        return dollar
    for opening, closing in (("\\(", "\\)"), ("\\[", "\\]")):
        at = before.rfind(opening)
        if at >= 0 and before.rfind(closing) < at:
            return at + 2
    return None


def _bracket(left: str) -> int | None:
    """Start of the list that contains a box: an open `(`, `[` or brace; None without one."""
    depth = 0
    for match in reversed(list(_BRACKET.finditer(left))):
        depth += 1 if match[0][-1] in "([{" else -1
        if depth > 0:
            return match.start()
    return None


def _grouped(content: str) -> str:
    return content if re.fullmatch(r"[\d.,]+|[A-Za-z]|\\pi", content) else f"({content})"


REACH = 160
"""Characters behind a box that are searched."""
_CLOSING_FRAME = re.compile(r"(?:[ \t$)\]\\*_}←⟵#]|<-+|//|\n(?!\s*\n))*")
_TEXT = re.compile(r"\\(?:text|mathrm|mbox)\{([^{}]*)\}")
_NOTE = re.compile(r"[ \t]*[(\[]([^()\[\]]{1,80})[)\]]")
_PHRASE = re.compile(r"[A-Za-z][A-Za-z'’\- ]*")
_CUT = re.compile(
    r"(?<=\w )(?:more|less|fewer|greater|\w+er) than\b|\b(?:which|because|since|as|so|that|who|whose|by|where|when|"
    r"while|using|after|before|for|in|of|on|at|with|from|through|until|respectively|(?<=\w )(?:below|above|under|"
    r"between|among|within|exceeding)|and|but|or|if|provided|assuming|hence|therefore|thus|with|(?:(?<=s )|(?<=people "
    r")|(?<=men )|(?<=children ))(?:were|are|aren't|weren't|have|haven't|do|don't|did|didn't|failed|fail|without|not|"
    r"never|neither|nor|that)|(?<=\w )without|(?:every|each) (?:single )?(?:second|minute|hour|day|night|week|weekday|"
    r"weekend|month|year|morning|afternoon|evening|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day))\b"
)
_AND = re.compile(
    r"(?:and|&|to|through|–|or maybe|or perhaps|or possibly|or even|and also|and maybe|alternatively|otherwise|"
    r"else)\b,? ?(?:even |also |maybe |perhaps |possibly |it is |is it |it's |it could be |is )*"
    r"[$\\(]*\s*(?:-?\d|\\[dt]?frac)(?!\s*=)"
)
_COMMENT = re.compile(r"[ \t$)*_]*(?:<-|←|⟵|#|//|%)")
"""What points at a box: `<- wrong`."""
_OR_ALONE = re.compile(r"[a-z ]{2,20} or (?:about )?\$?\d[\d.,]*\$?(?=\s*(?:[.,;!?)]|$))")
_RATHER = re.compile(r"(?:,? ?(?:and )?not|rather than|instead of|, not|and not|as opposed to|unlike|, never)\b")
_DOUBT = re.compile(
    r"(?:(?:more|less|fewer|greater|larger|smaller|higher|lower|bigger) (?:than|or)|times|squared|cubed|factorial|"
    r"dozen|hundred|thousand|million|billion|percent(?:age points)? (?:more|less)|plus|minus|halves|thirds|or (?:more|"
    r"less|fewer|so|higher|lower|above|below|greater|larger|smaller)|and (?:up|above|below|over)|mod|modulo|choose|to "
    r"the power|raised|divided|multiplied|over|at (?:most|least|best)|is (?:(?:the|a|an|only|just|merely|simply) "
    r")?(?:\w+ )?(?:upper|lower|bound|half|twice|double|one of|part of|not|n't|never|wrong|too|off|more|less|bigger|"
    r"smaller|larger|greater|close|near|almost|far|what (?:I|we|you|he|she|they) (?:got|thought|had)|wrong|guess|"
    r"estimate|start|beginning|intermediate|partial|counterexample|trap|distractor|typo|mistake|error|lie|joke))\b"
)


_V = (
    r"(?:it |the answer |this |that |we |there |they )?(?:is |are |get |gets |gives |give |have |equals |becomes |"
    r"would be |= ?)*[\s$\\(]*(?:boxed\{)?-?(?:\d|[dt]?frac|[a-z]\s*=|infinit|undefined|diverg|does not|none\b|"
    r"no\b|zero\b|one\b|two\b|three\b)"
)
_ANY_CASE = r"(?:for|if|when|whenever|in case|in the case|provided|assuming)\b"
_CASES = re.compile(
    rf",? ?{_ANY_CASE}[^.\n]{{1,80}}?(?:[,;]|\band\b|\bbut\b|\bwhile\b|\bwhereas\b|\bor\b)(?: and| but| while| "
    rf"whereas)? {_V}[^.,;\n]{{0,25}}\b(?:{_ANY_CASE}|otherwise\b|elsewhere\b|else\b|in the other)|"
    rf"[^.\n]{{0,80}}?[,;](?: and| but| while| whereas)? (?:{_ANY_CASE}|otherwise\b|else\b)(?![^.\n]*\b(?:were|would|"
    rf"could|had)\b)[^.,;\n]{{0,60}},(?: then)? {_V}"
    r"|[^.\n]{0,80}?[,;](?: and| but)? otherwise\b(?![^.\n]*\b(?:would|could|might)\b)"
    rf"|[\s,;(]*(?:but |and |while |whereas ){_V}[^.,;\n]{{0,12}} {_ANY_CASE}"
)
_OF_NUMBER = re.compile(r"\s*\$?\s*(?:\\text\{ ?)?of \$?\d")


_NOTED_CASE = re.compile(r"[\s$]*\((?:for|if|when|in)\b[^()]*\)\s*[,;](?: and)?[\s$\\(]*-?(?:\d|[dt]?frac)")
"""A case in brackets, and the value of another: `\boxed{2} (for n even), 0 (for n odd)`."""


def refused(after: str, content: str = "") -> bool:
    """Whether the words behind a box change or take back the content that it holds."""
    if (content.endswith("%") and _OF_NUMBER.match(after)) or _NOTED_CASE.match(after):
        return True
    rest = _TEXT.sub(r"\1", after)[: len(after)]
    frame = _CLOSING_FRAME.match(rest)
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
        # `or 50%` must be equal; the caller compares it.
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
    r"surpassed|higher|lower|less|more|greater|any|simplified|further|increased|decreased|made)\b"
)
_REMAINS = re.compile(
    r"(?:alone |now |still )?(?:remains?|survives?|works?|(?:is|are) left(?: over)?)"
    r"(?: (?:in total|in all|altogether|at the end|in the end))?"
)
"""Phrases that only say that a box remains after others are discarded: `only x = 3 remains`."""
_OTHER_VALUE = re.compile(r"(?:is|are|was|and) (?:certainly |definitely |of course )?not \$?-?[\d\\]")
"""Denials of a different value: `5 is not 6`."""
_FULFILS = frozenset({"satisfies", "works", "meets", "fits", "holds", "matches", "suffices", "fulfils", "fulfills"})
_VERBS = listed(
    """is are was were be does do did has have had can could may might must shall should will would seems appears
    contradicts belongs fails violates gives leads makes"""
)
_HARMLESS = re.compile(
    r"(?:is|are|was|were|will be|would be|must be|should be|has|have|can|gives|does|do) (?:indeed |also |clearly |thus "
    r"|therefore |then |in fact |the |our |a |an |my |exactly |precisely |what |all |how |been |be |always |definitely "
    r"|certainly |really |actually |truly |)*(?:answer|correct|right|final|only|unique|required|desired|requested|"
    r"result|solution|valid|minimum|maximum|minimal|maximal|smallest|largest|greatest|least|total|number|value|area|"
    r"volume|length|probability|possible|sum|product|we (?:want\w*|need\w*|seek|sought|were|are|set out|had to)|was "
    r"asked|asked|is asked|sought|obtained|achieved|attained|prime|even|odd|positive|integer|least|best|true|reached|"
    r"satisfies|satisfy|work|works|median|mean|mode|average|perimeter|radius|distance|time|cost|price|speed|measure|"
    r"angle|height|width|ratio|remainder|quotient|degree|amount|many|much|long|old|far|the)\b"
)

_REMAINDER = re.compile(
    r"(?:is|was) (?:indeed |thus |therefore )?the (?:required |desired )?remainder (?:when|after|on|upon|left|in|for)\b"
)
"""Names of a box that do not derive another value from it: `is the remainder when n is divided by 7`."""


def _harmless(words: str) -> bool:
    """Whether a verb behind a box only names it, or only says that it is the answer."""
    return _REMAINDER.match(words) is not None or (_HARMLESS.match(words) is not None and not is_loaded(words))


_FRAME = " \n\t$)]\\.*_}"
_UNIT = re.compile(
    r"(?:[\s$~]|\\[,; ])*(?:\\(?:text|mathrm|mbox)\{\s*([A-Za-z/^\d ]{1,20}?)\s*\}|((?:(?:square|cubic|sq|cu)\.? "
    r")?[A-Za-z]{2,14})\b)"
)
_OPENINGS, _CLOSINGS = ("$", "\\[", "\\(", "="), ("$", "\\]", "\\)")
"""Delimiters between which a box is a separate formula."""


_SCALE = re.compile(
    r"(?:[\s$)~*_]|\\[,; ]|\\\))*(?:\\(?:text|mathrm|mbox)\{\s*)?"
    r"((?:hundred|thousand|million|billion|trillion|dozen)\b(?: (?:of )?[a-z]+)?)(?! (?:more|less|fewer))"
)
"""Multipliers behind a box: `\boxed{5} million dollars`."""
_PARTS = re.compile(r"\}?\$?(?:\^?\{?\\(?:text|mathrm)\{)?(?:rds|ths|nds|th of|rd of)\b")
"""Endings that turn the box before them into a fraction: `\boxed{3}rds`."""
BEFORE = 160
"""Characters before a box that are searched."""
_STRIKES, _STRUCK = ("~~", "<s>", "<del>", "<strike>", "\\sout{", "cancel{"), re.compile(r"[ $]*(?:~~|</|\})")
"""Commands that strike a box out."""
_SUPPOSED = re.compile(r"(?i)(?:if|assuming|suppos\w+|ignoring|neglecting|without|had|were|naively|treating)\b")
_BUT = re.compile(r"[^.\n]{0,60}?[,;] (?:but|yet|however|except)\b|[^.\n]{0,60}\. (?:But|However|Yet)\b")
_CASE = r"(?:if|when|for|in (?:the )?(?:first |second |other )?case|case \w+:?|with|without)\b"
_PERCENT_OF = re.compile(r"(?:\d\s?\\?%|percent)\$? of \$?$")
_ONE_CASE = re.compile(rf"(?i)(?:and |so |thus |then |now |- )?{_CASE}")
_SENTENCE_ENDS = re.compile(r"(?<=[.!?;])\s+|\n+\s*(?:[-*] )?")
_OTHER_CASE = re.compile(
    rf"(?i)[\s$).;,]*(?:and |but |while |whereas )?{_CASE}(?! you)[^.\n]{{0,80}}?(?:\bis|\bget|=|\bare|\bgives|"
    r"\bhave|,|\bequals|\bit's|:)[\s$(\\]*(?:boxed\{)?-?(?:\d|[dt]?frac|no\b|none\b|zero\b)"
)
"""Two cases, each with a value: `if n is odd we get 4; if n is even, 8`."""
_NAMED = re.compile(r"([a-zA-Z](?:_\{?\w\}?)?)\s*=[^=<>]+")
_NAMED_NEXT = re.compile(
    r"(?:[\s$)\]]|\\[\])])*(?:,|;|\band\b|\bor\b|&|\\q?quad|\\text\{ ?(?:and|or) ?\})(?:[\s$(,]|\\[(,; ]|and\b|or\b)*"
    r"([a-zA-Z](?:_\{?\w\}?)?\s*=\s*(?:-?\d+(?:\.\d+)?(?:/\d+)?|"
    r"-?\\[dt]?frac\{\d+\}\{\d+\}))(?=[\s$)\]\\]*(?:[.,;]|$|\n|and\b|or\b))"
)
"""Another named value right behind a box that holds one: `\boxed{a=5}, b = 7`."""


class Around(NamedTuple):
    """A box with what stands around it."""

    text: str | None
    """The answer in its context; None if its sentence denies it."""
    negated: bool = False
    """Whether the words before the box deny it."""


def _unit(after: str) -> str:
    r"""The unit that stands right behind a box, as `\text{}`; nothing without one."""
    match = _UNIT.match(after)
    if match is None:
        return ""
    word = match[1] or match[2]
    known = word != "per" and (is_unit(word) or ((match[1] or " " in word) and measure(word) is not None))
    return rf"\text{{ {word}}}" if known else ""


def _named_next(after: str, content: str) -> str:
    if _NAMED.fullmatch(content) is None:
        return ""
    found = ""
    while (match := _NAMED_NEXT.match(after)) is not None:
        found, after = f"{found}, {match[1]}", after[match.end() :]
    return found


def _struck(before: str, after: str) -> bool:
    last = before[-4:]
    if ("of" in last and _PERCENT_OF.search(before)) or last.endswith("{") or "~" in last or ">" in last:
        struck = _STRUCK.match(after) is not None and before.rstrip(" $").endswith(_STRIKES)
        return struck or _PERCENT_OF.search(before) is not None
    return False


def _withdrawn(before: str, after: str, content: str) -> bool:
    """Whether the text after a box takes it back, or gives the value of another case."""
    if refused(after, content) or _PARTS.match(after):
        return True
    return _OTHER_CASE.match(after) is not None and _ONE_CASE.match(_SENTENCE_ENDS.split(before)[-1]) is not None


def equated(after: str, content: str) -> tuple[str, str] | None:
    """The equation that a box with a name opens, with the named values behind it, and the text behind; else None."""
    found = equation(after, content)
    if found is None or _withdrawn("", found[1], found[0]):
        return None
    return found[0] + _named_next(found[1], found[0]), found[1]


def around(response: str, start: int, place: int, end: int, content: str) -> Around:
    """The answer of a box that holds `content` from `place` to `end`; the response's answer begins at `start`."""
    after = response[end : end + REACH]
    closed = not after.strip(_FRAME)
    opened = response[max(start, place - 3) : place].rstrip().endswith(_OPENINGS)
    if closed and opened and response[max(start, place - 30) : place].rstrip(" \n\t$([\\").endswith(PLAIN):
        return Around(content)
    sentence = before_box(response, start, place)
    if sentence and (denied(sentence) or (_SUPPOSED.match(sentence) and _BUT.match(after))):
        return Around(None, negated=True)
    if sentence and conditional_before(sentence, content):
        return Around(None)
    before = response[max(start, place - BEFORE) : place]
    scale = None if closed else _SCALE.match(after)
    if _struck(before, after) or (not closed and scale is None and _withdrawn(before, after, content)):
        return Around(None)
    if opened and (closed or after.lstrip(" \n.").startswith(_CLOSINGS)):
        text = content
    else:
        text = formula(response, start, place, end, content) or content
    if text is content and scale is not None:
        text += rf"\text{{ {scale[1]}}}"
    elif text is content and not closed:
        text += _unit(after) if not any(sign.isalpha() for sign in content) else _named_next(after, content)
    words = changing(sentence) if sentence and text.startswith(content) else ""
    return Around(rf"\text{{{words} }}{text}" if words else text)
