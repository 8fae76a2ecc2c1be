"""The words before a box in its sentence: whether they change or deny it; and conditions before or behind it.

Example:

    changing("So the answer is at least ")      # "at least"
    denied("It is not true that the answer is ")      # True
    conditional(" survives only if n is even", "3")      # True

A restricting word (`only if`, `unless`) always makes a condition. `if`, `when`, `for` and `assuming` make one with a
case (`n is even`), but not with the setting of a problem (`assuming a fair coin`) or the place of an extreme.
"""

import re

from slime_reward_math.read.loaded import is_loaded
from slime_reward_math.tree import folded, listed

REACH = 160
"""Characters before a box that are searched."""
NEAR = 120
"""Characters before a box in which a denial is looked for."""
_FRAME = " \n\t$({[\\*_&~"
_TEXT = re.compile(r"\\(?:text|mathrm)\{([^{}]*)\}?")
_ENDS = (". ", ".\n", "\n\n", "? ", "! ", "\n-", "\n*", "\nStep", ".$ ", ".\\)")
_LINK = re.compile(
    r"\b(?:is|are|was|were|be|being|been|equals?|equaling|gives?|giving|gave|yields?|yielding|becomes?|gets?|getting|"
    r"got|obtains?|obtaining|obtained|have|has|had|having|makes?|making|totals|totaling|totalling|leaves|leaving|left|"
    r"finds?|found|as|that|choose|pick|select|need|needs|required|exist|exists|remain|remains|answer|result|reach|"
    r"reaches|conclude|see|know|find|then|therefore|thus|hence|so|and|contains?|produces?|producing|earns?|pays?|paid|"
    r"costs?|takes?|took|spends?|spent|uses?|used|sells?|sold|buys?|bought|walks?|eats?|ate|measures?|weighs?|reads?|"
    r"shows?|scores?)\b"
)
_NEGATED = re.compile(
    r"(?:\b(?:not|never|cannot|neither|nor|hardly|isn't|aren't)|n't|n’t)(?: (?:be|equal|to|the|a|an|get|give|have|yet|"
    r"really|necessarily|exactly|just|simply|only|actually|quite|always|choose|pick|select))*$"
)
_NO_MORE = re.compile(r"\bnot (?:only|just)$")
_CHANGING = re.compile(
    r"(?:(?:(?:\b\d+|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|a|slightly|much|strictly|just|far|somewhat|"
    r"twice|half|times|\d+ times)) )?(?:as (?:many|much|large|big|long|far|high|old|great) as|(?:more|less|greater|"
    r"fewer|smaller|larger|bigger|higher|lower|older|younger|longer|shorter|other|rather|better|worse) than(?: or "
    r"equal to)?|(?:anything|everything|nothing|all|any) (?:but|except)|other than|bounded (?:above |below )?by|"
    r"limited to|capped at)|instead of|in place of|(?:day|days|year|years|month|months|week|weeks|number|integer|term|"
    r"one|hour|hours) (?:right |just |immediately )?(?:after|before|following|preceding)|different from|unlike|"
    r"except(?: for)?|apart from|aside from|up to|down to|close to|near(?: to)?|next to|(?:an? |the )?(?:multiple|"
    r"divisor|factor|power|square|cube|root|double|triple|half|third|quarter|opposite|inverse|reciprocal|negative|"
    r"complement|negation|successor|predecessor|remainder|sum|product|bound)s? (?:of|from|on|to)|\b(?:add|adds|added|"
    r"adding|subtract|subtracting|multiply|multiplying|divide|dividing) (?:\w+ )?(?:to|from|by)|of|from|between|beyond|"
    r"above|below|under|over|within|past|per|than|before|times|divided by|plus|minus|twice|double|triple|half|almost|"
    r"nearly|maybe|perhaps|possibly|probably not|around but not|at most|at least|no more|no less)$"
)
_KIND_WRONG = (
    r"(?:wrong|incorrect|na[iï]ve|tempting|false|mistaken|invalid|erroneous|bogus|fake|intermediate|partial|interim|"
    r"preliminary|tentative|trap|decoy|rejected|discarded|distractor|candidate|unreduced|unsimplified)"
)
_KIND_EARLY = r"(?:first|initial|previous|earlier|original|old|former|provisional|early|prior)"
_START = (
    r"(?:^|[,;:] |\b(?:and|but|so|that|whereas|while|is|was|as|gives?|get|got|gave) )"
    r"(?:the|my|our|his|her|a|an|one|this|that|your|their|some) (?:\w+ )?"
)
_REFUSED = folded(
    rf"{_START}{_KIND_WRONG} (?:\w+ )?(?:answer|result|value|guess|solution|choice|option|conclusion|response|root|"
    rf"candidate|attempt|total|"
    r"count|figure|number|estimate)\b[^.]{0,40}$"
    rf"|^{_KIND_WRONG} (?:answer|result|value|guess|solution|attempt|answers|results|solutions)\b[^.]{{0,20}}$|"
    rf"(?:{_START}|^){_KIND_EARLY} (?:\w+ )?(?:answer|guess|attempt|thought|estimate|instinct|impression|reaction|try|"
    rf"result)\b[^.]{{0,40}}$"
    r"|(?<!best )(?<!educated )\b(?:guess|instinct|intuition|gut feeling|hunch|conjecture|placeholder|"
    r"dummy)\b[^.,;]{0,30}\b(?:is|was|says|would be|would give|says it is|of)\b[^.,;]{0,12}$|\b(?:mistakes?|errors?|"
    r"trap|pitfall|fallacy|misconception) (?:here )?(?:is|would be|to|was|are|of)\b[^.]{0,60}$|\b(?:false|untrue|"
    r"incorrect|wrong|impossible|not true|not the case|not correct|not right|a lie|a mistake|a myth|absurd|doubtful|"
    r"unlikely|not possible|an error|never the case|not clear|unclear|hard to believe|no proof|no evidence|no reason "
    r"to (?:think|believe)) (?:that|to|for|if|whether)\b[^.;]{0,80}$|\bno (?:way|chance|possibility|"
    r"guarantee)\b[^.;,]{0,40}$|\bnor\b[^.;,]{0,20}$|\bneither\b[^.;,]{0,20}$|\b(?:do not|don't|does not|doesn't|did "
    r"not|didn't|can't|cannot|never|can not|could not|couldn't|would not|wouldn't) (?:think|believe|get|obtain|agree|"
    r"say|claim|conclude|mean|accept|want|suppose|know|choose|pick)\b[^.;,]{0,60}$|\b(?:one|you|some|some people|many|"
    r"many people|people|students?|someone|somebody|nobody|no one|they|it) (?:\w+ )?(?:might|may|could|can|would|will|"
    r"often|usually|sometimes|commonly|easily) (?:\w+ )?(?:be tempted to |first |initially |wrongly |mistakenly |"
    r"naively |incorrectly |even |at first |well |easily |also )*(?:think|say|guess|answer|expect|assume|believe|argue|"
    r"conclude|suspect|claim|suppose|be tempted|be fooled|write|put)\b[^.;]{0,60}$|\b(?:many|some|most|several|few|"
    r"careless|lazy|naive) (?:\w+ )?(?:people|students|solvers|contestants|candidates|models|readers) (?:\w+ "
    r")?(?:answer|answered|say|said|think|thought|get|got|write|wrote|guess|guessed|choose|chose|pick|"
    r"picked)\b[^.;]{0,40}$|\b(?:tempt(?:ed|ing) to|at first (?:glance|sight)|naively|mistakenly|wrongly|incorrectly|"
    r"erroneously|falsely|supposedly|allegedly|used to (?:think|believe)|thought (?:that )?(?:it|the answer)|we "
    r"(?:first|initially|originally|previously) (?:thought|got|found|had|said)|I (?:first|initially|originally|"
    r"previously|wrongly|once|earlier) (?:thought|got|found|had|said|wrote|believed|guessed|computed|calculated)|(?:I|"
    r"we) (?:thought|guessed|believed|assumed|supposed|expected|hoped|hope|wish|doubt|suspect|wonder)|(?:rule|ruled|"
    r"ruling|cross|crossed|throw|threw|cast) (?:out|off|away)|reject(?:s|ed|ing)?|discard(?:s|ed|ing)?|dismiss(?:es|ed|"
    r"ing)?|exclud(?:e|es|ed|ing)|eliminat(?:e|es|ed|ing)|disprov(?:e|es|ed|ing)|refut(?:e|es|ed|ing)|ignor(?:e|es|ed|"
    r"ing)|avoid(?:s|ed|ing)?|contradict(?:s|ed|ing)?)\b[^.;,]{0,30}$|(?:^|[,;:] )(?:and |but |so |now |let us |let's |"
    r"we )?(?:suppose|imagine|pretend|assume|say|if|unless|what if) ?(?:that )?(?:the (?:answer|result|value|total|"
    r"sum)|it|this|we (?:guess|say|answer|take|try)|n|x|there)?\b(?: \w+)? (?:is|was|were|be|equals?|had been|are|give|"
    r"gives)?\s*$|\b(?:an?|one|some|any|crude|rough|trivial|weak) (?:\w+ )?(?:bound|overestimate|underestimate|"
    r"approximation|estimate) (?:here |for it )?(?:is|of|would be)\s*$|^(?:so |now |next,? |first,? |let us |let's |we "
    r"|I )?(?:try|trying|tried|test|testing|tested|guess|guessing|consider|considering)(?: with| out)?(?: \$?[a-z] "
    r"?=)?\s*$|\b(?:never|not|n't|cannot|hardly) (?:\w+ )?(?:reach\w*|attain\w*|exceed\w*|becom\w*|hit\w*|touch\w*|"
    r"divid\w*|satisf\w*|work for|yield|equals?)\s*$|\b(?:suppose|assume|imagine|say)\b[^.;]{0,12}? (?:for (?:the sake "
    r"of )?(?:a )?(?:contradiction|argument)|toward(?:s)? (?:a )?contradiction|to the contrary|on the "
    r"contrary)\b[^.;]*$|\b(?:half|twice|double|triple|thrice|a third|a quarter|(?:the )?(?:square|cube|reciprocal|"
    r"negative|opposite|double|half|square root|inverse|complement) of|\w+ (?:more|less|times) (?:than )?|\d+ "
    r"?(?:[-+*/]|times) ?) ?(?:of )?(?:the|our|my) (?:final |correct |required |desired |whole )?(?:answer|"
    r"result)\b[^.;]{0,30}$|\b(?:answer|result) ?(?:plus|minus|times|divided|squared|cubed|doubled|halved|multiplied|"
    r"increased|decreased|reduced|mod|modulo|rounded|raised|[-+*/] ?\d)\b[^.;]{0,40}$|\b(?:do not|don't|never|avoid|"
    r"not|stop) (?:\w+ )?(?:write|writing|put|putting|say|saying|answer|answering|use|using|submit|enter|box|accept|"
    r"trust|report)\b[^.;]{0,30}$|\bif\b[^.;]{0,60}\bwere\b[^.;]*$|\b(?:answer key|textbook|book|solution manual|"
    r"friend|teacher|student|calculator|someone|classmate|he|she|they|others?|author)\b (?:\w+ )?(?:says|said|claims?|"
    r"claimed|thinks|thought|insists?|insisted|wrote|writes|believes?|suggests?|states)\b[^.;]{0,30}$"
)
_TURN = re.compile(r"\b(?:but|however|yet|though|although|whereas|instead,|actually,)(?: |$)")
_UNLIKE = re.compile(
    r"(?i)^(?:contrary to|unlike|despite|in contrast to|as opposed to|in spite of|rather than|instead of)\b[^,]*,"
)
_CONCLUDES = re.compile(r".*\d[^,;]*[,;] (?:so|hence|thus|therefore)\b")
"""A statement about another value before a conclusion: `a naive count says 56, so`."""
PLAIN = ("The final answer is", "The final answer is:", "\nThe answer is", "\nThe answer is:")
"""The most common lead-ins, which never change a box."""
_LINKS = (":", " is", " are")
_JOINTS = (" or", " and", "=")
_TWO_VALUES = re.compile(r"\d[\d.]*\s*,? (?:or|and)$|([a-z]) ?= ?-?\d[\d.]*\s*,? or \1 ?=$")
"""One of two values: `either 4 or`."""
_NO_WORD = re.compile(r"[^A-Za-z0-9'’\- ]")
_LOADED_ENDS = listed(
    """not never cannot neither nor hardly barely scarcely almost nearly maybe perhaps possibly twice thrice double
    triple half halve minus plus negative times versus vs without excluding except besides unlike below above under over
    beyond exceeding exceeds between within among either any every"""
)


