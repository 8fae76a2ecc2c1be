"""Loaded words, which change or withdraw the value next to them; any other word only names it.

Example:

    is_loaded("is impossible")      # True: `5 is impossible` does not say 5
    is_loaded("red apples")         # False: `5 red apples` does
    counts_things("in theory", number(5))      # False: this names nothing countable
"""

import re

from slime_reward_math.tree import Num, Tree, listed
from slime_reward_math.value.units import is_unit, measure

_ANYWHERE = listed(
    """outside against contrary despite binary octal hexadecimal ternary non semi un anti pseudo quasi not something
    somehow anywhere missing lack lacks lacking omit omits ignore ignoring skip skips drop drops subtract add adding
    multiply multiplying divide remove removing avoid delete cancel try trying test check bet best worst not no cannot
    cant can't isn't isnt aren't arent wasn't doesn't doesnt don't dont won't wouldn't couldn't shouldn't never neither
    nor none nothing nowhere without except excepting excluding excludes unless but besides instead rather hardly barely
    scarcely maybe perhaps possibly probably presumably supposedly conceivably potentially might may could would either
    whether else otherwise alternatively if sometimes occasionally usually almost nearly barring omitting avoiding minus
    plus than versus vs impossible impermissible unattainable unreachable unachievable inadmissible unacceptable
    unlikely improbable infeasible extraneous spurious wrong incorrect incorrectly invalid false untrue mistaken
    erroneous bogus fake absurd rejected reject discarded discard excluded eliminated dismissed disallowed forbidden
    prohibited refuted disproved disproven disqualified ruled fails fail failed failing contradiction contradicts
    contradictory contradicting violates violated violating disagrees inconsistent unsatisfied unsolved undetermined
    unknown unclear undecided unsure uncertain doubtful guess guessing hypothetical hypothetically half halved halve
    doubled tripled twice thrice double triple quadruple quintuple squared cubed factorial reciprocal inverse inverted
    negated negative opposite root roots remainder modulo mod dozen dozens gross score scores multiplied divided raised
    increased decreased reduced subtracted added choose permute over under above below beyond beneath within between
    among exceeding exceeds exceed more less fewer approaching approaches tends tending beats follows precedes misses
    defeats trails surpasses ends starts begins anything everything any every unlike near somewhere resembling like
    similar divisible multiple congruent close closer proportional divides upwards downwards onwards rounding rounded
    different another complement complementary counting upper lower bound bounds bounded nonsense nonsensical
    overestimate underestimate overcount undercount"""
)
PLAIN_ADVERBS = listed(
    """only exactly precisely simply approximately roughly finally consequently respectively clearly obviously namely
    mutually linearly uniquely monthly yearly weekly daily hourly accordingly evidently certainly definitely positively
    strictly identically equally jointly randomly uniformly independently annually quarterly early completely entirely
    fully totally exclusively altogether overall actually indeed really truly immediately directly easily readily
    pairwise correctly"""
)
"""Adverbs that do not change a value."""
_NO_ADVERBS = listed("family july supply reply multiply italy assembly fly monopoly")
_NAMING = listed(
    """non semi anti half double twice over under above below root roots inverse reciprocal opposite negative score
    scores multiple upper lower bound bounds different over added any every between within among remainder close gross
    complement complementary choose squared cubed factorial dozen divisible increased decreased reduced raised rounded
    if may divided multiplied minus plus than congruent every missing unknown"""
)
"""Loaded words that may stand in the name of a value, before the verb: `the square root is`."""
_BEHIND_ONLY = listed(
    """times power most least max tops too short ago ish up also late early debt hundred thousand million billion
    trillion halves thirds quarters fourths fifths sixths sevenths eighths ninths tenths hundredths thousandths"""
)
"""Words that change a value they stand behind: `5 times`, `5 at most`, `5 max`."""
_KEPT_BEHIND = listed(
    """congruent binary ternary octal non semi anti negative positive different double triple root roots multiple added
    like similar any if may could would half score scores upper lower complementary inverse more less fewer over under
    """
)
"""Loaded words that are harmless in a noun behind a value: `5 negative integers`, `5 different ways`."""
_VERBS = listed(
    """is are was were be been being does do did has have had can could may might must shall should will would seems
    appears remains becomes makes leads gives solves satisfies fits matches holds contradicts belongs lies leaves
    requires needs"""
)
_PRAISE = listed(
    """such is are was were the a an our it correct right true answer answers solution solutions value values result
    valid required requested desired wanted sought final unique only possible minimal maximal minimum maximum smallest
    largest greatest least attained achieved achievable attainable optimal obtained prime even odd positive real
    rational irrational integer and number numbers total sum indeed therefore of that we seek want"""
)
_ENDINGS = frozenset({"th", "st", "nd", "rd"})
_PLACED = listed(
    """prime primes square squares cube cubes triangular fibonacci even odd multiple perfect composite power root
    factorial catalan lucas bernoulli harmonic number numbers integer natural"""
)
"""Sequences in which a position stands for another number: `the 5th prime` is 11."""
_COMPARATIVES = listed(
    "more less fewer larger smaller higher lower greater bigger off increase decrease increased decreased"
)
"""Comparatives behind a percentage: `4 percent more`."""
_OF_THINGS = listed(
    """wrong incorrect missing failed failing invalid false fake broken rejected excluded eliminated discarded unknown
    unlikely impossible extraneous damaged mistaken defective unsolved doubtful unacceptable forbidden another"""
)
_CHECKED = ("verified", "checked", "confirmed", "simplified", "attained", "achieved", "reached", "obtained", "combined")
_UNFINISHED = frozenset({"half", "negative", "root", "double", "if", "may", "of", "or", "and", "per"})
_ARTICLES = frozenset({"the", "our", "its", "their", "his", "her", "your"})
_TIMES = re.compile(r"times(?: in (?:total|all)| (?:a|per|each) .*| (?:as|more) .*| the .*|)")
_LAST = re.compile(
    r"^(?:.*\b)?(?:is|are|was|were|be|equals|equal to|equal|yields|gives|becomes|has|have|gets|got|as)(?: |$)(.*)$"
)
_OF = re.compile(r"(\w+) of(?: (?:the|a|an|only|exactly|just|about|approximately|roughly|around))*$")
_OF_NAMES = listed(
    """total sum product value answer result length width height depth area volume radius diameter perimeter
    circumference side probability chance average mean median mode range variance deviation speed rate velocity
    acceleration distance price cost number amount maximum minimum max min degree measure angle slope gradient intercept
    ratio quotient difference size count order rank period frequency amplitude mass weight density temperature force
    energy power age limit norm magnitude profit loss salary score set solution solutions pair pairs time duration
    dimension dimensions coefficient constant exponent index determinant value values answers consisting consists
    comprised made consist capacity concentration ph charge current voltage resistance pressure work momentum interest
    base discount tax tip fraction proportion percentage percent function form equation expression root roots zero zeros
    rank entropy expectation likelihood odds supremum infimum point points coordinates vertex center centre vector
    interval domain codomain matrix term terms case lot"""
) - {"power", "percent", "percentage", "fraction", "proportion", "root", "roots", "pairs", "pair", "order", "function"}
"""Nouns that a value may specify: `a radius of 5`; `half of 5` and `multiples of 5` are other values."""
_OPEN_ENDS = listed(
    """to by from than into onto under over beyond with without for on off out up down after before behind past per
    since through throughout toward towards until till upon versus via against despite beside besides inside outside
    during save say says said assume assuming suppose supposing guess doubt doubts think believe suspect"""
)
_DOUBTED = re.compile(
    r"\b(?:doubt|doubts|suspect|guess|suppose|assume|let's say|lets say|say|candidate|candidates|attempt|conjecture|"
    r"claim|claimed|trial|estimate|naive|tempting|thought|believed|expected|supposed|assumed|hoped|alleged|meant|"
    r"intended|decoy|dummy|placeholder|bait|lie|error|typo|mistake|counterexample|trap|distractor|hope|wish|wonder|"
    r"pretend|imagine|suggests?|old|former|previous|earlier|original|initially)\b"
)
_AS_MANY = re.compile(r"\bas (?:many|few|much|little|high|low|large|small|long|big|great|short) as$|\bused to\b")
MAX_NAME = 200
"""Maximum characters of a name; longer text is not understood."""
_NO_ARTICLES = re.compile(r"(?: (?:the|a|an))+$")
_COUNTING = frozenset({"first", "last", "next", "previous", "these", "those", "initial", "top", "bottom", "all"})
"""Words before a number that is only a count: `the sum of the first 7 integers`."""
_CLOSED_ENDS = re.compile(
    r"(?:^|\b)(?:equals?|equivalent|simplif\w+|reduc\w+|comes?|came|evaluat\w+|amounts?|leads?|sums?|adds? up|add|"
    r"rounds?|corresponds?|works? out|boils? down|back|due|out|down|integrat\w+|expands?|factors?|converg\w+|goes|"
    r"narrows?|closed|interval|ranges?) to$|ranges over$|(?:given|represented|described|expressed|defined|denoted|"
    r"determined|found|obtained) by$"
)


