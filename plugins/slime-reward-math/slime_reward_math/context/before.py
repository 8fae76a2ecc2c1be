r"""The words before a box, in its sentence: what they do to it, and whether they say that it is not the answer.

Example:

    changing("So the answer is at least ")      # "at least"
    denied("It is not true that the answer is ")      # True
"""

import re

from slime_reward_math.context.folded import folded
from slime_reward_math.read.loaded import is_loaded
from slime_reward_math.tree import listed

REACH = 160
"""Characters before a box that are looked at."""
NEAR = 120
"""Characters before a box in which a denial is looked for."""
_FRAME = " \n\t$({[\\*_&~"
"""What may stand between the last word and the box."""
_TEXT = re.compile(r"\\(?:text|mathrm)\{([^{}]*)\}?")
_ENDS = (". ", ".\n", "\n\n", "? ", "! ", "\n-", "\n*", "\nStep", ".$ ", ".\\)")
"""How a sentence before that of the box ends."""
_LINK = re.compile(
    r"\b(?:is|are|was|were|be|being|been|equals?|equaling|gives?|giving|gave|yields?|yielding|becomes?|gets?|getting|"
    r"got|"
    r"obtains?|obtaining|obtained|have|has|had|having|makes?|making|totals|totaling|totalling|leaves|leaving|left|"
    r"finds?|found|as|"
    r"that|choose|pick|select|need|needs|required|exist|exists|remain|remains|answer|result|reach|reaches|conclude|"
    r"see|know|find|then|therefore|thus|hence|so|and|contains?|produces?|producing|earns?|pays?|paid|costs?|takes?|"
    r"took|"
    r"spends?|spent|uses?|used|sells?|sold|buys?|bought|walks?|eats?|ate|measures?|weighs?|reads?|shows?|scores?)\b"
)
"""Words that lead from what the answer is called to the answer."""
_NEGATED = re.compile(
    r"(?:\b(?:not|never|cannot|neither|nor|hardly|isn't|aren't)|n't|n’t)"
    r"(?: (?:be|equal|to|the|a|an|get|give|have|yet|really|necessarily|exactly|just|simply|only|actually|quite|always|"
    r"choose|pick|select))*$"
)
_NO_MORE = re.compile(r"\bnot (?:only|just)$")
_CHANGING = re.compile(
    r"(?:(?:(?:\b\d+|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|a|slightly|much|strictly|just|far|somewhat|"
    r"twice|half|times|\d+ times)) )?(?:as (?:many|much|large|big|long|far|high|old|great) as|"
    r"(?:more|less|greater|fewer|smaller|larger|bigger|higher|lower|older|younger|longer|shorter|other|rather|better|"
    r"worse) than(?: or equal to)?|(?:anything|everything|nothing|all|any) (?:but|except)|other than|"
    r"bounded (?:above |below )?by|limited to|capped at)"
    r"|instead of|in place of|(?:day|days|year|years|month|months|week|weeks|number|integer|term|one|"
    r"hour|hours) (?:right |just |immediately )?(?:after|before|following|preceding)|different from|unlike|"
    r"except(?: for)?|apart from|aside from|up to|down to|close to|"
    r"near(?: to)?|"
    r"next to|(?:an? |the )?(?:multiple|divisor|factor|power|square|cube|root|double|triple|half|third|quarter|"
    r"opposite|inverse|"
    r"reciprocal|negative|complement|negation|successor|predecessor|remainder|sum|product|bound)s? (?:of|from|on|to)|"
    r"\b(?:add|adds|added|adding|subtract|subtracting|multiply|multiplying|divide|dividing) (?:\w+ )?(?:to|from|by)|"
    r"of|from|between|beyond|above|below|under|over|within|past|per|than|before|times|divided by|plus|minus|twice|"
    r"double|triple|half|"
    r"almost|nearly|maybe|perhaps|possibly|probably not|around but not|at most|at least|no more|no less)$"
)
"""What words directly before a box do more than name it."""
_KIND_WRONG = (
    r"(?:wrong|incorrect|na[iï]ve|tempting|false|mistaken|invalid|erroneous|bogus|fake|intermediate|partial|interim|"
    r"preliminary|"
    r"tentative|trap|decoy|rejected|discarded|distractor|candidate|unreduced|unsimplified)"
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
    rf"|^{_KIND_WRONG} (?:answer|result|value|guess|solution|attempt|answers|results|solutions)\b[^.]{{0,20}}$"
    rf"|(?:{_START}|^){_KIND_EARLY} (?:\w+ )?(?:answer|guess|attempt|thought|estimate|instinct|impression|reaction|"
    rf"try|result)\b[^.]{{0,40}}$"
    r"|(?<!best )(?<!educated )\b(?:guess|instinct|intuition|gut feeling|hunch|conjecture|placeholder|"
    r"dummy)\b[^.,;]{0,30}\b(?:is|was|says|would be|would give|says it is|of)\b[^.,;]{0,12}$"
    r"|\b(?:mistakes?|errors?|trap|pitfall|fallacy|misconception) (?:here )?(?:is|would be|to|was|are|of)\b[^.]{0,60}$"
    r"|\b(?:false|untrue|incorrect|wrong|impossible|not true|not the case|not correct|not right|a lie|a mistake|"
    r"a myth|absurd|doubtful|unlikely|"
    r"not possible|an error|never the case|not clear|unclear|hard to believe|no proof|no evidence|"
    r"no reason to (?:think|believe))"
    r" (?:that|to|for|if|whether)\b[^.;]{0,80}$"
    r"|\bno (?:way|chance|possibility|guarantee)\b[^.;,]{0,40}$|\bnor\b[^.;,]{0,20}$|\bneither\b[^.;,]{0,20}$"
    r"|\b(?:do not|don't|does not|doesn't|did not|didn't|can't|cannot|never|can not|could not|couldn't|would not|"
    r"wouldn't) "
    r"(?:think|believe|get|obtain|agree|say|claim|conclude|mean|accept|want|suppose|know|choose|pick)\b[^.;,]{0,60}$"
    r"|\b(?:one|you|some|some people|many|many people|people|students?|someone|somebody|nobody|no one|they|it) "
    r"(?:\w+ )?(?:might|may|could|can|would|will|often|usually|sometimes|commonly|easily) (?:\w+ )?(?:be tempted to |"
    r"first |initially |wrongly |mistakenly |"
    r"naively |incorrectly |even |at first |well |easily |also )*(?:think|say|guess|answer|expect|assume|believe|"
    r"argue|conclude|suspect|claim|suppose|"
    r"be tempted|be fooled|write|put)\b[^.;]{0,60}$"
    r"|\b(?:many|some|most|several|few|careless|lazy|naive) (?:\w+ )?(?:people|students|solvers|contestants|"
    r"candidates|models|readers) (?:\w+ )?"
    r"(?:answer|answered|say|said|think|thought|get|got|write|wrote|guess|guessed|choose|chose|pick|"
    r"picked)\b[^.;]{0,40}$"
    r"|\b(?:tempt(?:ed|ing) to|at first (?:glance|sight)|naively|mistakenly|wrongly|incorrectly|erroneously|falsely|"
    r"supposedly|allegedly|used to (?:think|believe)|thought (?:that )?(?:it|the answer)|we (?:first|initially|"
    r"originally|previously) (?:thought|got|found|had|said)|"
    r"I (?:first|initially|originally|previously|wrongly|once|earlier) (?:thought|got|found|had|said|wrote|believed|"
    r"guessed|computed|calculated)|"
    r"(?:I|we) (?:thought|guessed|believed|assumed|supposed|expected|hoped|hope|wish|doubt|suspect|wonder)|"
    r"(?:rule|ruled|ruling|cross|crossed|throw|threw|cast) (?:out|off|away)|reject(?:s|ed|ing)?|discard(?:s|ed|ing)?|"
    r"dismiss(?:es|ed|ing)?|"
    r"exclud(?:e|es|ed|ing)|eliminat(?:e|es|ed|ing)|disprov(?:e|es|ed|ing)|refut(?:e|es|ed|ing)|ignor(?:e|es|ed|ing)|"
    r"avoid(?:s|ed|ing)?|contradict(?:s|ed|ing)?)\b[^.;,]{0,30}$"
    r"|(?:^|[,;:] )(?:and |but |so |now |let us |let's |we )?(?:suppose|imagine|pretend|assume|say|if|unless|"
    r"what if) ?(?:that )?(?:the (?:answer|result|value|total|sum)|it|this|we (?:guess|say|answer|take|try)|n|x|"
    r"there)?\b"
    r"(?: \w+)? (?:is|was|were|be|equals?|had been|are|give|gives)?\s*$"
    r"|\b(?:an?|one|some|any|crude|rough|trivial|weak) (?:\w+ )?(?:bound|overestimate|underestimate|approximation|"
    r"estimate) (?:here |for it )?(?:is|of|would be)\s*$"
    r"|^(?:so |now |next,? |first,? |let us |let's |we |I )?(?:try|trying|tried|test|testing|tested|guess|guessing|"
    r"consider|considering)(?: with| out)?(?: \$?[a-z] ?=)?\s*$"
    r"|\b(?:never|not|n't|cannot|hardly) (?:\w+ )?(?:reach\w*|attain\w*|exceed\w*|becom\w*|hit\w*|touch\w*|"
    r"divid\w*|satisf\w*|work for|yield|equals?)\s*$"
    r"|\b(?:suppose|assume|imagine|say)\b[^.;]{0,12}? (?:for (?:the sake of )?(?:a )?(?:contradiction|argument)|"
    r"toward(?:s)? (?:a )?contradiction|"
    r"to the contrary|on the contrary)\b[^.;]*$"
    r"|\b(?:half|twice|double|triple|thrice|a third|a quarter|(?:the )?(?:square|cube|reciprocal|negative|opposite|"
    r"double|half|square root|inverse|complement) of|"
    r"\w+ (?:more|less|times) (?:than )?|\d+ ?(?:[-+*/]|times) ?) ?(?:of )?(?:the|our|my) (?:final |correct |"
    r"required |desired |whole )?(?:answer|result)\b[^.;]{0,30}$"
    r"|\b(?:answer|result) ?(?:plus|minus|times|divided|squared|cubed|doubled|halved|multiplied|increased|"
    r"decreased|reduced|mod|modulo|rounded|raised|[-+*/] ?\d)\b[^.;]{0,40}$"
    r"|\b(?:do not|don't|never|avoid|not|stop) (?:\w+ )?(?:write|writing|put|putting|say|saying|answer|answering|"
    r"use|using|submit|enter|box|accept|trust|report)\b[^.;]{0,30}$"
    r"|\bif\b[^.;]{0,60}\bwere\b[^.;]*$"
    r"|\b(?:answer key|textbook|book|solution manual|friend|teacher|student|calculator|someone|classmate|he|she|they|"
    r"others?|author)\b (?:\w+ )?(?:says|said|claims?|claimed|thinks|"
    r"thought|insists?|insisted|wrote|writes|believes?|suggests?|states)\b[^.;]{0,30}$"
)
"""Sentences that mention a value and do not give it as the answer."""
_TURN = re.compile(r"\b(?:but|however|yet|though|although|whereas|instead,|actually,)(?: |$)")
"""Where a sentence turns to what holds."""
_UNLIKE = re.compile(
    r"(?i)^(?:contrary to|unlike|despite|in contrast to|as opposed to|in spite of|rather than|instead of)\b[^,]*,"
)
"""What an answer is set against before it is given."""
_CONCLUDES = re.compile(r".*\d[^,;]*[,;] (?:so|hence|thus|therefore)\b")
"""What another value is said of before a conclusion: `a naive count says 56, so`."""
PLAIN = ("The final answer is", "The final answer is:", "\nThe answer is", "\nThe answer is:")
"""Sentences of nearly every response: nothing in them changes a box."""
_LINKS = (":", " is", " are")
"""What ends a sentence that only leads to its answer."""
_JOINTS = (" or", " and", "=")
_TWO_VALUES = re.compile(r"\d[\d.]*\s*,? (?:or|and)$|([a-z]) ?= ?-?\d[\d.]*\s*,? or \1 ?=$")
"""One of two values: `either 4 or`."""
_NO_WORD = re.compile(r"[^A-Za-z0-9'’\- ]")
_LOADED_ENDS = listed(
    """not never cannot neither nor hardly barely scarcely almost nearly maybe perhaps possibly twice thrice double
    triple half halve minus plus negative times versus vs without excluding except besides unlike below above under
    over beyond exceeding exceeds between within among either any every"""
)