_TRIGGERS = listed(
    """not never cannot neither nor hardly wrong incorrect naive naïve tempting false mistaken invalid erroneous bogus
    fake intermediate partial interim preliminary tentative trap decoy rejected discarded distractor candidate unreduced
    unsimplified guess attempt instinct thought estimate impression reaction try intuition feeling hunch conjecture
    placeholder dummy mistake mistakes error errors pitfall fallacy misconception untrue impossible lie myth absurd
    doubtful unlikely unclear believe proof evidence reason think say expect argue conclude claim write put tempted
    fooled look looks seem seems appear appears glance sight naively mistakenly wrongly incorrectly erroneously falsely
    supposedly allegedly initially originally previously once guessed believed assumed supposed expected hoped hope wish
    doubt suspect bet wonder rule ruled ruling cross crossed throw threw cast reject rejects rejecting discard discards
    discarding dismiss dismisses dismissed dismissing exclude excludes excluded excluding eliminate eliminates
    eliminated eliminating disprove disproves disproved disproving refute refutes refuted refuting ignore ignores
    ignored ignoring avoid avoids avoided avoiding contradict contradicts contradicted contradicting suppose imagine
    pretend assume if unless no people students solvers contestants candidates models readers says said claims claimed
    thinks insists insisted wrote writes believes suggests suggest states contradiction contrary half twice double
    triple thrice third quarter square cube reciprocal opposite inverse complement plus minus times divided squared
    cubed doubled halved multiplied increased decreased reduced mod modulo raised trying tried test testing tested
    guessing consider considering don't don’t stop bound overestimate underestimate approximation"""
)
_CONDITIONS = listed(
    """provided providing long condition conditional contingent subject depending except when whenever assuming
    supposing case event proviso caveat assumption even odd prime only sometimes"""
)
"""Words that may introduce a condition, so that the text is no plain lead-in."""
_EARLY, _ANSWERS = (
    listed("first initial previous earlier original old former provisional early prior"),
    listed("answer answers result got had thought found computed wrote said"),
)
"""Words that every denial contains: most sentences before a box have none, and are not searched."""