def is_loaded(words: str) -> bool:
    """Whether some word changes or denies an adjacent value in any position."""
    parts = words.replace("equally likely", "").split()
    return not _ANYWHERE.isdisjoint(parts) or "n't" in words or any(map(_is_hedging_adverb, parts))


def _is_hedging_adverb(word: str) -> bool:
    """Whether a word is an adverb that may take something back: `theoretically`, `formerly`, `wrongly`."""
    return word.endswith("ly") and len(word) > 4 and word not in PLAIN_ADVERBS | _NO_ADVERBS


def changes_ahead(words: str) -> bool:
    """Whether words before a value do more than name it: `every multiple of`, but not `the least value is`."""
    if len(words) > MAX_NAME:
        return True
    words = _NO_ARTICLES.sub("", words)
    match = _LAST.match(words)
    name, rest = (words[: match.start(1)], match[1]) if match else ("", words)
    if not (_ANYWHERE - _NAMING).isdisjoint(name.split()) or is_loaded(rest.replace("remainder", "")):
        return True
    if _DOUBTED.search(words) or _AS_MANY.search(words) or _leaves_out(rest):
        return True
    if rest and rest.split()[-1] in _COUNTING:
        return True
    if rest and rest.split()[-1] in _OPEN_ENDS:
        return _CLOSED_ENDS.search(words) is None
    found = _OF.search(rest)
    placed = rest.startswith(("in ", "on ", "at ", "near "))
    return found is not None and (placed or found[1] not in _OF_NAMES)