_TRIGGERS = listed(
    """not never cannot neither nor hardly wrong incorrect naive naïve tempting false mistaken invalid erroneous bogus
    fake intermediate partial interim preliminary tentative trap decoy rejected discarded distractor candidate
    unreduced unsimplified guess attempt instinct thought estimate impression reaction try intuition feeling
    hunch conjecture placeholder dummy mistake mistakes error errors pitfall fallacy misconception untrue
    impossible lie myth absurd doubtful unlikely unclear believe proof evidence reason think say expect argue
    conclude claim write put tempted fooled look looks seem seems appear appears glance sight naively mistakenly
    wrongly incorrectly erroneously falsely supposedly allegedly initially originally previously once guessed
    believed assumed supposed expected hoped hope wish doubt suspect bet wonder rule ruled ruling cross crossed
    throw threw cast reject rejects rejecting discard discards discarding dismiss dismisses dismissed dismissing
    exclude excludes excluded excluding eliminate eliminates eliminated eliminating disprove disproves disproved
    disproving refute refutes refuted refuting ignore ignores ignored ignoring avoid avoids avoided avoiding
    contradict contradicts contradicted contradicting suppose imagine pretend assume if unless no people
    students solvers contestants candidates models readers says said claims claimed thinks insists insisted
    wrote writes believes suggests suggest states contradiction contrary half twice double triple thrice third
    quarter square cube reciprocal opposite inverse complement plus minus times divided squared cubed doubled
    halved multiplied increased decreased reduced mod modulo raised trying tried test testing tested guessing
    consider considering don't don’t stop bound overestimate underestimate approximation"""
)
_CONDITIONS = listed(
    """provided providing long condition conditional contingent subject depending except when whenever assuming
    supposing case event proviso caveat assumption even odd prime only sometimes"""
)
"""Words that may make an answer hold under a condition only: what has one is not a plain lead."""
_EARLY, _ANSWERS = (
    listed("first initial previous earlier original old former provisional early prior"),
    listed("answer answers result got had thought found computed wrote said"),
)
"""Words without which no sentence denies what follows: most before a box have none, and are not searched."""