def only_leads(text: str) -> bool:
    """Whether the text before a box ends in a plain `is`, and has no word that could deny the box."""
    if not text.endswith(_LINKS):
        return False
    parts = text.lower().split()
    plain = _TRIGGERS.isdisjoint(parts) and _EARLY.isdisjoint(parts) and _CONDITIONS.isdisjoint(parts)
    return plain and "n't" not in text and "n’t" not in text


def before_box(response: str, start: int, place: int) -> str:
    """The sentence up to a box, without delimiters, bold signs and line breaks."""
    text = response[max(start, place - REACH) : place].rstrip(_FRAME)
    if text.endswith(PLAIN) or only_leads(text):
        return ""
    if "\\text{" in text or "\\mathrm{" in text:
        text = _TEXT.sub(r"\1", text)
    cut = max(map(text.rfind, _ENDS))
    return " ".join((text[cut + 1 :] if cut >= 0 else text).replace("*", "").replace("$", " ").split())


def denied(sentence: str) -> bool:
    """Whether the sentence before a box denies that the box is the answer."""
    parts = sentence.lower().split()
    if sentence.endswith(_JOINTS) and _TWO_VALUES.search(sentence):
        return True
    early = not (_EARLY.isdisjoint(parts) or _ANSWERS.isdisjoint(parts))
    if not early and _TRIGGERS.isdisjoint(parts) and "n't" not in sentence and "n’t" not in sentence:
        return False
    cut = _CONCLUDES.match(sentence)
    sentence = sentence[cut.end() :] if cut is not None else sentence
    words = _TURN.split(_UNLIKE.sub("", sentence).rstrip(": "))[-1]
    words = words[-NEAR:].lower()
    return _NEGATED.search(words[-40:]) is not None or _REFUSED.search(words) is not None


