r"""What a sentence denies, and of what: denials of other values, or of what is not needed, leave an answer alone.

Example:

    denies("So x = 3 is not a solution", "3")      # True
    denies("The other root is not positive", "3")      # False
"""

import re

from slime_reward_math.context.folded import folded

CLAUSE = folded(
    r"\b(?:because|since|as (?:the|it|they|we|there|long|well|if)|so that|in order|even though|although|though "
    r"(?!$)|even if|whereas|while|whether or not|"
    r"in which case|provided)\b[^,;]*(?=[,;]|$)"
)
"""What only gives a reason, or a circumstance."""
_NEGATES = folded(
    r"\b(?:not|never|no|none|nor|neither|cannot|cant|nowhere|hardly|fails?|failed|failing|wrong|wrongly|"
    r"incorrect\w*|false|falsely|contradict\w*|impossible|"
    r"invalid|violat\w*|flawed|mistak\w*|errors?|inconsistent|overlook\w*|misses|missed|missing|nonsense|"
    r"nonsensical|absurd|"
    r"conflict\w*|disagree\w*|over-?count\w*|under-?count\w*|double[- ]count\w*|mismatch\w*|doubtful|dubious|"
    r"suspicious|unreasonable|"
    r"(?:is|are|was|were|seems|looks) (?:\w+ )?off|unlikely|discarded|rejected|retracted|too (?:big|small|large|"
    r"high|low|many|few|much))\b|n't|n’t|≠|\\neq?\b"
)
"""Words that deny, contradict or repair."""
_STRONG = folded(
    r"\b(?:wrong|wrongly|incorrect\w*|contradict\w*|impossible|invalid|flawed|mistak\w*|errors?|inconsistent|"
    r"nonsense|nonsensical|absurd|"
    r"conflict\w*|disagree\w*|over-?count\w*|under-?count\w*|double[- ]count\w*|mismatch\w*|doubtful|dubious|"
    r"suspicious|unreasonable|"
    r"(?:is|are|was|were|seems|looks) (?:\w+ )?off|retracted|"
    r"not (?:yet )?(?:the|our|my|what) (?:final|actual|correct|real|true|required|wanted|answer|solution|desired|"
    r"intended)|"
    r"too (?:big|small|large|high|low|many|few|much))\b|≠|"
    r"\\neq?\b"
)
"""Words that find fault, of whatever they are said."""
_NONE_LEFT = folded(
    r"^[\s*_(,;:—–-]*(?:so |hence |thus |therefore |and |but )?(?:no (?:such|good|luck|dice|way|answer|solution|"
    r"valid|integer|real|value)|none (?:exist|work|of)|not (?:good|valid|possible|enough|quite|right|so|correct|"
    r"an?\b)|"
    r"(?:it|this|that)? ?(?:cannot|can't|doesn't|isn't|won't|fails)\b|there (?:is|are|was|were) no (?:such|"
    r"solution|valid|way|answer|integer|real|value))\b"
)
"""What says that there is no answer at all."""
_REMARK = folded(
    r"^[\s*_(]*(?:please )?(?:note|notice|observe|recall|remember|interestingly|indeed|also|in particular|clearly|"
    r"obviously|fun fact|remark|hence|thus|so that|here)\b"
)
"""What opens a remark."""
EXEMPT = folded(
    r"(?:\b(?:no|not|never|nothing|nobody|none|cannot|without)|n't|n’t)(?: \w+(?:'s)?){0,3}?[ -](?:other|others|"
    r"another|any|anything|else|further|more|better|larger|"
    r"bigger|smaller|greater|fewer|less|higher|lower|longer|shorter|cheaper|needs?|needed|necess\w+|required?|hard|"
    r"harder|difficult|easy|easier|obvious|surpris\w+|"
    r"coincid\w+|accident|depend\w*|matter\w*|affect\w*|changed?|simplif\w+|improv\w+|reduc\w+|reducible|"
    r"contradictions?|problems?|issues?|"
    r"calculators?|tricks?|tricky|calculus|wonder|closed form|neat|nice|overlap\w*|repeat\w*|repetition|remainder|"
    r"ambigu\w+|loss|zero|negative|positive|"
    r"rational|real|distinct|necessarily|only|just|merely|simply|include\w*|forget|used?|assum\w+|requir\w+|worry|"
    r"give up|skip\w*|confus\w+|symmetric|"
    r"bad|exceed\w*|beat\w*|carry|shortcuts?|guess\w*|hesitate|equal to (?:zero|0)|defined|constraints?|"
    r"restrictions?|rounding|"
    r"approximat\w+|as (?:hard|easy|simple|bad|difficult|short|elegant|nice|clean|scary)|unique to|exact|possible "
    r"to (?:do|improve|get|have)|possible otherwise|allowed to)\b"
    r"|\bnot (?:so |too |very |that |really |all that |as |at all )+(?:hard|bad|difficult|easy|complicated|long|"
    r"scary)\b"
    r"|\b(?:no|none) (?:two|three|one|single|pair|of)\b|\bno (?:\w+ ){0,2}(?:solutions?|roots?|values?|cases?|"
    r"ways?|integers?|numbers?|points?|pairs?|triples?|primes?|need|one|restriction|doubt|common factors?|overlap) "
    r"(?:for|with|other|else|exists?|in|when|if|of|such|besides|beyond|to (?:check|consider|compute|use|simplify))\b"
    r"|\b(?:we|one|they|people|students?) (?:\w+ )?(?:do not|don't|don’t|never|need not|needn't|(?:did not|didn't|"
    r"didn’t|have not|haven't) (?:even |really )?(?:needed|need|use|used|assume|require|have to)|"
    r"can't|can’t|cannot|can not|couldn't|could not)(?! (?:\w+ )?(?:be (?:sure|certain)|determine|conclude|decide|"
    r"know|solve|trust|say|verify|confirm|justify|accept|"
    r"believe|finish|think|agree|have this|get this|actually|yet))\b"
    r"|\b(?:common|frequent|typical|usual|classic|easy|standard|rounding|relative|percentage|margin of|careless|"
    r"naive|possible|potential) (?:\w+ )?(?:mistakes?|errors?)\b"
    r"|\b(?:no|any|without|zero) (?:\w+ )?(?:mistakes?|errors?|slips?|flaws?|problems?|issues?|contradictions?|"
    r"bugs?|typos?)\b"
    r"|\b(?:wrong|incorrect) (?:answers|values|choices|options|results|solutions)\b|\boff-by-one errors?\b"
    r"|\bavoid\w*(?: \w+){0,3} (?:mistakes?|errors?|overcounting|double[- ]counting|confusion)\b|\bnot (?:to "
    r")?(?:double|over)[- ]?count\w*"
    r"|(?:\b(?:not|never|cannot)|n't|n’t) (?:equal |be |the same as |equal to )?(?=[$(\[]*[-−]?[\d\\])|(?:\b(?:not|"
    r"never|no|nothing|hardly)|n't|n’t)(?: (?:an?|be|at all|in any way))? (?:wrong|incorrect|mistaken|false|"
    r"invalid|impossible|excluded|rejected|mistakes?|errors?|contradict\w*|violat\w*|off|flawed)\b|\bimpossible "
    r"(?:to|for)\b|\bno (?:larger|smaller|more|less|fewer|greater|later|earlier) than\b|\bin no time\b"
    r"|\b(?:and|but|is)(?: is| also)? not (?:divisible|a multiple|a power)\b|, (?:and )?not (?:a |an |the )?\w+$"
    r"|\bnot (?:only|just|merely|simply|necessarily|to mention|including|counting|drawn to scale|surprisingly|"
    r"unlike)\b|\bno matter\b|\bif not\b|\bwhy not\b|\bor not\b"
    r"|\b(?:false|wrong|untrue|fails?|impossible|not true|not the case|incorrect|doesn't hold|does not hold) "
    r"(?:for|when|if|at|in) (?:\w+ )?\$?(?:-?\d|[a-z]\b|larger|smaller|other|any|general)"
)
"""Denials that leave an answer what it is: of other values, of what is not needed, of how hard it is."""
OTHERS = folded(
    r"\b(?:the )?(?:other|others|another|negative|second|remaining|alternative|extraneous|trivial|opposite|smaller|"
    r"larger|next|previous|former|latter|complex|imaginary|naive|converse|first) "
    r"(?:\w+ )?(?:roots?|solutions?|values?|cases?|options?|choices?|possibilit\w+|factors?|numbers?|candidates?|"
    r"ones?|answers?|intersections?|points?|count|statement|branch|sign|term|way|one|integer|prime|substitution|"
    r"attempt|try|guess|approach|method|formula|estimate|calculation)\b"
    r"|\b(?:claim|statement|converse|conjecture|assertion|belief|idea|hypothesis|assumption that|intuition)\b"
)
READER = folded(
    r"\b(?:you|your|yours|let me know|feel free|hope|hopes|hoping|hesitate|please|thanks?|helpful|practice|"
    r"homework|happy to|reader|try this|next time|remember|fun|"
    r"careful|watch out|beware|tip|hint|keep in mind|give up|key (?:was|is|idea|point|step)|trick|moral|lesson|"
    r"takeaway|students?|someone|many people|people)\b"
)
SUPPOSED = folded(
    r"\b(?:if|suppose|supposing|assuming|otherwise|were|had|else|unless|whether|would|wouldn't|should you|one "
    r"might|might think|contrapositive|contrary|"
    r"in general|for example|tempting|tempted|could)\b"
)
_SUBJECT = re.compile(
    r"(?:^[\s*_>(-]*|[,;:] |\b(?:case|at|with|for|when|taking|point|note|that|because|since|but|and|value|values|"
    r"reject|root|roots|try|trying|why|so|as|of|for) )\$?(?:[a-zA-Z]\s*=\s*)?(-?(?:\d+(?:[./]\d+)?|"
    r"\\[dt]?frac\{\d+\}\{\d+\}))[\s$)]*,? (?:does|is|are|was|do|did|cannot|can't|fails?|"
    r"would|isn't|doesn't|gives a contradiction|leads to)\b"
)