def only_leads(text: str) -> bool:
    """Whether the text before a box ends in a plain `is`, and has no word that could deny what follows."""
    if not text.endswith(_LINKS):
        return False
    parts = text.lower().split()
    plain = _TRIGGERS.isdisjoint(parts) and _EARLY.isdisjoint(parts) and _CONDITIONS.isdisjoint(parts)
    return plain and "n't" not in text and "n’t" not in text


def before_box(response: str, start: int, place: int) -> str:
    """The sentence up to a box, without what only frames it, bold signs and line breaks left out."""
    text = response[max(start, place - REACH) : place].rstrip(_FRAME)
    if text.endswith(PLAIN) or only_leads(text):
        return ""
    if "\\text{" in text or "\\mathrm{" in text:
        text = _TEXT.sub(r"\1", text)
    cut = max(map(text.rfind, _ENDS))
    return " ".join((text[cut + 1 :] if cut >= 0 else text).replace("*", "").replace("$", " ").split())


def denied(sentence: str) -> bool:
    """Whether the sentence before a box says that what follows is not the answer."""
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
    """The words directly before a box that change what it says; nothing where they only lead to it."""
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
"""What a box is only compared with: `twice as many as`."""
_OF_NAMES = listed(
    """total sum value values answer result length width height depth area volume radius diameter perimeter
    circumference probability chance average mean median mode range speed rate distance price cost number amount
    maximum minimum angle slope size count mass weight density temperature age profit loss measure time salary score
    set solution solutions consisting consists comprised made out pair degree order period coordinates dimensions
    percentage percent ratio coefficient interval form equation expression answer difference product quotient
    remainder sequence list group team"""
)