def changing(sentence: str) -> str:
    """The words directly before a box that change its value; empty if they only lead to it."""
    if sentence.endswith(_LINKS):
        return ""
    words = _NO_WORD.split(sentence)[-1].strip()
    if _AS_MANY.search(words) is not None:
        return " ".join(words.split()[-4:])
    links = list(_LINK.finditer(words))
    rest = words[links[-1].end() :].strip() if links else words
    last = " ".join(rest.split()[-4:])
    if not last:
        return ""
    found = _CHANGING.search(last)
    if found is not None and not _ends_well(last, found[0]):
        return last
    tail = last.split()[-1].lower()
    return last if tail in _LOADED_ENDS or (tail.endswith("ly") and is_loaded(tail)) else ""


def _ends_well(words: str, found: str) -> bool:
    """Whether a preposition before a box belongs to the name of the answer: `a total of`, `the price rises from`."""
    if found.strip() not in ("of", "from"):
        return False
    name = words.rpartition(found)[0].split()[-1:]
    return name != [] and name[0].lower() in _OF_NAMES


_AS_MANY = re.compile(r"\bas (?:many|much|large|big|long|far|high|old|great|few|small|tall|heavy|fast|wide|deep) as$")
"""Phrases that only compare something with a box: `twice as many as`."""
_OF_NAMES = listed(
    """total sum value values answer result length width height depth area volume radius diameter perimeter
    circumference probability chance average mean median mode range speed rate distance price cost number amount maximum
    minimum angle slope size count mass weight density temperature age profit loss measure time salary score set
    solution solutions consisting consists comprised made out pair degree order period coordinates dimensions percentage
    percent ratio coefficient interval form equation expression answer difference product quotient remainder sequence
    list group team"""
)


