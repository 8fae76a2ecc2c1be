r"""slime's own verdicts, for runs that must repeat them: string forms, `Answer:` near the end.

Example:

    math(r"\boxed{\frac{2}{4}}", "1/2")      # False

Where slime uses a computer algebra system, this module uses this package's bounded comparison.
"""

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from slime_core.sample import Json
from slime_reward_math.extract import MAX_ANSWER
from slime_reward_math.grader import compare

Strict = Callable[[str, Json], bool]
"""Whether slime pays a response for a label."""
DAPO_TAIL = 300
"""Characters at the end that slime's `dapo` reads."""
_FRACTION = re.compile(r"-?\(?\d+\)?/\(?0*[1-9]\d*\)?|-?\\frac\{\d+\}\{\d+\}")
_SHORT = re.compile(r"\\frac(\d)(\d)")
_HALF_SHORT = re.compile(r"\\frac(\d)\{")
_SLASH = re.compile(r"(-?\d+)/(-?\d+)")
_ROOT = re.compile(r"\\sqrt([^{\[])")
_NAMED = re.compile(r"[^=]{0,2}=([^=]*)")
_TEXT = re.compile(r"\\text\{(.+?)\}")
_ANSWER = re.compile(r"(?i)answer[ \t]{0,50}:[ \t]{0,50}([^\n]{1,300})")
_DROPPED = tuple(
    each
    for line in (
        r"square ways integers dollars mph inches hours km units \ldots points feet minutes digits cents degrees cm gm",
        r"pounds meters meals edges students multiples \text{s} \text{.} \text{} \mathrm{th} ^\circ ^{\circ} \; ,\!",
        r'{,} " \dots <|im_end|> <|endoftext|>',
    )
    for each in line.split()
)


def math(response: str, label: Json) -> bool:
    """Slime's `math`: a falsy label is never right."""
    return bool(label) and _boxed_equals(response, str(label))


def deepscaler(response: str, label: Json) -> bool:
    """Slime's `deepscaler`: nothing without a marker, and the part behind the first `###Response`."""
    if "</think>" in response:
        solution = response.rsplit("</think>", 1)[1]
    elif "###Response" in response:
        solution = response.split("###Response", 2)[1]
    else:
        return False
    return label not in ("", None) and _boxed_equals(solution, str(label))


def dapo(response: str, label: Json) -> bool:
    """Slime's `dapo`: the last `Answer:` in the last 300 characters, as text; the gold cut down to an integer."""
    found = _ANSWER.findall(response[-DAPO_TAIL:])
    return bool(found) and dapo_form(found[-1]) == _whole(dapo_form(str(label)))


def boxed_dapo(response: str, label: Json) -> bool:
    """Slime's `boxed_dapo`: right only for an `Answer:` within the box."""
    return dapo(last_boxed(response) or "", label)


def never(response: str, label: Json) -> bool:
    """Slime's `boxed_math` and `boxed_deepscaler`, which look for a box within the box."""
    return False


def last_boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{...}`, of the last `\fbox{...}` without one; None if it does not close."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for place in range(start + 6, min(len(text), start + MAX_ANSWER)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[start + 7 : place]
    return None


def mathd_form(answer: str) -> str:
    """Slime's string form of an answer."""
    text = answer.strip()
    whole = _TEXT.fullmatch(text)
    text = whole[1].strip() if whole else text
    for before, after in (("\n", ""), ("\\!", ""), ("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac")):
        text = text.replace(before, after)
    for dropped in ("\\left", "\\right", "^{\\circ}", "^\\circ", "\\$"):
        text = text.replace(dropped, "")
    text = text.split("\\text{ ")[0]
    text = text.replace("\\%", "").replace(" .", " 0.").replace("{.", "{0.")
    text = f"0{text}" if text[:1] == "." else text
    named = _NAMED.fullmatch(text)
    text = named[1] if named else text
    text = _ROOT.sub(r"\\sqrt{\1}", text).replace(" ", "")
    text = _HALF_SHORT.sub(r"\\frac{\1}{", _SHORT.sub(r"\\frac{\1}{\2}", text))
    text = "\\frac{1}{2}" if text == "0.5" else text
    slash = _SLASH.fullmatch(text)
    return f"\\frac{{{slash[1]}}}{{{slash[2]}}}" if slash else text


def dapo_form(answer: str) -> str:
    """Slime's string form of a final answer in `dapo`."""
    text = answer.rsplit("=", 1)[-1]
    for before, after in (("an ", ""), ("a ", ""), (".$", "$"), ("\\$", ""), ("\\ ", ""), (" ", ""), ("mbox", "text")):
        text = text.replace(before, after)
    text = text.replace(",\\text{and}", ",").replace("\\text{and}", ",").replace("\\text{m}", "\\text{}")
    for dropped in _DROPPED:
        text = text.replace(dropped, "")
    parts = text.split("$")
    text = parts[1] if len(parts) > 2 else text
    text = re.sub(r"\\(?:text|textbf|overline|boxed)\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"frac([^{])(.)", r"frac{\1}{\2}", text)
    text = re.sub(r"sqrt([^{])", r"sqrt{\1}", text).replace("$", "")
    return text.replace(",", "").strip() if text.replace(",", "").isdigit() else text.strip()


def _boxed_equals(solution: str, label: str) -> bool:
    gold = last_boxed(label) if "\\boxed" in label else label
    given = last_boxed(solution)
    if gold is None or given is None or len(gold) > MAX_ANSWER:
        return False
    return mathd_form(given) == mathd_form(gold) or _algebra(given, gold)


def _algebra(given: str, gold: str) -> bool:
    """Equality as slime's symbolic part sees it: fractions as written, integers exactly, else by value."""
    one, two = (mathd_form(each).replace("\\", "").replace("$", "").lower() for each in (given, gold))
    if one == two:
        return True
    fractions = [_FRACTION.fullmatch(mathd_form(each)) is not None for each in (given, gold)]
    if all(fractions):
        return False
    if _is_integer(given) != _is_integer(gold) or not given.strip():
        return False
    return compare(gold, given).correct


def _is_integer(text: str) -> bool:
    try:
        value = Decimal(text.replace(",", "").strip()[:400])
    except InvalidOperation:
        return False
    return value.is_finite() and abs(value.adjusted()) < 400 and value == value.to_integral_value()


def _whole(gold: str) -> str | None:
    """A gold cut down to its integer part; None for one that is not a number, on which slime fails."""
    try:
        value = Decimal(gold[:400])
        return str(int(value)) if value.is_finite() and abs(value.adjusted()) < 400 else None
    except InvalidOperation:
        return None