NEGATIVE = folded(
    r"\b(?:no|none|not|false|impossible|never|neither|diverges?|divergent|dne|empty|undefined)\b|\\emptyset|\\varnothing|^0$"
)
"""An answer that denies something itself: a denial behind it only says it again."""


def denies(sentence: str, box: str) -> bool:
    """Whether a sentence denies something that may be the answer: what is not known to be something else."""
    sentence, box = sentence.lower(), box.lower()
    if _NEGATES.search(sentence) is None or READER.search(sentence) or SUPPOSED.search(sentence):
        return False
    if OTHERS.search(sentence) or of_another(sentence, box):
        return False
    own = re.search(rf"(?<![\w.^]){re.escape(box)}(?![\w^]|\.\d)", sentence) is not None if box else False
    rest = (
        sentence
        if own and re.search(rf"(?:not|n't|never) \$?{re.escape(box)}(?![\w.])", sentence)
        else EXEMPT.sub(" ", sentence)
    )
    if _STRONG.search(rest) or (_NONE_LEFT.search(rest) and NEGATIVE.search(box) is None):
        return True
    # What is denied of other things is none of the answer's business.
    return own and _REMARK.match(sentence) is None and _NEGATES.search(rest) is not None


def of_another(sentence: str, box: str) -> bool:
    """Whether a sentence speaks of another value: `x = 6 does not work because it fails the second equation`."""
    found = _SUBJECT.search(sentence)
    return found is not None and found[1] not in box