_STEMS = (
    "unless", "provid", "long as", "assum", "suppos", "condition", "proviso", "caveat", "contingent", "subject to",
    "depend", "except", "whenever", "in case", "the case", "event", "sometimes", "not always", "only", "iff",
)  # fmt: skip
_SHORT = frozenset({"if", "for", "when", "(if", "(for", "(when", ",if", "{if", "{for", "{when", "text{if"})
"""Words that every condition contains: most texts have none, and are not searched."""


def _hinted(text: str) -> bool:
    text = text.lower()
    return any(stem in text for stem in _STEMS) or not _SHORT.isdisjoint(text.replace("\\text{", " ").split())


_KIND = (
    r"(?:even|odd|prime|composite|co-?prime|divisible|large|small|big|sufficiently|negative|invertible|convergent|"
    r"congruent|parallel|multiple of|power of|perfect|"
    r"(?:greater|less|more|bigger|smaller|larger) than|at least|at most)\b"
)
_PREDICATE = (
    rf"(?:[^,.;()]{{0,30}}?\b(?:is|are|be|being|was|were) (?:not |both |all |an? )*{_KIND}|{_KIND} \$?[a-z]\b|"
    rf"\$?[a-z]\$? (?:even|odd|prime|large|small)\b|\$?[a-z]\s*(?:[<>≤≥≠]|\\[gl]e(?:q|qslant)?\b|\\[gl]t\b|\\neq?\b)|"
    rf"(?:convergent|defined|possible|applicable)\b)"
)
_RESTRICTS = (
    r"(?:only(?: ever)? (?:if|when|whenever|for|where|in case|in the case|as long|so long|under|provided|on)\b|if "
    r"only\b|if and only if\b|iff\b|unless\b(?! (?:otherwise|stated|noted|specified))|provid(?:ed|ing)\b|(?:as|so) "
    r"long as\b|on (?:the |one |a )?(?:sole |single )?condition\b|under (?:the |a |one )?condition\b|(?:with|under) "
    r"the (?:proviso|condition|caveat)\b|subject to\b(?! (?:rounding|the|these|this|those|its|our|\$))|(?:contingent|"
    r"conditional) (?:up)?on\b|depend(?:ing|ent|s) (?:up)?on\b|except (?:if|when|where|in|for (?:even|odd|prime|large|"
    r"small|\$?[a-z]\b))|in (?:the )?(?:case|event) (?:that|of|where|\$?[a-z]\b(?!\$? ?=))|not always(?= ?(?:$|[.,;]|"
    r"true|the case|valid|correct|holds?|so))|sometimes\b|but not (?:if|when|for)\b)"
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
"""Right behind a box, any `if` makes a condition, except the place of an extreme or talk: `if you check it`."""
_TALK = (
    r"(?:(?:is|are|was|be|remains|remain|would|will|can|does|do|only|the|an?|our|my|valid|correct|right|true|answer|"
    r"solution|value|result|what|we|get|possible|in fact|really|actually|indeed|of course|though|works?|holds?|stands?|"
    r"applies|apply|survives?|makes|sense|good|fine|legitimate|justified|guaranteed|usable|meaningful|accepted|final|"
    r"true|works out|goes through|checks out|counts?|serves|qualifies) )*"
)
"""Words that call a value the answer, unlike words on where it is attained or how it is found."""
_BEHIND = re.compile(
    rf"(?:[\s$)\]*_—–,;:(-]|\\[)\],; ])*(?:(?:but|and|yet|though|although|however|which|that|it|this|these|"
    rf"the answer|the result),? )*{_TALK}(?P<opens>{_ALL})(?P<rest>[^.;\n]{{0,90}})"
)
_SENTENCE = re.compile(
    rf"[.;!]\s+(?:(?:But|And|However|Note that|Of course|But note that|but|note that|and|however),? )*(?i:this|that|it|"
    rf"(?:the|this|that|my|our) (?:\w+ )?(?:answer|result|value|formula|solution|conclusion|argument)) {_TALK[:-1]}+"
    rf"(?P<opens>{_OPENS})(?P<rest>[^.;\n]{{0,90}})"
)
"""A sentence behind a box that restricts its answer: `This holds only if n is even`."""
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
"""Conditions that are a step of the reasoning: `if and only if this holds, so the answer is`."""
_DOMAIN = re.compile(r"\b(?:nonzero|non-zero|zero|defined|denominator|real|converges?|integers?|positive|exists?)\b")
_LETTER = re.compile(r"(?<![A-Za-z\\'’])[a-zA-Z](?![A-Za-z'’])")
_ARTICLES = frozenset("aAI")
_TEXT_PART = re.compile(r"\\(?:text|mathrm|mbox|textbf)\s*\{([^{}]*)\}")
_NAME = re.compile(r"\s*[a-zA-Z](?:_\{?\w\}?)?\s*=(?=[^=]*$)")


def conditional(after: str, content: str) -> bool:
    """Whether the text behind a box restricts its content to a condition."""
    if not _hinted(after):
        return False
    plain = _TEXT_PART.sub(r"\1", after)
    return _restricts(_BEHIND.match(plain), content) or _restricts(_SENTENCE.search(plain), content)


def conditional_before(sentence: str, content: str) -> bool:
    """Whether the sentence before a box makes it hold under a condition only: `As long as n is even, it is`."""
    return _hinted(sentence) and _restricts(_BEFORE.search(sentence), content)


def conditional_within(answer: str, gold: str) -> bool:
    """Whether an answer holds under a condition that its gold answer does not mention."""
    if " " not in answer and "\\text" not in answer:
        return False
    if not _hinted(answer) or _hinted(gold):
        return False
    plain = " ".join(_TEXT_PART.sub(r" \1 ", answer).replace("\\ ", " ").split())
    match = _WITHIN.search(plain)
    if match is None:
        return False
    value = plain[: match.start()] or match["rest"].partition(",")[2]
    if not value:
        # A condition without a value is the answer itself: `only when x = 0`.
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
    return set(_LETTER.findall(_TEXT_PART.sub(" ", text))) - _ARTICLES
