r"""What one sentence behind a box makes of it: takes it back, doubts it, or settles a doubt; most say nothing of it.

Example:

    heard("Wait, let me check that", "60")      # Heard.DOUBTED

A sentence that opens a correction (`Wait`, `However, this`) and is not settled by what follows takes the answer back.
"""

import re
from enum import Enum

from slime_reward_math.context.denials import CLAUSE, OTHERS, READER, SUPPOSED, denies, of_another
from slime_reward_math.context.folded import folded
from slime_reward_math.context.repairs import CONTRAST, IT, takes_back


class Heard(Enum):
    """What a sentence says of the answer before it."""

    NOTHING = "nothing"
    SETTLED = "settled"
    """It says that a doubt was none."""
    DOUBTED = "doubted"
    """It begins to correct the answer: unless something settles that, the answer is taken back."""
    BACK = "taken back"
    """It takes the answer back: only the same answer, stated again, undoes that."""


_OF_ANSWER = folded(
    rf"{IT}|\b(?:half|most|many|some|several|few|two|three) of (?:them|these|those)\b|"
    r"\b(?:I|each|every|we|all|some)\b|\b(?:is|was|are|were)(?:n't|n’t| not)\b"
)
_ASIDE = folded(
    r"\b(?:(?:could|might|may) be wrong|not (?:entirely |quite |fully |100\w* |completely )?(?:sure|certain)|you|"
    r"your|note|noting|worth|alternative\w*|approach|method|proof|in general|generally|general case|simpler|easier|"
    r"faster|elegant|"
    r"another|calculator|not all|interesting\w*|surpris\w*|counter-?intuitive\w*|strange|follows|remarkabl\w*|nice|"
    r"beautiful|fun|other|others|optional|practice|recommend|"
    r"enough|suffic\w+|fine|correct|right|okay|ok|expected|what we want\w*|good|exactly|consistent|agrees?|matches|"
    r"works|"
    r"the only|tempting|you might|expect|rejected|reject|discard\w*|invalid|negative|so the answer|so our answer|"
    r"extraneous|impossible|naive|one might|"
    r"can be (?:shown|proved|proven|checked|verified|seen)|verif\w+|bigger|larger|harder|generali[sz]\w*)\b"
)
"""What a turn may bring up without touching the answer."""
_TURNED = folded(r"[\s$)*_\]\\]*[,;—–-]*\s*(?:but|yet|though|although|except|however)\b")
"""What turns against a box in its own sentence."""
_MANNERS = (
    r",? (?:for|about|if|that|it took|to have|to keep) (?!(?:that|this|it|the above|all that|those|these)\s*"
    r"(?:[,.!):;-]|$))"
    r"(?![^.]*\b(?:mistakes?|errors?|typos?|slips?|wrong\w*|incorrect\w*|mis(?!h)\w+|bugs?|oversights?|blunders?|"
    r"should|answers?|results?|value|box|calculation|count)\b)"
)
"""How an apology goes on that is one for the manner, and not for the answer: `sorry about the mix-up`."""
_OPENS = folded(
    r"^(?![\s*_(]*no (?:correction|edit|update|revision|apolog))[\s*_(\[>#$),;:—–-]*(?:oh|ah|ok|okay|um+|uh|er|"
    r"well|but|and|actually|so|no)?[,.!… -]*(?:wait|hold on|hang "
    r"on|hold up|hmm*|erm|uh[- ]oh|"
    r"oh no|oh dear|darn|dang|damn|shoot|argh|ugh|d'oh|doh|yikes|not so fast|"
    rf"(?:sorry|(?:my )?apolog(?:ies|i[sz]e)|i apologi[sz]e)(?!{_MANNERS})|my (?:bad|"
    r"mistake|fault|error)|"
    r"oops\w*|whoops\w*|correction|edit|update|errat(?:um|a)|revision|revised|amended|corrected|p\.?s\.? correction|"
    r"on (?:second thoughts?|reflection|closer|further|re\w+|a second|another look|review)|upon (?:reflection|"
    r"closer|further|re\w+|review|"
    r"a second)|after (?:re\w+|further|more|another|a second|thinking|checking|closer|some) [^.]{0,40}|come to "
    r"think|looking (?:at (?:it|this|that) )?(?:back|again|closer|more)|"
    r"thinking (?:again|about it|more|it)|then again|strike|scratch|scrap|drop (?:that|this|it)|cancel|nope|nah|"
    r"never ?mind|false alarm|not quite|not really|not exactly|"
    r"forget (?!ting)|ignore|disregard|recomput\w+|recalculat\w+|recount\w+|re-?examin\w+|re-?evaluat\w+|redo\w*|"
    r"re-?reading|"
    r"rereading|re-?check\w*|checking again|rechecking|let me (?:re\w+|rethink|fix|try|start|think again|correct|"
    r"step back|go back|revisit|change)|"
    r"let's (?:redo|recompute|recalculate|reconsider|fix|rethink|start over)|i (?:take|need to|have to|must|"
    r"should) (?:re\w+|fix|correct|take|go back|back))\b"
    r"|^[\s*_(>$),;:—–-]*(?:oh|ah|um+|uh|well|hmm+|actually|and|but)?[,. ]*no(?:[,.!…—:;-]| wait| that| it| this| "
    r"I\b|[\s*_)]*$)"
)
"""What opens a correction."""
_AFFIRMS = folded(
    r"\b(?:yes|yep|yeah|yup|indeed|correct|right|okay|ok|fine|good|great|match(?:es|ed)?|consistent|confirm\w*|"
    r"verif(?:ied|ies|y)|"
    r"check(?:s|ed)? out|works?|holds|stands?|valid|agrees?|agreed|satisf\w+|as expected|perfect\w*|all set|same|"
    r"no (?:problem|issue|mistake|error|change)|makes sense|true|reasonable|never ?mind)\b|✓|✔|✅|☑"
)
_CANCELS = folded(
    r"\b(?:not|no|never|cannot|can't|fails?|wrong|incorrect|neither|nor|without|should be|actually|instead|was|"
    r"were|must|"
    r"correct(?:ed)? (?:answer|value|result|one|number|count)|right (?:answer|value|result|one|number)|only|"
    r"contradict\w*|violat\w*|conflict\w*|"
    r"disagree\w*|inconsistent|invalid|if|try|let me|let's|need|"
    r"hardly|barely|twice|error|mistake|slip|forgot|too)\b|n't|n’t|≠|\\ne"
)
_STANDS = folded(
    r"\b(?:(?:answer|result|value|box|it|that|this|above) (?:still |does |indeed |therefore )?(?:stands?|holds?|"
    r"remains)(?: correct| as is| valid)?|"
    r"(?:is|was) (?:indeed |in fact |actually |still )?(?:fine|correct|right|ok|okay|valid) after all|still "
    r"(?:correct|right|valid|fine|the answer)|false alarm|"
    r"(?:was|is) (?:fine|right|correct) (?:all along|the first time)|no (?:mistake|error) after all)\b"
)
_LEAD = (
    r"(?:=|≈|:|\b(?:is|are|was|get|gets|got|gives|gave|still|again|indeed|obtain|obtains|equals|have|answer|result|"
    r"value|yields|to|"
    r"remains|so|thus|hence|therefore|yes|confirms?|confirmed|confirming|stays|keep|with|stick|find|exactly|at|on|"
    r"total|of))"
    r",?(?: (?:the|same|answer|value|result|indeed|again|still|exactly|correct|be|is|as|a|total|of|"
    r"=)){0,3}[\s$*(\\\[=]*"
)
_TAIL = (
    r"(?!\w|[.,]?\d|\s*[-+*/^=×]\s*[\w$(\\])(?![\s$*)]*(?:is|was|does|can|could|would|cannot|fails|isn't|doesn't|"
    r"can't|seems|must|looks|"
    r"may|might|isn’t|should)\b(?! (?:indeed |also |the |still )?(?:correct|right|the|answer|fine|valid|our|my|"
    r"final|work|verified|confirmed|good)))"
)
_AGAINST = folded(
    r"(?:\bnot|n't|n’t|never|instead of|rather than|than|≠|\\neq?|\bwrong|\bfrom|\bcannot)[\s\w$*(]{0,14}$"
)
_TRULY = folded(
    r"^[\s$)*_(>.,;:—–-]*(?:oh |but |and |well |so )?(?:,? ?(?:actually|in fact|really|in reality|in truth|"
    r"correctly|properly|to be (?:exact|precise|fair)|or rather|rather(?! than)|instead(?! of)|sorry|typo|oops|"
    r"wait|no|correction|edit)\b[,: —–-]*)+"
    r"[^=]*?(?<![\w.])\$?(-?\d+(?:[.,/]\d+)?)\$?\W*$"
)
"""What is set right in one sentence, with another value at its end."""
_AGAIN = folded(
    r"(?:\b(?:it|that|this|(?:the|our|my|its) (?:\w+ )?(?:answer|total|result|value|count|number|figure|amount|sum|"
    r"area|probability))(?:'s|’s| is| comes (?:out )?(?:to|at)| becomes| equals| was)|"
    r"\b(?:I'd|I’d|I would|I'll|I’ll|I will|let's|let me) (?:rather |now |then )?(?:say|go with|answer|pick|choose|"
    r"put|take|submit)|"
    r"\b(?:corrected|revised|updated|amended|fixed)\b[^=:]{0,30}[:=]|"
    r"\b(?:I|we) (?:now |actually |really |then |instead |properly |correctly )*(?:get|got|obtain|"
    r"find))[\s$*(\\]*(-?\d+(?:[.,/]\d+)?)[\s$*)\\]*(?:,? (?:sorry|oops|actually|instead|rather|my bad|my mistake|"
    r"in fact|really|though|not this|not that))?\W*$"
)
"""A value at the end of a sentence that is given without a name."""
_CHECKS = folded(
    r"\b(?:check\w*|verif\w+|substitut\w+|plug\w*|confirm\w*|test\w*|left|right|lhs|rhs|both|if|for|when|so that|"
    r"sanity|indeed|each|every|with [a-z]\b|side|squar\w+|adding|sum of|twice)\b"
)

