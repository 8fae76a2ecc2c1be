r"""Cleans an answer's text: Unicode to LaTeX, digit groups joined, dollar signs and outer delimiters dropped.

Example:

    clean("$1{,}234 × 10²$")      # "1234 \times 10^{2}"

Everything here is linear in the text's length.
"""

import re
import unicodedata

_WORDS = {
    "−": "-", "–": "-", "—": "-", "﹣": "-", "‐": "-", "‑": "-", "×": r"\times ", "⋅": r"\cdot ", "·": r"\cdot ",
    "∙": r"\cdot ", "∗": "*", "÷": r"\div ", "⁄": "/", "∕": "/", "≤": r"\le ", "⩽": r"\le ", "≦": r"\le ",
    "≥": r"\ge ", "⩾": r"\ge ", "≧": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "≅": r"\cong ", "≡": r"\equiv ",
    "±": r"\pm ", "∓": r"\mp ", "∞": r"\infty ", "π": r"\pi ", "√": r"\sqrt ", "∛": r"\cbrt ", "°": r"^\circ ",
    "º": r"^\circ ", "∪": r"\cup ", "∩": r"\cap ", "∖": r"\setminus ", "∈": r"\in ", "∉": r"\notin ",
    "∅": r"\emptyset ", "∀": r"\forall ", "∃": r"\exists ", "→": r"\to ", "⇒": r"\Rightarrow ", "∣": r"\mid ",
    "′": "'", "’": "'", "″": "''", "“": '"', "”": '"', "‘": "'", "⌊": r"\lfloor ", "⌋": r"\rfloor ",
    "⌈": r"\lceil ", "⌉": r"\rceil ", "⟨": r"\langle ", "⟩": r"\rangle ", "∑": r"\sum ", "∏": r"\prod ",
    "∫": r"\int ", "∠": r"\angle ", "⊥": r"\perp ", "∥": r"\parallel ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}",
    "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}", "…": r"\ldots ", "⋯": r"\cdots ", "½": r"\frac{1}{2}",
    "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "⅛": r"\frac{1}{8}",
    "，": ",", "、": ",", "；": ";", "。": "", "（": "(", "）": ")", "【": "[", "】": "]", "：": ":", "＝": "=",
    "\u200b": "", "\u2060": "", "\ufeff": "", "\u00ad": "", "\u200d": "", "\u00a0": " ", "\u2009": " ",
    "\u202f": " ", "\u3000": " ", "\u2003": " ", "\u2002": " ", "％": r"\%",
    "✓": "", "✔": "", "¢": r"\text{ cents}", "℃": r"^\circ C", "℉": r"^\circ F", "µ": r"\mu ",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "ε": r"\varepsilon ", "ζ": r"\zeta ",
    "η": r"\eta ", "θ": r"\theta ", "κ": r"\kappa ", "λ": r"\lambda ", "μ": r"\mu ", "ν": r"\nu ", "ξ": r"\xi ",
    "ρ": r"\rho ", "σ": r"\sigma ", "τ": r"\tau ", "φ": r"\varphi ", "ϕ": r"\phi ", "χ": r"\chi ", "ψ": r"\psi ",
    "ω": r"\omega ", "Γ": r"\Gamma ", "Δ": r"\Delta ", "Θ": r"\Theta ", "Λ": r"\Lambda ", "Σ": r"\Sigma ",
    "Φ": r"\Phi ", "Ψ": r"\Psi ", "Ω": r"\Omega ", "ℓ": r"\ell ", "∂": r"\partial ", "²": "^{2}", "³": "^{3}",
    "¹": "^{1}", "⁰": "^{0}", "⁴": "^{4}", "⁵": "^{5}", "⁶": "^{6}", "⁷": "^{7}", "⁸": "^{8}", "⁹": "^{9}",
    "ⁿ": "^{n}", "₀": "_{0}", "₁": "_{1}", "₂": "_{2}", "₃": "_{3}", "₄": "_{4}", "₅": "_{5}", "₆": "_{6}",
    "₇": "_{7}", "₈": "_{8}", "₉": "_{9}", "ₙ": "_{n}", "⁻": "^-", "⁺": "^+",
}  # fmt: skip
_WORDS |= {chr(ord("①") + place): rf"\circled_{{{place + 1}}} " for place in range(9)}
_TABLE = {ord(sign): word for sign, word in _WORDS.items()}
_SUPERSCRIPT_RUN = re.compile(r"\^-\^\{(\d)\}|\}\^\{")
_TAG = re.compile(r"<(su[pb])>([^<>]{0,40})</\1>")
_GROUP = re.compile(
    r"(?<=\d)(?:,\\!|\{,\}|\{, \}|\\,|\\!|\\;|\\:|\\ |~|,\\,|,\\ |\{\\,\}| (?=\d{3}(?!\d)))(?=\d{3}(?!\d))"
)
_LOOSE_GROUP = re.compile(r"(?<=\d),\\! *(?=\d)")
_DECIMAL_COMMA = re.compile(r"(?<=\d)\{,\}(?=\d)")
_ESCAPED = re.compile(r"\\\\(?=[A-Za-z]{2})")
_DELIMITER = re.compile(r"(?<!\\)\\[\[\]()]")
_HALF_DAY = re.compile(r"\b([ap])\.\s?m\b\.?")
_TEXT_PART = re.compile(r"\\text\{\s*(\((?:[1-9]|i{1,3}|iv|v|[a-f])\))\s*\}")
_PART = re.compile(r"(\([1-9]\)|\((?:i{1,3}|iv|v)\)|\([a-f]\))(?![\^_(\[{])")
_UNION = re.compile(r"([)\]}])\s*U\s*(?=([(\[{\\]))")
_MODULUS = re.compile(
    r"(?:\\text\{\s*)?\(\s*(?:\\text\{\s*|\\(?:mathrm|operatorname)\{|\\[bp]?)?mod\s*\}?\s*([^()]{1,40})\)"
)
_MONEY = {"€": "euros", "£": "pounds", "¥": "yen", "₹": "rupees"}
_CURRENCY = re.compile(r"(?:\\(?:text|mathrm)\{\s*)?([€£¥₹])\s?\}?\s?(-?\d[\d,]*(?:\.\d+)?)?")
_ARROW = re.compile(
    r"(?:\\(?:therefore|Rightarrow|implies|rightarrow|to|Longrightarrow|longrightarrow|because)(?![A-Za-z])|"
    r"=>)\s*(?=\S)"
)
_CANCELLED = re.compile(r"\\(?:[bx]?cancel|sout|st|cancelto\{[^{}]*\})\{[^{}]*\}")
_THAT_IS = re.compile(r"\bi\.e\.,? ?")
_SET_AGAINST = re.compile(
    r"^(.*[\w}]),\s*(?:and |but )?not (?:a |an |the )?[A-Za-z0-9.]{1,20}(\}?)\.?$"
    r"|^(.*[\w}])\\text\{,? ?(?:and |but )?not (?:a |an |the )?\}\s*[\w.]+$"
)
"""The rejected value behind an answer: `5, not 6`."""
_LOOSE_POINT = re.compile(r"(?<=\d) \. (?=\d)")
_UNIT_FRACTION = re.compile(
    r"\\[dt]?frac\{\\(?:text|mathrm)\{ *([A-Za-z]+) *\}\}\{\\(?:text|mathrm)\{ *([A-Za-z]+(?:\^\d)?) *\}(?!\^)\}"
)
_COMPOSED = re.compile(r"\(\s*([A-Za-z])\s*\\circ\s*([A-Za-z])\s*\)\s*\(([^()]{1,40})\)")
_CIRCLED = re.compile(r"\\textcircled\s*\{?\s*(\d)\s*\}?")
_DOT = re.compile(r"\\dot\s*(\d)")
_DOTTED = re.compile(r"\.(\d*)\\dot\{(\d)\}(\d+)\\dot\{(\d)\}")
_OUT_OF = re.compile(r"(\d+)\s*(?:\\text\{)?\s*(?:out of|in)\s*\}?\s*(\d+)", re.ASCII)
_REMAINDER = re.compile(
    r"(\d+)(?:\s|\\[,; ])*(?:\\(?:text|mathrm)\{)?\s*(?:R|r|(?:with )?(?:a )?remainder(?: of)?|rem)\.?:?\s*\}?"
    r"(?:\s|\\[,; ])*(\d+)",
    re.ASCII,
)
_OPENER = re.compile(
    r"^((?:\\(?:text|mathrm)\{)?)\s*(?:hence|thus|therefore|so|then|finally|consequently|in conclusion|overall|"
    r"altogether|in total|as a result),\s*(?=\S)",
    re.IGNORECASE,
)
_FORM_FEED = re.compile("\x0c(?=rac|orall|lo)")

