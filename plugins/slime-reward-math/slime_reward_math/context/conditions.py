r"""Conditions under which alone an answer holds: behind a box, before it, and within it.

Example:

    conditional(" survives only if n is even", "3")      # True
    conditional(", provided x > 0", r"\sqrt{x}")      # False: where a formula holds is no doubt

A word that only restricts (`only if`, `unless`) always makes one; `if`, `when`, `for` and `assuming` do with a case
(`n is even`), and not with the setting of a problem (`assuming a fair coin`) or the place of an extreme (`when x = 2`).
"""

import re

_STEMS = (
    "unless", "provid", "long as", "assum", "suppos", "condition", "proviso", "caveat", "contingent", "subject to",
    "depend", "except", "whenever", "in case", "the case", "event", "sometimes", "not always", "only", "iff",
)  # fmt: skip
_SHORT = frozenset({"if", "for", "when", "(if", "(for", "(when", ",if", "{if", "{for", "{when", "text{if"})
"""Words without which there is no condition: most texts have none, and are not searched."""


def _hinted(text: str) -> bool:
    """Whether a text has a word that may open a condition."""
    text = text.lower()
    return any(stem in text for stem in _STEMS) or not _SHORT.isdisjoint(text.replace("\\text{", " ").split())


_KIND = (
    r"(?:even|odd|prime|composite|co-?prime|divisible|large|small|big|sufficiently|negative|invertible|convergent|"
    r"congruent|parallel|multiple of|power of|perfect|"
    r"(?:greater|less|more|bigger|smaller|larger) than|at least|at most)\b"
)
"""What some things of a kind are and others are not: a case, and no setting."""
_PREDICATE = (
    rf"(?:[^,.;()]{{0,30}}?\b(?:is|are|be|being|was|were) (?:not |both |all |an? )*{_KIND}|{_KIND} \$?[a-z]\b|"
    rf"\$?[a-z]\$? (?:even|odd|prime|large|small)\b|\$?[a-z]\s*(?:[<>≤≥≠]|\\[gl]e(?:q|qslant)?\b|\\[gl]t\b|\\neq?\b)|"
    rf"(?:convergent|defined|possible|applicable)\b)"
)
_RESTRICTS = (
    r"(?:only(?: ever)? (?:if|when|whenever|for|where|in case|in the case|as long|so long|under|provided|on)\b|"
    r"if only\b|if and only if\b|iff\b|unless\b(?! (?:otherwise|stated|noted|specified))|provid(?:ed|ing)\b|"
    r"(?:as|so) long as\b|on (?:the |one |a )?(?:sole |single )?condition\b|under (?:the |a |one )?condition\b|"
    r"(?:with|under) the (?:proviso|condition|caveat)\b|subject to\b(?! (?:rounding|the|these|this|those|its|our|\$))|"
    r"(?:contingent|conditional) (?:up)?on\b|"
    r"depend(?:ing|ent|s) (?:up)?on\b|except (?:if|when|where|in|for (?:even|odd|prime|large|small|\$?[a-z]\b))|"
    r"in (?:the )?(?:case|event) (?:that|of|where|\$?[a-z]\b(?!\$? ?=))|"
    r"not always(?= ?(?:$|[.,;]|true|the case|valid|correct|holds?|so))|sometimes\b|but not (?:if|when|for)\b)"
)
_CASE = (
    rf"(?:(?:if|when|assuming|supposing|under the assumption|on the assumption)(?: that)? {_PREDICATE}|"
    rf"whenever\b(?! (?:you|we|one|needed|necessary|possible))|for (?!all|any|every|each|which|whom){_PREDICATE}|"
    r"if (?:we|you|one|I) (?:\w+ )?(?:ignore|neglect|disregard|exclude|discount)\b)"
)
_OPENS = rf"(?:{_RESTRICTS}|{_CASE})"
_ALL = (
    rf"(?:{_RESTRICTS}|{_CASE}|except\b|"
    r"if (?!(?:and only|you|we|one|I|my|this|that|it|needed|necessary|required|desired|"
    r"preferred|anything|any|so|asked|written|expressed|rounded|given|possible|memory|not|simplified)\b|\$?[a-z]\$?\s*=))"
)
"""Right behind a box any `if` makes a condition that is not the place of an extreme, or talk: `if you check it`."""
_TALK = (
    r"(?:(?:is|are|was|be|remains|remain|would|will|can|does|do|only|the|an?|our|my|valid|correct|right|true|answer|"
    r"solution|value|result|what|we|get|possible|in fact|really|actually|indeed|of course|though|works?|holds?|stands?|"
    r"applies|apply|survives?|makes|sense|good|fine|legitimate|justified|guaranteed|usable|meaningful|accepted|final|"
    r"true|works out|goes through|checks out|counts?|serves|qualifies) )*"
)
"""What says of an answer that it is one; where it is attained, or how it is found, says something else."""
_BEHIND = re.compile(
    rf"(?:[\s$)\]*_—–,;:(-]|\\[)\],; ])*(?:(?:but|and|yet|though|although|however|which|that|it|this|these|"
    rf"the answer|the result),? )*{_TALK}(?P<opens>{_ALL})(?P<rest>[^.;\n]{{0,90}})"
)
_SENTENCE = re.compile(
    rf"[.;!]\s+(?:(?:But|And|However|Note that|Of course|But note that|but|note that|and|however),? )*(?i:this|that|it|"
    rf"(?:the|this|that|my|our) (?:\w+ )?(?:answer|result|value|formula|solution|conclusion|argument)) {_TALK[:-1]}+"
    rf"(?P<opens>{_OPENS})(?P<rest>[^.;\n]{{0,90}})"
)
"""A sentence behind a box that says when its answer is one: `This holds only if n is even`."""
_BEFORE = re.compile(
    rf"(?i)(?:^|[,:] )(?:so |and |but |then |now |thus |hence |here )*(?P<opens>{_OPENS})(?P<rest>[^,]{{0,80}}?),?"
    r" ?(?:then |we |it |this |that |the |our |final |would |be |answer|result|value|is|are|get|have|find|obtain|gives|"
    r"equals|=| |:)*$"
)
_WITHIN = re.compile(rf"(?P<opens>(?<![A-Za-z]){_OPENS})(?P<rest>.*)", re.DOTALL)
_GOES_ON = re.compile(
    r",? (?:so|hence|thus|therefore|which (?:it |they |we |is |are |holds|does|was)|and (?:it|this|that|they) "
    r"(?:is|does|holds|are)|as (?:it|they|we|given|stated|required|required)|since|because|and so)\b"
)
"""How a condition is a step of the reasoning: `if and only if this holds, so the answer is`."""
_DOMAIN = re.compile(r"\b(?:nonzero|non-zero|zero|defined|denominator|real|converges?|integers?|positive|exists?)\b")
_LETTER = re.compile(r"(?<![A-Za-z\\'’])[a-zA-Z](?![A-Za-z'’])")
_ARTICLES = frozenset("aAI")
_TEXT = re.compile(r"\\(?:text|mathrm|mbox|textbf)\s*\{([^{}]*)\}")
_NAME = re.compile(r"\s*[a-zA-Z](?:_\{?\w\}?)?\s*=(?=[^=]*$)")