_OBJECT = folded(
    r"\b(?:into|from|on|about|for|of|with|against|out of|through|at|to) (?:it|them|that|this)\b(?=\W*(?:$|[,;]))|"
    r"\bI would(?:n't|n’t| not)? (?!be|have|say|get|need|like to (?:change|correct))[^,;]+"
)
"""Where the answer is only what something is done to: `taxes would eat into it`."""
_STILL_DUE = folded(r"\b(?:must|needs?|ha[sd] to|have to|should|still|yet|subtract\w*|add\w*|remove\w*)\b")
"""What says that something is left to be done to it after all."""


def heard(sentence: str, box: str, asked: bool = False, asks: bool = False) -> Heard:
    """What a sentence behind a box says of it.

    Args:
        sentence: without the stop that ends it.
        box: what the box holds.
        asked: whether the sentence before it was a question of something else: `Can it be larger? No.`
        asks: whether it is such a question itself.
    """
    sentence, box = sentence.lower(), box.lower()
    if settles(sentence, box):
        return Heard.SETTLED
    if takes_back(sentence, box):
        return Heard.BACK
    opened = _OPENS.match(sentence) is not None
    if asked and re.match(r"[\s*_(]*(?:no|yes)\b", sentence):
        return Heard.SETTLED
    main = CLAUSE.sub(" ", sentence)
    if _AFFIRMS.search(main) is not None and _CANCELS.search(main) is None:
        return Heard.SETTLED
    if opened:
        return Heard.DOUBTED
    if asks:
        return Heard.NOTHING
    turned = CONTRAST.search(sentence)
    if turned is not None and _ASIDE.search(sentence) is None:
        against = sentence[turned.start() :]
        if _OF_ANSWER.search(against if _STILL_DUE.search(against) else _OBJECT.sub(" ", against)):
            return Heard.DOUBTED
    return Heard.DOUBTED if not asked and denies(main, box) else Heard.NOTHING