_ABOUT = re.compile(
    r"(?<=[\w}\])%])(?:\s|\\[,; ]|,)*\(?\s*(?:\\(?:text|mathrm)\{)?[\s(,]*"
    r"(?:approximately|approx|roughly|circa)\b[.)\s]*\}?\s*\)?$"
    r"|(?<=\\text\{)\s*(?:ca|circa)\b\.?(?=\s*\}?\s*-?[\d\\])"
)
"""Words that mark a value as rounded: `5 (approximately)`. The value is graded as written."""


def clean(text: str) -> str:
    """The text in plain LaTeX, without invisible formatting."""
    if not text.isascii():
        text = _ascii(_CURRENCY.sub(_paid, text))
    text = text.strip()
    if text[:1] in "\\=" and (arrow := _ARROW.match(text)) is not None:
        text = text[arrow.end() :]
    if "\\" in text or "{" in text or "\x0c" in text:
        text = _latex(text)
    if " " in text:
        text = _GROUP.sub("", text)
    if ".m" in text or ". m" in text:
        text = _HALF_DAY.sub(r"\1m", text)
    if "approx" in text or "roughly" in text or "ca" in text[:12]:
        text = _ABOUT.sub("", text)
    if "i.e." in text:
        text = _THAT_IS.sub("", text)
    if "not " in text:
        text = _SET_AGAINST.sub(lambda match: (match[1] or match[3]) + (match[2] or ""), text)
    if " . " in text:
        text = _LOOSE_POINT.sub(".", text)
    if "mod" in text:
        text = _MODULUS.sub(r"\\pmod{\1}", text)
    if "<" in text and "</su" in text:
        text = _TAG.sub(lambda tag: ("^{" if tag[1] == "sup" else "_{") + tag[2] + "}", text)
    text = _outer(text)
    if "U" in text:
        text = _UNION.sub(r"\1\\cup ", text)
    if text[:1].isdigit():
        text = _counted(text)
    elif ", " in text:
        text = _OPENER.sub(r"\1", text)
    return _parts(text) if text[:2] in ("(1", "(i", "(a") or text[:8] == "\\text{(i" else text


