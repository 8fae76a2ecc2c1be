"""Effect of one sentence behind a box: it takes the box back, doubts it, settles a doubt, or (mostly) does nothing.

Example:

    heard("Wait, let me check that", "60")      # Heard.DOUBTED
    takes_back("I used the wrong formula", "10")      # True
    denies("The other root is not positive", "3")      # False

A sentence that opens a correction (`Wait`, `However, this`) takes the answer back, unless a later one settles it.
Decisive are subject and predicate: the answer (`that`, `the result`) with a denial, or the writer with a mistake.
"""

import re
from enum import Enum

from slime_reward_math.tree import folded

CLAUSE = folded(
    r"\b(?:because|since|as (?:the|it|they|we|there|long|well|if)|so that|in order|even though|although|though (?!$)|"
    r"even if|whereas|while|whether or not|in which case|provided)\b[^,;]*(?=[,;]|$)"
)
"""Clauses that only give a reason or a circumstance."""
_NEGATES = folded(
    r"\b(?:not|never|no|none|nor|neither|cannot|cant|nowhere|hardly|fails?|failed|failing|wrong|wrongly|incorrect\w*|"
    r"false|falsely|contradict\w*|impossible|invalid|violat\w*|flawed|mistak\w*|errors?|inconsistent|overlook\w*|"
    r"misses|missed|missing|nonsense|nonsensical|absurd|conflict\w*|disagree\w*|over-?count\w*|under-?count\w*|"
    r"double[- ]count\w*|mismatch\w*|doubtful|dubious|suspicious|unreasonable|(?:is|are|was|were|seems|looks) (?:\w+ "
    r")?off|unlikely|discarded|rejected|retracted|too (?:big|small|large|high|low|many|few|much))\b|n't|n’t|≠|\\neq?\b"
)
_STRONG = folded(
    r"\b(?:wrong|wrongly|incorrect\w*|contradict\w*|impossible|invalid|flawed|mistak\w*|errors?|inconsistent|nonsense|"
    r"nonsensical|absurd|conflict\w*|disagree\w*|over-?count\w*|under-?count\w*|double[- ]count\w*|mismatch\w*|"
    r"doubtful|dubious|suspicious|unreasonable|(?:is|are|was|were|seems|looks) (?:\w+ )?off|retracted|not (?:yet "
    r")?(?:the|our|my|what) (?:final|actual|correct|real|true|required|wanted|answer|solution|desired|intended)|too "
    r"(?:big|small|large|high|low|many|few|much))\b|≠|\\neq?\b"
)
_NONE_LEFT = folded(
    r"^[\s*_(,;:—–-]*(?:so |hence |thus |therefore |and |but )?(?:no (?:such|good|luck|dice|way|answer|solution|valid|"
    r"integer|real|value)|none (?:exist|work|of)|not (?:good|valid|possible|enough|quite|right|so|correct|an?\b)|(?:it|"
    r"this|that)? ?(?:cannot|can't|doesn't|isn't|won't|fails)\b|there (?:is|are|was|were) no (?:such|solution|valid|"
    r"way|answer|integer|real|value))\b"
)
_REMARK = folded(
    r"^[\s*_(]*(?:please )?(?:note|notice|observe|recall|remember|interestingly|indeed|also|in particular|clearly|"
    r"obviously|fun fact|remark|hence|thus|so that|here)\b"
)
EXEMPT = folded(
    r"(?:\b(?:no|not|never|nothing|nobody|none|cannot|without)|n't|n’t)(?: \w+(?:'s)?){0,3}?[ -](?:other|others|"
    r"another|any|anything|else|further|more|better|larger|bigger|smaller|greater|fewer|less|higher|lower|longer|"
    r"shorter|cheaper|needs?|needed|necess\w+|required?|hard|harder|difficult|easy|easier|obvious|surpris\w+|"
    r"coincid\w+|accident|depend\w*|matter\w*|affect\w*|changed?|simplif\w+|improv\w+|reduc\w+|reducible|"
    r"contradictions?|problems?|issues?|calculators?|tricks?|tricky|calculus|wonder|closed form|neat|nice|overlap\w*|"
    r"repeat\w*|repetition|remainder|ambigu\w+|loss|zero|negative|positive|rational|real|distinct|necessarily|only|"
    r"just|merely|simply|include\w*|forget|used?|assum\w+|requir\w+|worry|give up|skip\w*|confus\w+|symmetric|bad|"
    r"exceed\w*|beat\w*|carry|shortcuts?|guess\w*|hesitate|equal to (?:zero|0)|defined|constraints?|restrictions?|"
    r"rounding|approximat\w+|as (?:hard|easy|simple|bad|difficult|short|elegant|nice|clean|scary)|unique to|exact|"
    r"possible to (?:do|improve|get|have)|possible otherwise|allowed to)\b|\bnot (?:so |too |very |that |really |all "
    r"that |as |at all )+(?:hard|bad|difficult|easy|complicated|long|scary)\b|\b(?:no|none) (?:two|three|one|single|"
    r"pair|of)\b|\bno (?:\w+ ){0,2}(?:solutions?|roots?|values?|cases?|ways?|integers?|numbers?|points?|pairs?|"
    r"triples?|primes?|need|one|restriction|doubt|common factors?|overlap) (?:for|with|other|else|exists?|in|when|if|"
    r"of|such|besides|beyond|to (?:check|consider|compute|use|simplify))\b|\b(?:we|one|they|people|students?) (?:\w+ "
    r")?(?:do not|don't|don’t|never|need not|needn't|(?:did not|didn't|didn’t|have not|haven't) (?:even |really "
    r")?(?:needed|need|use|used|assume|require|have to)|can't|can’t|cannot|can not|couldn't|could not)(?! (?:\w+ "
    r")?(?:be (?:sure|certain)|determine|conclude|decide|know|solve|trust|say|verify|confirm|justify|accept|believe|"
    r"finish|think|agree|have this|get this|actually|yet))\b|\b(?:common|frequent|typical|usual|classic|easy|standard|"
    r"rounding|relative|percentage|margin of|careless|naive|possible|potential) (?:\w+ )?(?:mistakes?|errors?)\b|"
    r"\b(?:no|any|without|zero) (?:\w+ )?(?:mistakes?|errors?|slips?|flaws?|problems?|issues?|contradictions?|bugs?|"
    r"typos?)\b|\b(?:wrong|incorrect) (?:answers|values|choices|options|results|solutions)\b|\boff-by-one errors?\b|"
    r"\bavoid\w*(?: \w+){0,3} (?:mistakes?|errors?|overcounting|double[- ]counting|confusion)\b|\bnot (?:to "
    r")?(?:double|over)[- ]?count\w*|(?:\b(?:not|never|cannot)|n't|n’t) (?:equal |be |the same as |equal to "
    r")?(?=[$(\[]*[-−]?[\d\\])|(?:\b(?:not|never|no|nothing|hardly)|n't|n’t)(?: (?:an?|be|at all|in any way))? "
    r"(?:wrong|incorrect|mistaken|false|invalid|impossible|excluded|rejected|mistakes?|errors?|contradict\w*|violat\w*|"
    r"off|flawed)\b|\bimpossible (?:to|for)\b|\bno (?:larger|smaller|more|less|fewer|greater|later|earlier) than\b|"
    r"\bin no time\b|\b(?:and|but|is)(?: is| also)? not (?:divisible|a multiple|a power)\b|, (?:and )?not (?:a |an |"
    r"the )?\w+$|\bnot (?:only|just|merely|simply|necessarily|to mention|including|counting|drawn to scale|"
    r"surprisingly|unlike)\b|\bno matter\b|\bif not\b|\bwhy not\b|\bor not\b|\b(?:false|wrong|untrue|fails?|impossible|"
    r"not true|not the case|incorrect|doesn't hold|does not hold) (?:for|when|if|at|in) (?:\w+ )?\$?(?:-?\d|[a-z]\b|"
    r"larger|smaller|other|any|general)"
)
"""Denials that keep an answer: of other values, of things not needed, of difficulty."""
OTHERS = folded(
    r"\b(?:the )?(?:other|others|another|negative|second|remaining|alternative|extraneous|trivial|opposite|smaller|"
    r"larger|next|previous|former|latter|complex|imaginary|naive|converse|first) "
    r"(?:\w+ )?(?:roots?|solutions?|values?|cases?|options?|choices?|possibilit\w+|factors?|numbers?|candidates?|"
    r"ones?|answers?|intersections?|points?|count|statement|branch|sign|term|way|one|integer|prime|substitution|"
    r"attempt|try|guess|approach|method|formula|estimate|calculation)\b"
    r"|\b(?:claim|statement|converse|conjecture|assertion|belief|idea|hypothesis|assumption that|intuition)\b"
)
READER = folded(
    r"\b(?:you|your|yours|let me know|feel free|hope|hopes|hoping|hesitate|please|thanks?|helpful|practice|homework|"
    r"happy to|reader|try this|next time|remember|fun|careful|watch out|beware|tip|hint|keep in mind|give up|key "
    r"(?:was|is|idea|point|step)|trick|moral|lesson|takeaway|students?|someone|many people|people)\b"
)
SUPPOSED = folded(
    r"\b(?:if|suppose|supposing|assuming|otherwise|were|had|else|unless|whether|would|wouldn't|should you|one might|"
    r"might think|contrapositive|contrary|in general|for example|tempting|tempted|could)\b"
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
"""An answer that is itself a denial: a denial behind it only repeats it."""


def denies(sentence: str, box: str) -> bool:
    """Whether a sentence denies something that may be the answer, because it is not known to be another thing."""
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
    # Denials about other things do not concern the answer.
    return own and _REMARK.match(sentence) is None and _NEGATES.search(rest) is not None


def of_another(sentence: str, box: str) -> bool:
    """Whether a sentence is about another value: `x = 6 does not work because it fails the second equation`."""
    found = _SUBJECT.search(sentence)
    return found is not None and found[1] not in box


IT = (
    r"(?:(?:(?<![a-z] )\b(?:that|which)|\b(?:but|and|so|because|since|think|believe|afraid|sure|sorry|wait|no|actually|"
    r"then|well|now|here|however|unfortunately) (?:that|which)|\b(?:this|it|these|those|both))|\b(?:(?:the|my|our|this|"
    r"that) (?:(?:above|boxed|final|previous|last|whole|entire|original|initial|same|given|stated|resulting|obtained) "
    r")?(?:answer|result|value|solution|above|calculation|computation|total|count|number|box|check|verification|proof|"
    r"argument|reasoning|derivation|approach|method|formula|assumption|estimate|guess|logic|work|step|arithmetic|"
    r"algebra|counting|simplification|substitution|equation|condition|constraint|figure|response|conclusion))|(?:^|"
    r"[.,;:] )(?:checking|verification|substitution|testing|the check|sanity check|cross-?check|(?:plugging|"
    r"substituting|putting) (?:it|this|that)? ?(?:back )?(?:in)?))"
)
"""Names for the preceding answer, or for its derivation."""
_SOFT = (
    r"(?: (?:just|also|then|still|even|so|therefore|thus|actually|really|clearly|obviously|certainly|simply|in fact|"
    r"quite|be|have|been|at all|now|both|all|probably|possibly|likely|surely|again))*"
)
_NOT_MEANT = (
    r"(?! ?(?:\w+ly )?(?:a |an |any |the |that |too |so |very |all that |be |been |really |quite |have been |to "
    r")*(?:all\b|everything|confus|surpris|coinciden|accident|hard|difficult|easy|obvious|trivial|necess|need|matter|"
    r"depend|affect|change|only|just|merely|unexpected|unusual|unreasonable|uncommon|immediate|improve|simplif|reduc|"
    r"exceed|beat|larger|bigger|greater|smaller|higher|lower|better|worse|more|less|any|bad|wrong|incorrect|mistake|"
    r"error|problem|issue|random|include|involve|require|use|hurt|restrict|relevant|rely|assume|take|happen|yet|-?\d|"
    r"\$|\\|a (?:perfect|prime|multiple)|rational|zero|never|unique to|hesitate|worry|forget|suffer|lose|count|contain|"
    r"contradict|violat|impossible|care|say|mean|tell|equal|exact|an? (?:integer|whole)|possible (?:for|to)|allow|help|"
    r"other))"
)
"""Denials that leave an answer valid: `it is not surprising`, `this does not depend on n`."""
_DENIAL = folded(
    IT + r"(?: \w+){0,2}?(?:(?:'s|’s| is| are| was| were| does| do| did| can| could| would| will| should| has| have| "
    rf"must| may| might| seems| looks| appears| sounds)?{_SOFT}(?:n't|n’t|'t\b|’t\b|nt\b| not| never| no longer)|"
    rf" (?:cannot|isnt|doesnt|cant)){_SOFT}{_NOT_MEANT}"
)
_BREAKS = folded(
    IT + r"(?: (?!not\b|never\b|hardly\b)\w+){0,3}? (?:violat\w+|contradict\w*|conflict\w*|over-?count\w*|"
    r"under-?count\w*|double[- ]count\w*|"
    r"triple[- ]count\w*|count\w* [^.]{0,40}\b(?:twice|two times|more than once)|overlook\w*|neglect\w*|omit\w*|"
    r"miss(?:es|ed)|"
    r"fail\w*|ignor\w+|disregard\w*|forgets?|leaves? out|left out|breaks? (?:down|the)|disagree\w*|mismatch\w*|"
    r"makes? no|is no\b(?! (?:surprise|"
    r"accident|coincidence|larger|more|less|bigger|smaller|longer needed))|is (?:(?!not\b|never\b|hardly\b)\w+ "
    r")?(?:nonsens\w+|absurd|spurious|unacceptable|inadmissible|incompatible|unjustified|unproven|unsupported|"
    r"implausible|"
    r"inconsistent|unreasonable|unrealistic|backwards?|dubious|suspicious|suspect|"
    r"flawed|bogus|garbage|rubbish|invalid|false|wrong|incorrect|mistaken|erroneous|questionable|off\b|out of "
    r"range|outside|"
    r"too (?!hard|easy|difficult)\w+|half (?:of|the)|double the|incomplete|unfinished|unverified|partial|"
    r"(?:only|just|merely) (?:the |a |an |one |half|for |part)|for (?:the |a )?(?:previous|other|another|different|"
    r"wrong)|extraneous|a (?:typo|mistake|slip|miscalc\w*|miscount\w*|placeholder|guess|wild guess)|an error|"
    r"from (?:the|a|an) (?:previous|other|earlier|different))|was (?:assuming|before|under|without|based|ignoring|"
    r"counting|just|only|using) |was (?:for|from|meant|a) [^.]{0,25}(?:previous|other|"
    r"earlier|different|another|mistake|typo|slip|error)|does nothing|only (?:covers|counts|works|holds|gives|"
    r"includes|accounts|considers|solves|handles))"
)
_HARMLESS = folded(
    r"\b(?:otherwise|suppose|supposing|supposed|assum\w+|any|other|others|another|someone|anyone|students?|people|"
    r"common|commonly|claim\w*|typical|avoid\w*|careful|watch out|beware|tempt\w+|pitfalls?|trap|naive\w*|without|let "
    r"me know|feel free|please|if|unless|whether|larger|bigger|greater|smaller|fewer|better|nothing|every|in general|"
    r"generally|hope|exclud\w+|reject\w*|discard\w*|negative|hypothe\w+|contrapos\w+|by contradiction|contrary|"
    r"converse\w*|alternative|alternatively|would|tempting|standard|rounding|margin|percent|percentage|second root|"
    r"which is why|impossible to)\b"
)
"""Words that direct a denial at something else: another value, a case, a common mistake."""
_MISTAKEN = folded(
    r"\b(?:I|we|I've|we've|I’ve)(?: have| had| think I| think we| just| also| must have| may have| seem to have| "
    r"realize I| see I| now see I|'ve| might have| should have| could have)*(?: \w+ly)? (?:mis(?!s\b|sing\b)\w+|forgot|"
    r"overlooked|neglected|double[- ]counted|over-?counted|under-?counted|messed|botched|erred|screwed|confused|mixed "
    r"up|jumped the gun|was mistaken|were mistaken|was wrong|were wrong|stand corrected|got (?:it|this|that) wrong|"
    r"went wrong)\b|\bI(?:'ve|’ve| have| had| must have| may have| think I| also| just| actually| then)* (?!think|hope|"
    r"am\b|'m|could be|might be|may be|can be)\w+ [^.]{0,40}?\b(?:the wrong|wrong(?:ly)?|incorrect(?:ly)?|instead|"
    r"twice|by mistake|by accident|accidentally|too many|too few|backwards?|off by|where I should|when I should|upside "
    r"down|the other way|mistaken)\b|\bI (?:also |just |actually )?(?:dropped|omitted|skipped|swapped|flipped|inverted|"
    r"lost|left out|transposed) |(?<!if )\b(?:something|things?)(?:'s|’s| went| is| has gone| must be| seems| looks| "
    r"are| feels) (?:\w+ )?(?:wrong|off|amiss|fishy|inconsistent)\b|\bI should have\b|\bstand corrected\b"
)
_FAULT = folded(
    r"\b(?:mistakes?|errors?|slips?|typos?|bugs?|flaws?|oversights?|blunders?|miscalculations?|glitch|miscounts?|"
    r"misprints?|misreading|gap in|sign error|arithmetic error|algebra error)\b"
)
_OWN = folded(
    r"\b(?:there(?:'s|’s| is| was| seems| are| must)|I (?:see|notice|found|find|spot|spotted|made|have|had|caught|"
    r"just|realize|think)|contains?|due to|because of|my|step|above|caught|spotted|found|that was|this was|in (?:the|"
    r"that|this) (?:last|first|second|third|calc\w+|comp\w+|previous|sum|algebra|arithmetic|line|working|solution))"
)
_REPAIR = folded(
    r"\b(?:I|I'm|I’m|I'll|I’ll|I'd|I’d|we|we'll|let me|let's|let us|must|need|needs|should|have to|has to|going to|"
    r"allow me to|better to|time to)\b[^.]{0,25}?\b(?:withdraw\w*|retract\w*|re-?do(?:ne|ing)?|recomput\w*|"
    r"recalculat\w*|recount\w*|reconsider\w*|re-?think\w*|re-?work\w*|restart\w*|re-?do|revis(?:e|es|ed|ing)|amend\w*|"
    r"abandon\w*|scrap\w*|undo\w*|backtrack\w*|start(?:ing)? (?:over|again|fresh|from scratch)|try(?:ing)? (?:\w+ "
    r")?again|chang\w+ (?:my|the|this|that) (?:final )?(?:answer|mind|value)|correct(?:ing)? (?:my|the|this|that|it|"
    r"myself)|fix\w* (?:this|that|it|my|the)|tak\w+ \w+ back|rectify|adjust(?:ing)? (?:this|that|it|my|the|for)|go "
    r"back (?:and|to)|halve|double it|look(?:ing)? (?:for|at) (?:it|this) again|subtract(?: off)? (?:the|these|those|"
    r"them|this|that|it|\d)|throw (?:this|that|it) (?:out|away)|discard (?:this|that|it|my)|disown|rescind|dismiss "
    r"(?:this|that|it|my)|reject (?:this|that|it|my)|not (?:use|submit|count|accept) (?:this|that|it))\b"
)
_UNBELIEVED = folded(
    r"\b(?:I|we)(?:'m|’m|'d|’d| am| do| did| can| could| would| have)?(?: \w+ly| really| now| also| still)*"
    r"(?:n't|n’t|'t|’t| not| cannot| no longer| doubt| distrust| question| no longer)(?: \w+ly| really| at all)* "
    r"?(?:trust|believe|think|agree|stand by|accept|buy|like|see how|convinced|happy|satisfied|comfortable|this|that|"
    r"it|recommend|endorse|defend|so\b|solve|answer|find (?:it|the)|determine|figure|finish|complete|justify|prove|"
    r"guarantee|vouch|defend)"
)
_OTHERS = folded(r"\b(?:other|others|another|any|anything|anyone|more|further|better|necessary|need|there|hard)\b")
_CONTRADICTED = folded(r"\b(?:a|the|is|is a|this|yields|gives|reach|reached|get|clear|direct) contradiction\b")
_ASKED = folded(
    r"\b(?:question|problem|prompt|task|exercise|they|statement|final part)(?: \w+)? (?:ask\w*|want\w*|requir\w+|is "
    r"asking|says|said|specif\w+|calls?|need\w*|is about|was)\b"
)
_NOTICED = folded(r"\b(?:reali[sz]e|I see|I notice\w*|turns out|misread|oh)\b")
CONTRAST = folded(
    r"^[\s*_(]*(?:but|however|unfortunately|except|though|although|yet|alas|sadly|and yet|still|that said|nevertheless|"
    r"nonetheless|on the other hand|regrettably)\b|\b(?:though|however|but)\b[,. )]*$|, (?:but|though|however|yet|"
    r"except)\b|\binstead\b"
)
_HYPOTHETICAL = folded(
    r"\b(?:that|this|it|which)(?:'d| would| might| could| may)(?: \w+)? (?:be|have been|hold|work|apply|"
    r"give)\b[^.]{0,80}\b(?:if|had|were|unless)\b|\b(?:is|was) what (?:I|we|one|you) (?:\w+ )?(?:got|get(?! (?:when|by|"
    r"from|after|for|in|if we)\b)|had|thought|would|first|initially|originally)\b"
)
_THAT = folded(
    r"\b(not(?:e|ing|ice)|see|seen|sees|show\w*|know\w*|mean\w*|impl\w+|so|such|ensur\w+|fact|say\w*|conclud\w+|given|"
    r"rememb\w+|condition|requirement|confident|sure|clear|obvious|recall|observe|prov\w+|find|found|check\w*|verif\w+|"
    r"claim\w*|possible|likely|true|property|reason) that\b"
)
"""A `that` that opens a clause, and does not refer to the answer."""
_IMPERATIVE = folded(
    r"^[\s*_(>-]*(?:please,? )?(?:do not|don't|don’t|never) (?:use|trust|rely|submit|count|accept|take|read|grade|"
    r"mark|believe|box|write|report)\b(?! (?:a |the )?(?:calc|order|neg|zero))"
)
_MEANT = folded(
    r"\b(?:I|we) (?:\w+ )?(?:meant|mistyped|intended|should have)\b|(?<!what )(?<!as )(?<!which )\b(?:we|I) (?:were|"
    r"are|was|am) (?:\w+ )?(?:asked|supposed) (?:for|to|about)\b|\b(?:better|rather|make (?:that|it)|should (?:read|"
    r"say|be))\s*:?\s*[\s$\\(]*-?\d|\b(?:we|I) (?:\w+ )?(?:haven't|have not|hadn't|had not|didn't|did not|never) "
    r"(?:\w+ )?(?:yet |actually |really |even )?(?:consider\w*|account\w*|includ\w*|multipl\w*|divid\w*|add(?:ed)?|"
    r"subtract\w*|check\w*|count\w*|tak\w+|took|appl\w+|notic\w*|handl\w*|finish\w*|finished|squar\w*|convert\w*|"
    r"round\w*|simplif\w+|prov\w+|verif\w+|answer\w*|read|treat\w*)\b|\b(?:which|that|what) the (?:problem|question|"
    r"statement|rules?|conditions?|constraints?) (?:forbid\w*|disallow\w*|prohibit\w*|rul\w+ out|does(?:n't| not) "
    r"(?:allow|permit|want))|\b(?:can't|can’t|cannot|can not|couldn't|isn't|won't|must not) (?:possibly )?(?:be )?it\b|"
    r"\b(?:still|yet) (?:need|needs|have|has|must|remains) to\b"
)


_ON_PURPOSE = folded(
    r"\b(?:on purpose|deliberately|intentionally|by design)\b|\b(?:if|unless|in case|whether) (?:I|we)(?:'ve| have)? "
    r"(?:\w+ly |have )?(?:mis|made|forgot|overlooked|got|am|was|messed|skipped)"
)


def takes_back(sentence: str, box: str) -> bool:
    """Whether a sentence takes back the answer before it, in any of the known forms."""
    sentence, box = sentence.lower(), box.lower()
    if _ON_PURPOSE.search(sentence):
        return False
    if (
        _HYPOTHETICAL.search(sentence)
        or _MISTAKEN.search(sentence)
        or _MEANT.search(sentence)
        or _IMPERATIVE.match(sentence)
    ):
        return True
    if _UNBELIEVED.search(sentence) and _OTHERS.search(sentence) is None:
        return True
    if _REPAIR.search(sentence) and re.search(r"\b(?:because|since|otherwise|if|you)\b", sentence) is None:
        return True
    if _ASKED.search(sentence) and (CONTRAST.search(sentence) or _NOTICED.search(sentence)):
        return True
    if _HARMLESS.search(sentence) or of_another(sentence, box):
        return False
    if _FAULT.search(EXEMPT.sub(" ", sentence)) and _OWN.search(sentence):
        return True
    main = CLAUSE.sub(" ", _THAT.sub(r"\1 ", sentence))
    denied = NEGATIVE.search(box) is None and _DENIAL.search(main) is not None
    return denied or _BREAKS.search(main) is not None or _CONTRADICTED.search(main) is not None


class Heard(Enum):
    """Effect of a sentence on the answer before it."""

    NOTHING = "nothing"
    SETTLED = "settled"
    """It removes a doubt."""
    DOUBTED = "doubted"
    """It begins to correct the answer, which is taken back unless a later sentence settles it."""
    BACK = "taken back"
    """It takes the answer back; only restating the same answer undoes that."""


_OF_ANSWER = folded(
    rf"{IT}|\b(?:half|most|many|some|several|few|two|three) of (?:them|these|those)\b|"
    r"\b(?:I|each|every|we|all|some)\b|\b(?:is|was|are|were)(?:n't|n’t| not)\b"
)
_ASIDE = folded(
    r"\b(?:(?:could|might|may) be wrong|not (?:entirely |quite |fully |100\w* |completely )?(?:sure|certain)|you|your|"
    r"note|noting|worth|alternative\w*|approach|method|proof|in general|generally|general case|simpler|easier|faster|"
    r"elegant|another|calculator|not all|interesting\w*|surpris\w*|counter-?intuitive\w*|strange|follows|remarkabl\w*|"
    r"nice|beautiful|fun|other|others|optional|practice|recommend|enough|suffic\w+|fine|correct|right|okay|ok|expected|"
    r"what we want\w*|good|exactly|consistent|agrees?|matches|works|the only|tempting|you might|expect|rejected|reject|"
    r"discard\w*|invalid|negative|so the answer|so our answer|extraneous|impossible|naive|one might|can be (?:shown|"
    r"proved|proven|checked|verified|seen)|verif\w+|bigger|larger|harder|generali[sz]\w*)\b"
)
_TURNED = folded(r"[\s$)*_\]\\]*[,;—–-]*\s*(?:but|yet|though|although|except|however)\b")
_MANNERS = (
    r",? (?:for|about|if|that|it took|to have|to keep) (?!(?:that|this|it|the above|all that|those|"
    r"these)\s*(?:[,.!):;-]|$))(?![^.]*\b(?:mistakes?|errors?|typos?|slips?|wrong\w*|incorrect\w*|mis(?!h)\w+|bugs?|"
    r"oversights?|blunders?|should|answers?|results?|value|box|calculation|count)\b)"
)
"""Continuations of an apology for the manner, not for the answer: `sorry about the mix-up`."""
_OPENS = folded(
    r"^(?![\s*_(]*no (?:correction|edit|update|revision|apolog))[\s*_(\[>#$),;:—–-]*(?:oh|ah|ok|okay|um+|uh|er|well|"
    r"but|and|actually|so|no)?[,.!… -]*(?:wait|hold on|hang on|hold up|hmm*|erm|uh[- ]oh|oh no|oh dear|darn|dang|damn|"
    r"shoot|argh|ugh|d'oh|doh|yikes|not so fast|"
    rf"(?:sorry|(?:my )?apolog(?:ies|i[sz]e)|i apologi[sz]e)(?!{_MANNERS})|my (?:bad|"
    r"mistake|fault|error)|oops\w*|whoops\w*|correction|edit|update|errat(?:um|a)|revision|revised|amended|corrected|"
    r"p\.?s\.? correction|on (?:second thoughts?|reflection|closer|further|re\w+|a second|another look|review)|upon "
    r"(?:reflection|closer|further|re\w+|review|a second)|after (?:re\w+|further|more|another|a second|thinking|"
    r"checking|closer|some) [^.]{0,40}|come to think|looking (?:at (?:it|this|that) )?(?:back|again|closer|more)|"
    r"thinking (?:again|about it|more|it)|then again|strike|scratch|scrap|drop (?:that|this|it)|cancel|nope|nah|never "
    r"?mind|false alarm|not quite|not really|not exactly|forget (?!ting)|ignore|disregard|recomput\w+|recalculat\w+|"
    r"recount\w+|re-?examin\w+|re-?evaluat\w+|redo\w*|re-?reading|rereading|re-?check\w*|checking again|rechecking|let "
    r"me (?:re\w+|rethink|fix|try|start|think again|correct|step back|go back|revisit|change)|let's (?:redo|recompute|"
    r"recalculate|reconsider|fix|rethink|start over)|i (?:take|need to|have to|must|should) (?:re\w+|fix|correct|take|"
    r"go back|back))\b|^[\s*_(>$),;:—–-]*(?:oh|ah|um+|uh|well|hmm+|actually|and|but)?[,. ]*no(?:[,.!…—:;-]| wait| that|"
    r" it| this| I\b|[\s*_)]*$)"
)
_AFFIRMS = folded(
    r"\b(?:yes|yep|yeah|yup|indeed|correct|right|okay|ok|fine|good|great|match(?:es|ed)?|consistent|confirm\w*|"
    r"verif(?:ied|ies|y)|check(?:s|ed)? out|works?|holds|stands?|valid|agrees?|agreed|satisf\w+|as expected|perfect\w*|"
    r"all set|same|no (?:problem|issue|mistake|error|change)|makes sense|true|reasonable|never ?mind)\b|✓|✔|✅|☑"
)
_CANCELS = folded(
    r"\b(?:not|no|never|cannot|can't|fails?|wrong|incorrect|neither|nor|without|should be|actually|instead|was|were|"
    r"must|correct(?:ed)? (?:answer|value|result|one|number|count)|right (?:answer|value|result|one|number)|only|"
    r"contradict\w*|violat\w*|conflict\w*|disagree\w*|inconsistent|invalid|if|try|let me|let's|need|hardly|barely|"
    r"twice|error|mistake|slip|forgot|too)\b|n't|n’t|≠|\\ne"
)
_STANDS = folded(
    r"\b(?:(?:answer|result|value|box|it|that|this|above) (?:still |does |indeed |therefore )?(?:stands?|holds?|"
    r"remains)(?: correct| as is| valid)?|(?:is|was) (?:indeed |in fact |actually |still )?(?:fine|correct|right|ok|"
    r"okay|valid) after all|still (?:correct|right|valid|fine|the answer)|false alarm|(?:was|is) (?:fine|right|"
    r"correct) (?:all along|the first time)|no (?:mistake|error) after all)\b"
)
_LEAD = (
    r"(?:=|≈|:|\b(?:is|are|was|get|gets|got|gives|gave|still|again|indeed|obtain|obtains|equals|have|answer|result|"
    r"value|yields|to|remains|so|thus|hence|therefore|yes|confirms?|confirmed|confirming|stays|keep|with|stick|find|"
    r"exactly|at|on|total|of)),?(?: (?:the|same|answer|value|result|indeed|again|still|exactly|correct|be|is|as|a|"
    r"total|of|=)){0,3}[\s$*(\\\[=]*"
)
_TAIL = (
    r"(?!\w|[.,]?\d|\s*[-+*/^=×]\s*[\w$(\\])(?![\s$*)]*(?:is|was|does|can|could|would|cannot|fails|isn't|doesn't|can't|"
    r"seems|must|looks|may|might|isn’t|should)\b(?! (?:indeed |also |the |still )?(?:correct|right|the|answer|fine|"
    r"valid|our|my|final|work|verified|confirmed|good)))"
)
_AGAINST = folded(
    r"(?:\bnot|n't|n’t|never|instead of|rather than|than|≠|\\neq?|\bwrong|\bfrom|\bcannot)[\s\w$*(]{0,14}$"
)
_TRULY = folded(
    r"^[\s$)*_(>.,;:—–-]*(?:oh |but |and |well |so )?(?:,? ?(?:actually|in fact|really|in reality|in truth|correctly|"
    r"properly|to be (?:exact|precise|fair)|or rather|rather(?! than)|instead(?! of)|sorry|typo|oops|wait|no|"
    r"correction|edit)\b[,: —–-]*)+[^=]*?(?<![\w.])\$?(-?\d+(?:[.,/]\d+)?)\$?\W*$"
)
_AGAIN = folded(
    r"(?:\b(?:it|that|this|(?:the|our|my|its) (?:\w+ )?(?:answer|total|result|value|count|number|figure|amount|sum|"
    r"area|probability))(?:'s|’s| is| comes (?:out )?(?:to|at)| becomes| equals| was)|\b(?:I'd|I’d|I would|I'll|I’ll|I "
    r"will|let's|let me) (?:rather |now |then )?(?:say|go with|answer|pick|choose|put|take|submit)|\b(?:corrected|"
    r"revised|updated|amended|fixed)\b[^=:]{0,30}[:=]|\b(?:I|we) (?:now |actually |really |then |instead |properly |"
    r"correctly )*(?:get|got|obtain|find))[\s$*(\\]*(-?\d+(?:[.,/]\d+)?)[\s$*)\\]*(?:,? (?:sorry|oops|actually|instead|"
    r"rather|my bad|my mistake|in fact|really|though|not this|not that))?\W*$"
)
_CHECKS = folded(
    r"\b(?:check\w*|verif\w+|substitut\w+|plug\w*|confirm\w*|test\w*|left|right|lhs|rhs|both|if|for|when|so that|"
    r"sanity|indeed|each|every|with [a-z]\b|side|squar\w+|adding|sum of|twice)\b"
)

_OBJECT = folded(
    r"\b(?:into|from|on|about|for|of|with|against|out of|through|at|to) (?:it|them|that|this)\b(?=\W*(?:$|[,;]))|"
    r"\bI would(?:n't|n’t| not)? (?!be|have|say|get|need|like to (?:change|correct))[^,;]+"
)
"""Phrases in which the answer is only an object: `taxes would eat into it`."""
_STILL_DUE = folded(r"\b(?:must|needs?|ha[sd] to|have to|should|still|yet|subtract\w*|add\w*|remove\w*)\b")


def heard(sentence: str, box: str, asked: bool = False, asks: bool = False) -> Heard:
    """Effect of a sentence behind a box on the box's answer.

    Args:
        sentence: without the stop that ends it.
        box: what the box holds.
        asked: whether the previous sentence was a question about something else: `Can it be larger? No.`
        asks: whether this sentence is such a question.
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
    """The different, unnamed value at the end of a sentence: `15` of `without repetition it's 15`."""
    sentence, box = sentence.lower(), box.lower()
    found = _TRULY.match(sentence)
    if found is not None and found[1] not in box and restates(sentence, box) is False:
        return found[1]
    found = _AGAIN.search(sentence)
    if found is None or found[1] in box or _CHECKS.search(sentence) or SUPPOSED.search(sentence):
        return None
    return found[1]


def settles(sentence: str, box: str) -> bool:
    """Whether a sentence confirms or repeats the answer."""
    return _STANDS.search(sentence.lower()) is not None or restates(sentence, box)


def restates(sentence: str, box: str) -> bool:
    """Whether a sentence repeats the box's value without denying it: `= 20`, `so it is still 20`."""
    sentence, box = sentence.lower(), box.strip(" $").lower()
    if not box or box not in sentence:
        return False
    if len(box) > 30:
        return True
    for match in re.finditer(_LEAD + re.escape(box) + _TAIL, sentence):
        if _AGAINST.search(sentence[: match.end() - len(box)]) is None:
            return True
    return False
