r"""Gold: the answer that a row's label gives: its box, what follows `####`, where its prose ends, or the label itself.

Example:

    gold_text("Hence $x = 2$ and the sum is $7$.")      # "7"
    gold_text("48 + 24 = 72 clips.\n#### 72")           # "72", as in GSM8K
"""

import math
import re
from decimal import Decimal

from slime_reward_math.extract import BOX, extract, last_marked

_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z]{2,}")
MAX_GOLD = 20_000
"""Characters; a longer label is not an answer."""
MIN_WORDS = 4
"""Words outside formulas that make a label prose."""
MAX_WORDS = 15
"""Words of a label that is still an answer; of 2,190 gold answers of public data sets the longest has 8."""
NO_ANSWERS = frozenset({"proof", "notfound", "not found", "n/a", "null", "unknown", "nan"})
"""What data sets (NuminaMath, OpenR1-Math) and their exports write where there is no answer, in small letters."""
_AFTER_MARK = re.compile(r"(?:^|\n)[ \t]*####[ \t]*([^\n]+)\Z")


def gold_text(label: object) -> str:
    """The gold answer of a label as text; empty if it has none, as a question or a solution without its answer."""
    if isinstance(label, str):
        return _of_text(label) if len(label) <= MAX_GOLD else ""
    # Numbers are written out in full: str(1e-07) is in scientific notation, and str() refuses huge integers.
    if isinstance(label, int) and not isinstance(label, bool):
        return format(Decimal(label), "f")
    if isinstance(label, float) and math.isfinite(label):
        return format(Decimal(str(label)), "f")
    return ""


def _of_text(label: str) -> str:
    if label.isdecimal():
        return label
    if BOX in label:
        return extract(label).text or ""
    text = label.strip()
    if text.casefold() in NO_ANSWERS or text == "None" or text.endswith(("?", "\uff1f")):
        return ""
    if "####" in text and (marked := _AFTER_MARK.search(text)) is not None:
        return marked[1].strip()
    if "$" in text or "\\[" in text or "\\(" in text:
        if text.count("$") == 2 and text[0] == text[-1] == "$":
            return text[1:-1].strip() or text
        formulas = list(_FORMULA.finditer(text))
        if formulas and len(_WORD.findall(_FORMULA.sub(" ", text))) >= MIN_WORDS:
            return next(group for group in reversed(formulas[-1].groups()) if group is not None).strip()
    if "nswer" in text and "\\text" not in text:
        text = extract(text, phrases=True).text or last_marked(text).text or text
    return text if len(_WORD.findall(text)) <= MAX_WORDS else ""