def _leaves_out(rest: str) -> bool:
    """Whether words end in a participle: `ruling out`, `omitting`."""
    return any(word.endswith("ing") and word not in _NO_PARTICIPLES for word in rest.split()[-2:])


_NO_PARTICIPLES = frozenset(
    {"being", "remaining", "following", "string", "ring", "king", "thing", "spring", "containing"}
)


def counts(ahead: str, behind: str) -> bool:
    """Whether a number is only a count of operands: `the sum of 7 integers`."""
    return _TAKEN_OF.search(ahead) is not None and behind[:1].isalpha() and measure(behind) is None


_TAKEN_OF = re.compile(
    r"\b(?:sum|product|difference|quotient|union|intersection|set|list|squares?|cubes?) of(?: the| any)?$"
)


_ONLY_IN = re.compile(r"\bonly (?:if|when|for|where)\b")


def changes_behind(words: str) -> bool:
    """Whether words behind a value do more than give its unit or kind: `squared`, `is impossible`, `at most`."""
    parts = words.split()
    if not parts:
        return False
    if len(parts) == 2 and parts[0] in _OF_THINGS and parts[1].endswith("s") and not parts[1].endswith("ss"):
        # The word describes the counted things: `5 wrong answers`.
        return False
    if parts[0] in _VERBS:
        # `is the area of the triangle`, but not `is the old answer`.
        name = words.partition(" of ")[0].split()
        return is_loaded(words) or not (_PRAISE | _OF_NAMES | _ARTICLES).issuperset(name)
    if "only" in parts and _ONLY_IN.search(words) is not None:
        return True
    verb = next((place for place, word in enumerate(parts) if place and word in ("is", "was")), 0)
    if verb and "that" not in parts and "which" not in parts and changes_behind(" ".join(parts[verb:])):
        # A statement behind a unit: `cm is nonsense`.
        return True
    if parts[0] in _ENDINGS and not _PLACED.isdisjoint(parts):
        return True
    if parts[0] in ("to", "into", "than", "from", "fold") or parts[-1] in ("out", "off", "away"):
        return True
    if parts[0] in ("percent", "percents") and not _COMPARATIVES.isdisjoint(parts[1:2]):
        return True
    if parts[0] in ("score", "gross", "couple", "scores", "doubled", "tripled"):
        return True
    if parts[0] == "times":
        return _TIMES.fullmatch(words) is None
    parts = [word for place, word in enumerate(parts) if place < 2 or parts[place - 1] != "to"]
    loaded = (_ANYWHERE - _KEPT_BEHIND) | _BEHIND_ONLY
    if (
        parts[0].endswith("ed")
        and parts[1:] == []
        and parts[0] not in ("required", "needed", "red", "speed", "seed", *_CHECKED)
    ):
        return True
    adverbs = any(map(_is_hedging_adverb, " ".join(parts).replace("equally likely", "").split()))
    return adverbs or not loaded.isdisjoint(parts) or parts[-1] in _UNFINISHED


