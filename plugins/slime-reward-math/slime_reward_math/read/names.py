"""Meaning of commands and words: functions, constants, relations, connectives, numbers in words.

Example:

    counted("three quarters".split())      # Num(Fraction(3, 4))
"""

import re
from fractions import Fraction

from slime_reward_math.tree import Num, listed, number

FUNCTIONS = listed(
    """cis sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sech csch arcsinh
    arccosh arctanh ln exp max min gcd lcm det dim deg arg sgn sign Re Im tr rank sup inf_ asin acos atan floor ceil abs
    sqrt cbrt log lg lb gcf hcf cosec ctg tg arctg arcctg erf erfc zeta"""
)
"""Names that take an argument; in plain text too."""
ALIASES = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "cosec": "csc", "ctg": "cot", "tg": "tan",
    "arctg": "arctan", "arcctg": "arccot", "gcf": "gcd", "hcf": "gcd", "sign": "sgn", "sinh": "sinh",
}  # fmt: skip
"""Other names of the same function."""
INVERSES = {
    name: f"arc{name}"
    for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "sech", "csch")
}
r"""What `\sin^{-1}` is."""
CONSTANTS = {
    "pi": "pi", "infty": "inf", "infinity": "inf", "inf": "inf", "oo": "inf", "imath": "i", "varpi": "pi",
    "undefined": "undefined", "DNE": "undefined", "R": "RR", "N": "NN", "Z": "ZZ", "Q": "QQ",
}  # fmt: skip
"""Commands (and some words) that name a constant."""
BLACKBOARD = {"R": "RR", "Z": "ZZ", "N": "NN", "Q": "QQ", "C": "CC", "P": "PP", "F": "FF"}
r"""What `\mathbb{R}` is."""
GREEK = listed(
    """alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi omicron rho varrho
    sigma varsigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell
    hbar nabla partial aleph odot oplus star square triangle angle wp diamond clubsuit heartsuit spadesuit diamondsuit
    Box bullet top bot dagger prime mho circled"""
)
"""Commands that name a variable."""
RELATIONS = {
    "=": "=", "==": "=", "\\equiv": "equiv", "<": "<", "\\lt": "<", ">": ">", "\\gt": ">", "<=": "<=", "\\le": "<=",
    "\\leq": "<=", "\\leqslant": "<=", "\\leqq": "<=", ">=": ">=", "\\ge": ">=", "\\geq": ">=", "\\geqslant": ">=",
    "\\geqq": ">=", "\\ne": "!=", "\\neq": "!=", "!=": "!=", "<>": "!=", "\\approx": "~", "\\approxeq": "~",
    "\\simeq": "~", "\\doteq": "~", "\\sim": "similar", "\\cong": "cong", "\\in": "in", "\\ni": "ni",
    "\\notin": "notin", "\\subset": "subset", "\\subseteq": "subset=", "\\supset": "supset", "\\supseteq": "supset=",
    "\\to": "to", "\\rightarrow": "to", "\\longrightarrow": "to", "->": "to", "\\mapsto": "to",
    "\\Rightarrow": "implies", "\\implies": "implies", "=>": "implies", "\\iff": "iff", "\\Leftrightarrow": "iff",
    "\\parallel": "parallel", "\\perp": "perp", "\\propto": "propto", "\\ll": "<<", "\\gg": ">>", "\\nmid": "nmid",
}  # fmt: skip
"""Relation signs."""
SAID_RELATIONS = {
    **dict.fromkeys(("is", "equals", "is equal to", "equal to"), "="),
    **dict.fromkeys(("is at most", "is no more than", "is less than or equal to", "does not exceed"), "<="),
    **dict.fromkeys(("is at least", "is no less than", "is greater than or equal to"), ">="),
    **dict.fromkeys(("is less than", "is smaller than", "is below"), "<"),
    **dict.fromkeys(("is greater than", "is more than", "is larger than", "exceeds", "is above"), ">"),
    **dict.fromkeys(("is not equal to", "does not equal"), "!="),
}
"""Relations in words, between two values."""
FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!=", "~": "~"}
"""The relation seen from the other side."""
SILENT = listed(
    r"""\left \right \big \Big \bigg \Bigg \bigl \bigr \Bigl \Bigr \biggl \biggr \Biggl \Biggr \middle \displaystyle
    \textstyle \scriptstyle \scriptscriptstyle \limits \nolimits \bm \boldsymbol \mathop \mathit \mathbf \mathsf \mathtt
    \mathcal \mathscr \mathfrak \bf \it \rm \cal \boxed \fbox \ensuremath \mathstrut \strut \hfill \centering \large
    \Large \small \normalsize \phantom \displaylimits \null \relax \nonumber \notag \mathord \mathbin \mathrel
    \overbrace \underbrace \color \bigm \colon_ \mathnormal \em \emph_ \sf \tt \hphantom \vphantom \noindent \smash
    \protect \checkmark"""
)
"""Commands that only change the looks; a braced argument after them reads as a group."""
SPACES = frozenset(
    {"\\,", "\\;", "\\:", "\\ ", "\\!", "\\>", "\\quad", "\\qquad", "\\enspace", "\\thinspace", "\\space", "~"}
    | {"\\negthinspace", "\\negmedspace", "\\medspace", "\\thickspace", "\\negthickspace", "\\hspace"}
)
"""Commands that leave a gap."""
TEXT = frozenset(
    {"\\text", "\\textbf", "\\textit", "\\textrm", "\\mbox", "\\hbox", "\\textsf", "\\texttt", "\\textnormal", "\\emph"}
    | {"\\textup", "\\textsc", "\\textmd", "\\underline"}
)
"""Commands whose argument is language."""
UPRIGHT = frozenset({"\\mathrm", "\\operatorname", "\\operatorname*", "\\rm", "\\mathop", "\\mathsf", "\\mathtt"})
"""Commands whose argument is a name, a unit or language."""
ACCENTS = listed(
    r"""\vec \hat \bar \tilde \dot \ddot \overline \overrightarrow \widehat \widetilde \overleftarrow \check \breve
    \overset \underset \stackrel \overarc \wideparen \overparen \mathring"""
)
"""Commands that decorate a symbol."""
JOINS = frozenset(
    {"and", "or", "&", ", and", ", or", ",", ";", "and/or", "also", "as well as", "et", "und", "y", "和", "或"}
)
"""Words that separate answers."""
ORDINALS = frozenset({"th", "st", "nd", "rd"})
"""Endings of ordinal numbers."""
CONDITIONS = frozenset(
    {"if", "for", "when", "where", "with", "such that", "for all", "for any", "for some", "otherwise"}
    | {"since", "because", "provided", "assuming", "given that"}
)
"""Words that open a condition."""
ENVIRONMENTS = listed(
    """matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix smallmatrix array cases dcases aligned align align* split gathered
    alignedat eqnarray rcases"""
)
r"""What `\begin` may open."""