def conditional(after: str, content: str) -> bool:
    """Whether the text behind a box says that its answer holds under a condition only.

    Args:
        after: the text.
        content: what the box holds.
    """
    if not _hinted(after):
        return False
    plain = _TEXT.sub(r"\1", after)
    return _restricts(_BEHIND.match(plain), content) or _restricts(_SENTENCE.search(plain), content)


def conditional_before(sentence: str, content: str) -> bool:
    """Whether the sentence before a box makes it hold under a condition only: `As long as n is even, it is`."""
    return _hinted(sentence) and _restricts(_BEFORE.search(sentence), content)


def conditional_within(answer: str, gold: str) -> bool:
    """Whether an answer holds under a condition, of which its gold answer says nothing."""
    if " " not in answer and "\\text" not in answer:
        return False
    if not _hinted(answer) or _hinted(gold):
        return False
    plain = " ".join(_TEXT.sub(r" \1 ", answer).replace("\\ ", " ").split())
    match = _WITHIN.search(plain)
    if match is None:
        return False
    value = plain[: match.start()] or match["rest"].partition(",")[2]
    if not value:
        # What is nothing but a condition is the answer itself: `only when x = 0`.
        return False
    told = _letters(f"{match['opens']} {match['rest']}")
    return told.isdisjoint(_letters(gold)) and _restricts(match, value)


def _restricts(match: re.Match[str] | None, content: str) -> bool:
    if match is None or _GOES_ON.search(match["rest"]):
        return False
    unknowns = _letters(_NAME.sub("", content))
    said = f"{match['opens']}{match['rest']}"
    if not unknowns:
        return True
    told = _letters(said)
    return told.isdisjoint(unknowns) if told else _DOMAIN.search(said) is None


def _letters(text: str) -> set[str]:
    """The single letters of a text that may be unknowns."""
    return set(_LETTER.findall(_TEXT.sub(" ", text))) - _ARTICLES