def _paid(sign: re.Match[str]) -> str:
    r"""`€5` as `5\text{ euros}`."""
    return f"{sign[2] or ''}\\text{{ {_MONEY[sign[1]]}}}"


def _counted(text: str) -> str:
    """`2 out of 5` as `2/5`, `11 R 3` as the pair `(11; 3)`."""
    if (" in " in text or "out of" in text) and (found := _OUT_OF.fullmatch(text)):
        return f"{found[1]}/{found[2]}"
    if ("R" in text or "r" in text) and (found := _REMAINDER.fullmatch(text)):
        return f"({found[1]}; {found[2]})"
    return text


def _parts(text: str) -> str:
    """`(1) 5; (2) 7` as `(5; 7)`: the numbers of the parts of a question are not part of the answer."""
    found = _PART.split(_TEXT_PART.sub(r"\1", text))
    numbers = [each.strip("() ") for each in found[1::2]]
    contents = [each.strip(" ;,.") for each in found[2::2]]
    counted = [
        numbers == list(names[: len(numbers)]) for names in ("123456789", ("i", "ii", "iii", "iv", "v"), "abcdef")
    ]
    if len(numbers) < 2 or found[0].strip() or not any(counted) or not all(contents):
        return text
    if any(each in ("and", "or", "&") or each.startswith("\\text{and") for each in contents):
        return text
    # The parts of a question have an order: a tuple.
    return f"({'; '.join(contents)})"


def _ascii(text: str) -> str:
    text = "".join(_digit(sign) for sign in text).translate(_TABLE)
    # x²³ is x to the 23rd, and 10⁻³ has one exponent: neighbouring superscripts are joined.
    return _SUPERSCRIPT_RUN.sub(lambda run: "" if run[1] is None else f"^{{-{run[1]}}}", text)


def _digit(sign: str) -> str:
    if "\uff01" <= sign <= "\uff5e":
        return chr(ord(sign) - 0xFEE0)
    if sign > "\u00ff" and sign.isdecimal():
        return str(unicodedata.decimal(sign))
    return sign


def _latex(text: str) -> str:
    if "\\\\" in text and ("\\begin" not in text or "\\\\begin" in text):
        # A text that was escaped twice: `\\frac` for `\frac`, four backslashes for a row's end.
        text = _ESCAPED.sub(r"\\", text) if "\\\\\\\\" not in text else text.replace("\\\\", "\\")
    if "cancel" in text or "\\sout" in text or "\\st{" in text:
        text = _CANCELLED.sub(" ", text)
    if "\\rac{" in text:
        # The rest of \frac after its \f was parsed as a form feed.
        text = text.replace("\\rac{", "\\frac{")
    if "\x0c" in text:
        text = _FORM_FEED.sub(r"\\f", text)
    if "\\right." in text:
        text = text.replace("\\left\\{", " ").replace("\\left.", " ").replace("\\right.", " ")
    if "{:}" in text:
        text = text.replace("{:}", ":")
    if "\\dot" in text:
        text = _DOTTED.sub(r".\1\\overline{\2\3\4}", _DOT.sub(r"\\dot{\1}", text))
    if "\\textcircled" in text:
        text = _CIRCLED.sub(r"\\circled_{\1} ", text)
    if "\\circ" in text:
        text = _COMPOSED.sub(r"\1(\2(\3))", text)
    if "frac{\\text{" in text or "frac{\\mathrm{" in text:
        text = _UNIT_FRACTION.sub(r"\\text{\1/\2}", text)
    if ",\\!" in text:
        text = _LOOSE_GROUP.sub("", text)
    text = _GROUP.sub("", text)
    return _DECIMAL_COMMA.sub(".", text) if "{,}" in text else text


def _outer(text: str) -> str:
    r"""Without `$`, `\[ \]`, `\( \)` and sentence punctuation at the ends."""
    if "$" in text:
        text = text.replace("\\$", " ").replace("$", " ")
    if "\\" in text:
        text = _DELIMITER.sub(" ", text)
    text = text.strip()
    if text[:1] == text[-1:] == '"':
        text = text.strip('"').strip()
    if text[-1:] == "\\":
        # The rest of a spacing command or row end at the end of the answer.
        text = text.rstrip("\\").rstrip()
    while text and text[-1] in ".,;:" and not text.endswith(("\\,", "\\;", "\\:", "..")):
        text = text[:-1].rstrip()
    return text.strip("`*").strip() if text[:1] in "`*" else text