def turns(words: str) -> bool:
    """Whether a condition mentions the opposite case: `if n is even, else`, `unless`, `with remainder`."""
    return not _TURNS.isdisjoint(words.split())


_TURNS = listed("probability else otherwise unless except excluding but remainder alternatively")


_IRREGULAR = listed(
    """people men women children feet mice teeth geese sheep fish deer dice data criteria phenomena vertices indices
    matrices axes radii foci maxima minima formulae bacteria oxen halves lives series species aircraft salmon moose
    staff crew offspring cattle police furniture luggage mail money water milk juice gas paint sugar flour rice dozen
    pair"""
)
_TOTALS = listed(
    """total all altogether overall left remaining each apiece more them such way old tall long wide high deep away
    apart only exactly precisely together combined again th st nd rd am pm degree degrees percent per unit units sq
    square cubic place digit maximum minimum max min answer required needed choose mod modulo times squared cubed score
    later mark respectively verified checked confirmed simplified average attained achieved reached obtained celsius
    fahrenheit north south east west clockwise counterclockwise day hour"""
)
_SELF_VERBS = frozenset({"is", "are", "was", "were", "works", "suffices", "has", "have"})
"""Words about the number itself; other tables list which of them take it back."""
_PLACES = frozenset({"on", "at", "by", "from", "with", "without", "under", "as", "into", "onto", "to"})
_AFTER_PLACE = frozenset({"average", "each", "each side", "each one", "hand", "them", "one side", "each day"})
"""Words of place and manner that may follow a number: `5 on average`."""
_NO_PLURALS = ("ss", "us", "ous", "less", "ness")


def counts_things(words: str, value: Tree) -> bool:
    """Whether words behind a value name the counted things; a fraction takes the singular."""
    if not isinstance(value, Num) or value.value.denominator > 1 or abs(value.value) <= 1:
        return True
    first, _, rest = words.partition(" ")
    if first in _PLACES:
        return rest in _AFTER_PLACE
    return first in _SELF_VERBS or any(map(_is_counted, words.split())) or measure(words) is not None


def _is_counted(word: str) -> bool:
    word = word.rstrip("^0123456789")
    if word in _IRREGULAR or word in _TOTALS:
        return True
    return (len(word) > 2 and word.endswith("s") and not word.endswith(_NO_PLURALS)) or is_unit(word)


_LABELS = listed(
    """answer answer, total sum value result solution exactly only just precisely simply approximately about roughly
    around approx equal equals to of by the a an get got obtain have need find is are be row page day grade number level
    step part question problem chapter room seat year month week case option choice line column side leg base height
    width length depth radius diameter area volume perimeter circumference angle degree order rank index term
    coefficient exponent power maximum minimum max min average mean median mode range speed rate distance time cost
    price age mass weight score count size limit slope ratio probability chance then so hence thus therefore finally
    namely positive plus all there x y z n root prime integer digit units unit ways in at on for after with against
    worth weigh cost pay paid bought sold took take spent ate saved earned made won lost walked ran used gave read wrote
    drew drove has had was were least greatest smallest largest highest lowest shortest longest biggest maximal minimal
    optimal left remaining exact final correct true required desired actual possible only expected first last next
    second other circle quotient remainder dividend divisor product difference numerator denominator root vertex point
    period frequency amplitude element set interval domain determinant dimension rank norm magnitude current voltage
    resistance force energy work charge temperature pressure density momentum capacity multiplicity equals costs weighs
    takes needs gets leaves gives yields makes totals pays earns spends points steps ways answers values gains absolute
    per ans that conclude"""
)
"""Words that may directly precede a value: its name, or a lead-in."""
_MODALS = frozenset({"can", "will", "must", "should", "to", "shall", "we", "you", "they", "he", "she", "i", "there"})
"""Words before a verb that leads to a value: `we counted`."""


def names_value(words: str, value: Tree) -> bool:
    """Whether words before a number name it, or lead to it: `the radius`, `he bought`, `you can form`."""
    if not isinstance(value, Num):
        return True
    *_, before, last = ("", *words.split())
    if before in _MODALS or last in PLAIN_ADVERBS:
        return True
    if before == "" and last.endswith("s") and last not in _LABELS:
        # `contains 5` says less than `the box contains 5`.
        return measure(last) is not None
    return last in _LABELS or (len(last) > 3 and last.endswith("s")) or len(last) == 1 or last.isdigit()
