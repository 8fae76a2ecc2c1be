r"""Takings-back: a sentence that finds fault with the answer before it, repairs it, or calls it another answer.

Example:

    takes_back("I used the wrong formula", "10")      # True

What counts is who speaks of what: the answer (`that`, `the result`) and a denial, or the writer and a mistake.
"""

import re

from slime_reward_math.context.denials import CLAUSE, EXEMPT, NEGATIVE, of_another
from slime_reward_math.context.folded import folded

IT = (
    r"(?:(?:(?<![a-z] )\b(?:that|which)|\b(?:but|and|so|because|since|think|believe|afraid|sure|sorry|wait|no|actually|"
    r"then|well|now|here|however|unfortunately) (?:that|which)|\b(?:this|it|these|those|both))|\b(?:(?:the|my|our|"
    r"this|that) (?:(?:above|boxed|final|previous|last|whole|"
    r"entire|original|initial|same|given|stated|resulting|obtained) )?(?:answer|result|value|"
    r"solution|above|calculation|computation|total|count|number|box|check|verification|proof|argument|reasoning|"
    r"derivation|approach|method|formula|assumption|estimate|guess|logic|work|step|arithmetic|algebra|counting|"
    r"simplification|substitution|equation|condition|constraint|figure|response|conclusion))"
    r"|(?:^|[.,;:] )(?:checking|verification|substitution|testing|the check|sanity check|cross-?check|"
    r"(?:plugging|substituting|putting) (?:it|this|that)? ?(?:back )?(?:in)?))"
)
"""What a sentence calls the answer before it, or how it was found."""
_SOFT = (
    r"(?: (?:just|also|then|still|even|so|therefore|thus|actually|really|clearly|obviously|certainly|simply|in fact|"
    r"quite|be|have|been|at all|now|both|all|probably|possibly|likely|surely|again))*"
)
_NOT_MEANT = (
    r"(?! ?(?:\w+ly )?(?:a |an |any |the |that |too |so |very |all that |be |been |really |quite |have been |to )*"
    r"(?:all\b|everything|confus|surpris|coinciden|accident|hard|difficult|easy|obvious|trivial|necess|need|matter|"
    r"depend|affect|"
    r"change|only|"
    r"just|merely|unexpected|unusual|unreasonable|uncommon|immediate|improve|simplif|reduc|exceed|beat|larger|"
    r"bigger|greater|"
    r"smaller|higher|lower|better|worse|more|less|any|bad|wrong|incorrect|mistake|error|problem|issue|random|"
    r"include|involve|require|use|hurt|restrict|relevant|rely|assume|take|happen|yet|-?\d|\$|\\|"
    r"a (?:perfect|prime|multiple)|rational|zero|never|unique to|hesitate|worry|forget|suffer|lose|count|contain|"
    r"contradict|"
    r"violat|impossible|care|say|mean|tell|equal|exact|an? (?:integer|whole)|possible (?:for|to)|allow|help|other))"
)
"""What may be denied of an answer that stands: `it is not surprising`, `this does not depend on n`."""
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
    r"common|commonly|claim\w*|typical|avoid\w*|careful|watch out|beware|tempt\w+|pitfalls?|trap|naive\w*|without|"
    r"let me know|"
    r"feel free|please|if|unless|whether|larger|bigger|greater|smaller|fewer|better|nothing|every|in general|"
    r"generally|hope|"
    r"exclud\w+|reject\w*|discard\w*|negative|hypothe\w+|contrapos\w+|by contradiction|contrary|converse\w*|"
    r"alternative|"
    r"alternatively|would|tempting|"
    r"standard|rounding|margin|percent|percentage|second root|which is why|impossible to)\b"
)
"""What makes a denial one of something else: another value, a case, a mistake that others make."""
_MISTAKEN = folded(
    r"\b(?:I|we|I've|we've|I’ve)(?: have| had| think I| think we| just| also| must have| may have| seem to have| "
    r"realize I| see I| now see I|'ve| might have| should have| could have)*(?: \w+ly)? "
    r"(?:mis(?!s\b|sing\b)\w+|forgot|overlooked|neglected|double[- ]counted|over-?counted|under-?counted|messed|"
    r"botched|erred|"
    r"screwed|confused|mixed up|jumped the gun|was mistaken|were mistaken|was wrong|were wrong|stand corrected|got "
    r"(?:it|this|that) wrong|"
    r"went wrong)\b"
    r"|\bI(?:'ve|’ve| have| had| must have| may have| think I| also| just| actually| then)* (?!think|hope|am\b|'m|"
    r"could be|might be|may be|can be)\w+ [^.]{0,40}?"
    r"\b(?:the wrong|wrong(?:ly)?|incorrect(?:ly)?|instead|twice|by mistake|by accident|accidentally|too many|too few|"
    r"backwards?|off by|where I should|when I should|upside down|the other way|mistaken)\b"
    r"|\bI (?:also |just |actually )?(?:dropped|omitted|skipped|swapped|flipped|inverted|lost|left out|transposed) "
    r"|(?<!if )\b(?:something|things?)(?:'s|’s| went| is| has gone| must be| seems| looks| are| feels) (?:\w+ "
    r")?(?:wrong|off|amiss|fishy|"
    r"inconsistent)\b|\bI should have\b|\bstand corrected\b"
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
    r"recalculat\w*|recount\w*|"
    r"reconsider\w*|re-?think\w*|re-?work\w*|restart\w*|re-?do|revis(?:e|es|ed|ing)|amend\w*|abandon\w*|scrap\w*|"
    r"undo\w*|backtrack\w*|"
    r"start(?:ing)? (?:over|again|fresh|from scratch)|try(?:ing)? (?:\w+ )?again|chang\w+ (?:my|the|this|that) "
    r"(?:final )?(?:answer|mind|value)|"
    r"correct(?:ing)? (?:my|the|this|that|it|myself)|fix\w* (?:this|that|it|my|the)|tak\w+ \w+ back|rectify|"
    r"adjust(?:ing)? (?:this|that|it|my|the|for)|go back (?:and|to)|halve|double it|look(?:ing)? (?:for|at) (?:it|"
    r"this) again|"
    r"subtract(?: off)? (?:the|these|those|them|this|that|it|\d)|throw (?:this|that|it) (?:out|away)|discard "
    r"(?:this|that|it|my)|"
    r"disown|rescind|dismiss (?:this|that|it|my)|reject (?:this|that|it|my)|not (?:use|submit|count|accept) "
    r"(?:this|that|it))\b"
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
    r"\b(?:question|problem|prompt|task|exercise|they|statement|final part)(?: \w+)? (?:ask\w*|want\w*|requir\w+|"
    r"is asking|says|said|"
    r"specif\w+|calls?|need\w*|is about|was)\b"
)
_NOTICED = folded(r"\b(?:reali[sz]e|I see|I notice\w*|turns out|misread|oh)\b")
CONTRAST = folded(
    r"^[\s*_(]*(?:but|however|unfortunately|except|though|although|yet|alas|sadly|and yet|still|that said|nevertheless|"
    r"nonetheless|on the other hand|regrettably)\b|\b(?:though|however|but)\b[,. )]*$|, (?:but|though|however|yet|"
    r"except)\b|\binstead\b"
)
_HYPOTHETICAL = folded(
    r"\b(?:that|this|it|which)(?:'d| would| might| could| may)(?: \w+)? (?:be|have been|hold|work|apply|"
    r"give)\b[^.]{0,80}\b(?:if|had|were|unless)\b"
    r"|\b(?:is|was) what (?:I|we|one|you) (?:\w+ )?(?:got|get(?! (?:when|by|from|after|for|in|if we)\b)|"
    r"had|thought|would|first|initially|originally)\b"
)
_THAT = folded(
    r"\b(not(?:e|ing|ice)|see|seen|sees|show\w*|know\w*|mean\w*|impl\w+|so|such|ensur\w+|fact|say\w*|conclud\w+|"
    r"given|rememb\w+|condition|"
    r"requirement|confident|sure|clear|obvious|recall|observe|prov\w+|find|found|check\w*|verif\w+|claim\w*|"
    r"possible|likely|true|property|reason) that\b"
)
"""A `that` which opens a clause, and names nothing."""
_IMPERATIVE = folded(
    r"^[\s*_(>-]*(?:please,? )?(?:do not|don't|don’t|never) (?:use|trust|rely|submit|count|accept|take|read|grade|"
    r"mark|believe|box|write|report)\b(?! (?:a |the )?(?:calc|order|neg|zero))"
)
_MEANT = folded(
    r"\b(?:I|we) (?:\w+ )?(?:meant|mistyped|intended|should have)\b|(?<!what )(?<!as )(?<!which )\b(?:we|I) "
    r"(?:were|are|was|am) (?:\w+ )?(?:asked|supposed) (?:for|to|about)\b"
    r"|\b(?:better|rather|make (?:that|it)|should (?:read|say|be))\s*:?\s*[\s$\\(]*-?\d"
    r"|\b(?:we|I) (?:\w+ )?(?:haven't|have not|hadn't|had not|didn't|did not|never) (?:\w+ )?(?:yet |actually |"
    r"really |even )?(?:consider\w*|account\w*|includ\w*|multipl\w*|divid\w*|"
    r"add(?:ed)?|subtract\w*|check\w*|count\w*|tak\w+|took|appl\w+|notic\w*|handl\w*|finish\w*|finished|squar\w*|"
    r"convert\w*|round\w*|simplif\w+|prov\w+|verif\w+|answer\w*|read|treat\w*)\b"
    r"|\b(?:which|that|what) the (?:problem|question|statement|rules?|conditions?|constraints?) (?:forbid\w*|"
    r"disallow\w*|prohibit\w*|rul\w+ out|does(?:n't| not) (?:allow|permit|want))"
    r"|\b(?:can't|can’t|cannot|can not|couldn't|isn't|won't|must not) (?:possibly )?(?:be )?it\b"
    r"|\b(?:still|yet) (?:need|needs|have|has|must|remains) to\b"
)


_ON_PURPOSE = folded(
    r"\b(?:on purpose|deliberately|intentionally|by design)\b|\b(?:if|unless|in case|whether) (?:I|we)(?:'ve| have)? "
    r"(?:\w+ly |have )?(?:mis|made|forgot|overlooked|got|am|was|messed|skipped)"
)
"""What was meant to be, or is only supposed."""


def takes_back(sentence: str, box: str) -> bool:
    """Whether a sentence says that the answer before it is none, in any of the ways that are known by their form."""
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