def turns_against(rest: str) -> bool:
    """Whether the rest of a box's own sentence turns against it: `, yet the graph shows four`."""
    rest = rest.lower()
    if _TURNED.match(rest) is None or _ASIDE.search(rest) or READER.search(rest):
        return False
    return not (OTHERS.search(rest) or of_another(rest, "") or SUPPOSED.search(rest))


def given_again(sentence: str, box: str) -> str | None:
    """The other value that a sentence ends in, without saying of what it is: `without repetition it's 15`."""
    sentence, box = sentence.lower(), box.lower()
    found = _TRULY.match(sentence)
    if found is not None and found[1] not in box and restates(sentence, box) is False:
        return found[1]
    found = _AGAIN.search(sentence)
    if found is None or found[1] in box or _CHECKS.search(sentence) or SUPPOSED.search(sentence):
        return None
    return found[1]


def settles(sentence: str, box: str) -> bool:
    """Whether a sentence says that the answer stands, or gives it again."""
    return _STANDS.search(sentence.lower()) is not None or restates(sentence, box)


def restates(sentence: str, box: str) -> bool:
    """Whether a sentence gives the box's value again, and not to deny it: `= 20`, `so it is still 20`."""
    sentence, box = sentence.lower(), box.strip(" $").lower()
    if not box or box not in sentence:
        return False
    if len(box) > 30:
        return True
    for match in re.finditer(_LEAD + re.escape(box) + _TAIL, sentence):
        if _AGAINST.search(sentence[: match.end() - len(box)]) is None:
            return True
    return False