_SMALL_WORDS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen"""
_TENS_WORDS = "twenty thirty forty fifty sixty seventy eighty ninety"
_PLACE_WORDS = """zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth"""
_SMALL, _TENS, _PLACES = _SMALL_WORDS.split(), _TENS_WORDS.split(), _PLACE_WORDS.split()
_CARDINAL = {
    **{word: value for value, word in enumerate(_SMALL)},
    **{word: 10 * place for place, word in enumerate(_TENS, 2)},
    **{f"{tens} {unit}": 10 * place + at for place, tens in enumerate(_TENS, 2) for at, unit in enumerate(_SMALL[:10])},
}
_CARDINAL |= {"fourty": 40, "nil": 0}
WORDS = {**_CARDINAL, **{word: value for value, word in enumerate(_PLACES) if word != "second"}}
"""Numbers below a hundred and the first ordinals, in words; `second` is a unit too, and stays a word."""
SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
"""What a word behind a number multiplies it by."""
_FRACTIONS = {
    "half": 2, "quarter": 4, "hundredth": 100, "thousandth": 1000, "twentieth": 20,
    **{word: value for value, word in enumerate(_PLACES) if value > 2},
    **{tens[:-1] + "ieth": 10 * place for place, tens in enumerate(_TENS, 2)},
}  # fmt: skip
PARTS = {**{f"{word}s": value for word, value in _FRACTIONS.items() if word != "half"}, "halves": 2}
"""What a word behind a number divides it by: `two thirds`."""
VOCABULARY = frozenset(" ".join((*_CARDINAL, *SCALES, *_FRACTIONS, *PARTS)).split())
_NUMERAL = "|".join(sorted(VOCABULARY, key=len, reverse=True))
_PART = "|".join(sorted((*_FRACTIONS, *PARTS), key=len, reverse=True))
_INNER_AND = re.compile(rf"\b(hundred|thousand|million|billion) and (?=(?:{_NUMERAL})\b)", re.IGNORECASE)
_MIXED_AND = re.compile(rf"\b({_NUMERAL}|\d+) and (?=(?:an? |(?:{_NUMERAL}) ?-?)?(?:{_PART})\b)", re.IGNORECASE)
_BEHIND_NUMBER = re.compile(
    rf"and (?:an? |one[ -])({_PART})\b|and (two|three|four|five|seven)[ -]({_PART})\b", re.IGNORECASE
)


def joined(words: str) -> str:
    """Words with the `and` within a number taken out of sight: `one hundred and five`, `two and a half`."""
    if " and " not in words:
        return words
    return _MIXED_AND.sub(r"\1 & ", _INNER_AND.sub(r"\1 ", words))


def part_behind(words: str) -> tuple[Fraction, str] | None:
    """The fraction of `2 and a half`, and the words behind it; None for anything else."""
    match = _BEHIND_NUMBER.match(words)
    if match is None:
        return None
    below = (_FRACTIONS | PARTS)[(match[1] or match[3]).lower()]
    return Fraction(_CARDINAL[match[2].lower()] if match[2] else 1, below), words[match.end() :]


def counted(parts: list[str]) -> Num | None:
    """The number that all words form; `a third` is one, but `third` is a position. None for anything else."""
    whole = _cardinal(parts)
    if whole is not None:
        return number(whole)
    for sign, read in (("&", _mixed), ("point", _decimal)):
        if sign in parts:
            return read(parts[: parts.index(sign)], parts[parts.index(sign) + 1 :])
    if parts[-1:] == ["half"] and parts[:-1] in ([], ["a"], ["one"]):
        return Num(Fraction(1, 2))
    if len(parts) == 2 and parts[0] in ("a", "an", "one") and parts[1] in _FRACTIONS:
        return Num(Fraction(1, _FRACTIONS[parts[1]]))
    if parts[-1:] == ["halves"] or not parts or parts[-1] not in PARTS:
        above = _cardinal(parts[:-1]) if parts[-1:] == ["halves"] else None
        return None if above is None else Num(Fraction(above, 2))
    return _parts(parts)


def _parts(parts: list[str]) -> Num | None:
    """`two thirds`, `eleven thirty sixths`: tens belong to the last word where a number is left before them."""
    below = PARTS[parts[-1]]
    if len(parts) > 2 and parts[-2] in _TENS and below < 10 and (above := _cardinal(parts[:-2])) is not None:
        return Num(Fraction(above, _CARDINAL[parts[-2]] + below))
    above = _cardinal(parts[:-1])
    return None if above is None else Num(Fraction(above, below))


def _mixed(whole: list[str], part: list[str]) -> Num | None:
    """`two and a half`."""
    above, rest = _cardinal(whole), counted(part) if "&" not in part else None
    return None if above is None or rest is None or not 0 < rest.value < 1 else Num(above + rest.value)


def _decimal(whole: list[str], digits: list[str]) -> Num | None:
    """`two point five`."""
    above = _cardinal(whole) if whole else 0
    if above is None or not digits or not set(digits) <= set(_SMALL[:10]):
        return None
    text = f"{above}." + "".join(str(_SMALL.index(each)) for each in digits)
    return Num(Fraction(text), len(digits), len(text.replace(".", "").lstrip("0")))


def _cardinal(parts: list[str]) -> int | None:
    text = " ".join(parts)
    if text in _CARDINAL:
        return _CARDINAL[text]
    for word in reversed(SCALES):
        if word in parts:
            place = parts.index(word)
            above = 1 if parts[:place] == ["a"] else _cardinal(parts[:place])
            below = _cardinal(parts[place + 1 :]) if parts[place + 1 :] else 0
            if above is None or below is None or below >= SCALES[word]:
                return None
            return above * SCALES[word] + below
    return None
