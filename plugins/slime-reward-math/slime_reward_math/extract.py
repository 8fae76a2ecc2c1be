r"""Finds answers: of a response, in the last `\boxed{...}` after the last `</think>`; of a label, the gold answer.

Example:

    extract("so it is \\boxed{\\frac{1}{2}}.").text      # "\\frac{1}{2}"
    gold_text("48 + 24 = 72 clips.\n#### 72")           # "72", as in GSM8K

Time is linear in the response's length: it is searched from its end, and only boxes are read.
"""

import math
import re
from decimal import Decimal
from typing import NamedTuple

from slime_reward_math.context.around import around, equated
from slime_reward_math.context.later import NOTHING, TAKEN_BACK, later, stated

END_OF_THOUGHT = "</think>"
START_OF_THOUGHT = "<think>"
BOX, FRAMED = "\\boxed", "\\fbox"
MAX_ANSWER = 10_000
"""Maximum characters of a box; a longer one is no answer, and is not read to its end."""
MAX_NESTING = 100
"""Maximum depth of braces, which no answer reaches."""
MAX_BOXES = 20
"""Maximum boxes in a row that are read as one list."""
REACH = 200
"""Characters before a box in which named boxes are looked for."""
MAX_GAP = 60
"""Maximum characters between two boxes that belong together."""
TAIL = 2_000
"""Characters at the end that are searched for a phrase like `the final answer is`."""
_JOINTS = (
    "\\text", "\\quad", "\\qquad", "\\mathrm", "and also", "as well as", "also", "and", "or", "\\(", "\\)", "\\[",
    "\\]", "\\,", "\\;", "\\ ", "&",
)  # fmt: skip
_FILL = " \n\t$,;{}."
_SIGNS = " \n\t$,;{.\\()[]&"
"""Text allowed between a box that continues another one and the preceding word or brace."""
_JOINING = frozenset(joint[-1] for joint in _JOINTS if joint[-1].isalpha()) | {"}"}
_PART = re.compile(r"\((?:[1-9]|i{1,3}|iv|v|[a-f])\)[\s$]*")
_SAME_NAME = re.compile(r"(?:(?<=or)|(?<=and))[\s$]+[a-z](?:_\{?\d\}?)?\s*=\s*$")
"""The name of a second solution: `x = 3 or x = 5`."""
_NAMED_BOX = re.compile(r"([a-zA-Z](?:_\{?\w\}?)?)\s*=\s*\$?\s*\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
_NAMED_BOXES = re.compile(rf"(?:{_NAMED_BOX.pattern}[\s$,;]*(?:and|\\text\{{ ?and ?\}}|\\quad|\\\\)?[\s$,;&]*)+$")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_SET_AGAINST = re.compile(
    r"[\s$)\]\\,.;]{0,8}(?:and |but )?(?:certainly |definitely )?(?:not|never|rather than|instead of)[\s$(\[\\]{0,8}"
)
_MARK = re.compile(r"(?i)\banswer(?: is)?(?:\*\*)?\s?[:：](?:\*\*)?[ \t]*\n?([^\n]{1,2000})")


class Extracted(NamedTuple):
    """What was found in a response."""

    text: str | None
    """The answer; None without one."""
    reason: str
    """How it was found, or why not, in a few countable words."""
    stated: str | None = None
    """Another answer stated after it, which must be equal."""
    equation: str | None = None
    r"""The equation that a boxed name opens: `S=12` of `\boxed{S} = 12`."""


def extract(response: str, phrases: bool = False) -> Extracted:
    """The answer of a response.

    Args:
        response: the model's text.
        phrases: whether `the final answer is ...` near the end will do where there is no box.
    """
    start = thought_ends(response)
    if start is None:
        return Extracted(None, "thinking did not end")
    found = _boxes(response, start)
    if found.text is None and phrases and found.reason == "no box":
        return _phrase(response, start)
    return found


def thought_ends(response: str) -> int | None:
    """Where the answer begins: after the last `</think>`; 0 without one; None if thinking began and did not end."""
    # A single character is searched for some twenty times as fast as a word.
    if ">" not in response or "think>" not in response:
        return 0
    end = response.rfind(END_OF_THOUGHT)
    opened = response.rfind(START_OF_THOUGHT)
    if opened > end:
        return None
    return 0 if end < 0 else end + len(END_OF_THOUGHT)


def _boxes(response: str, start: int) -> Extracted:
    """The last box, with the boxes directly before it if only `and`, `or` and signs separate them."""
    sign = BOX
    place = response.rfind(BOX, start)
    if place < 0:
        place, sign = response.rfind(FRAMED, start), FRAMED
        if place < 0:
            return Extracted(None, "no box")
    content, end = _content(response, place)
    if content is None:
        return Extracted(None, "the box is not closed")
    if not content:
        return Extracted(None, "the box is empty")
    said = around(response, start, place, end, content)
    if said.negated and (other := _instead(response, start, place, sign)) is not None:
        return Extracted(other, "the box before one that is denied")
    if said.text is None:
        return Extracted(None, TAKEN_BACK)
    after = later(response[end:], content) if end + 1 < len(response) else NOTHING
    if after.back:
        return Extracted(None, TAKEN_BACK)
    if (named := _named(response, start, place, end)) is not None:
        return Extracted(named, "several boxes in a row", after.stated)
    contents = [content, *_before(response, start, place, sign)] if _may_continue(response, start, place) else [content]
    if len(contents) == 1:
        equal = equated(response[end : end + REACH], content) if said.text == content else None
        if equal is not None and not (rest := later(equal[1], content)).back:
            return Extracted(said.text, "the last box", rest.stated or after.stated, equal[0])
        return Extracted(said.text, "the last box", after.stated)
    kept = list(dict.fromkeys(each for each in reversed(contents) if each))
    return Extracted(", ".join(kept), "the last box" if len(kept) == 1 else "several boxes in a row", after.stated)


def _named(response: str, start: int, place: int, end: int) -> str | None:
    r"""`x = 3, y = 4` of `$x = \boxed{3}$, $y = \boxed{4}$`; None where one box alone has a name, or none."""
    if not response[max(start, place - 8) : place].rstrip(" $").endswith("="):
        return None
    segment = response[max(start, place - REACH) : end]
    match = _NAMED_BOXES.search(segment) if segment.count(BOX) > 1 else None
    found = _NAMED_BOX.findall(match[0]) if match is not None else []
    names = [name for name, _ in found]
    return ", ".join(f"{name}={value}" for name, value in found) if len(set(names)) == len(names) > 1 else None


def _instead(response: str, start: int, place: int, sign: str) -> str | None:
    r"""The content of the box before a denied one: `6` of `it is \boxed{6}, not \boxed{5}`; None without one."""
    before = response.rfind(sign, max(start, place - MAX_GAP - MAX_ANSWER), place)
    content, end = _content(response, before) if before >= 0 else (None, place)
    if not content or end > place or _SET_AGAINST.fullmatch(response[end:place]) is None:
        return None
    return around(response, start, before, end, content).text


def _may_continue(response: str, start: int, place: int) -> bool:
    """Whether the box at a place may continue one before it: a brace is near, and no other word right before it."""
    before = response[max(start, place - MAX_GAP) : place]
    if "}" not in before:
        return False
    word = _SAME_NAME.sub("", before.rstrip(" \n\t$({"))
    word = word.rstrip(_SIGNS)
    if not word or word[-1] in _JOINING:
        return True
    return _PART.fullmatch(before, max(before.rfind("("), 0)) is not None


def _before(response: str, start: int, place: int, sign: str) -> list[str]:
    contents: list[str] = []
    while len(contents) < MAX_BOXES - 1 and "}" in response[max(start, place - MAX_GAP) : place]:
        end = place
        place = response.rfind(sign, start, end)
        content, after = _content(response, place) if place >= 0 else (None, end)
        # A box around this one is not before it.
        if not (content and after <= end and _joins(response[after:end])):
            break
        contents.append(content)
    return contents


def _joins(gap: str) -> bool:
    """Whether the text between two boxes only joins them; its length is bounded, so this takes constant time."""
    if len(gap) > MAX_GAP:
        return False
    gap = _SAME_NAME.sub("", gap)
    for joint in _JOINTS:
        gap = gap.replace(joint, " ")
    if "(" in gap:
        gap = _PART.sub(" ", gap)
    return not gap.strip(_FILL)


def _content(response: str, place: int) -> tuple[str | None, int]:
    """The content of the box at a place, and its end; None if it does not close within bounds."""
    opening = place + (len(BOX) if response.startswith(BOX, place) else len(FRAMED))
    limit = opening + MAX_ANSWER
    if response.startswith("{", opening):
        end = _closed(response, opening + 1, limit)
        if end:
            return response[opening + 1 : end].strip(), end + 1
    text = response[opening:limit]
    rest = text.lstrip()
    offset = opening + len(text) - len(rest)
    if not rest.startswith("{"):
        # \boxed 42: TeX would box only one character, but the writer means the whole word.
        word = rest.split(None, 1)[0].rstrip("$.,") if rest and text[:1].isspace() else ""
        return (word or None), offset + len(word)
    closing = _closing_brace(rest)
    return (None, offset) if closing is None else (rest[1:closing].strip(), offset + closing + 1)


def _closed(response: str, start: int, limit: int) -> int:
    """Where a box that begins at `start` is closed; 0 where a brace is escaped or the box needs care otherwise."""
    depth, place = 1, start
    while depth:
        end = response.find("}", place, limit)
        if end < 0:
            return 0
        depth += response.count("{", place, end)
        if depth > MAX_NESTING:
            return 0
        depth -= 1
        place = end + 1
    escaped = response.find("\\{", start, end) >= 0 or response.find("\\}", start, end + 1) >= 0
    return 0 if escaped else end


def _closing_brace(text: str) -> int | None:
    r"""Where the brace that opens `text` is closed; `\{` and `\}` are characters, not braces."""
    depth = 0
    for match in _BRACE.finditer(text):
        sign = match[0]
        if sign == "{":
            depth += 1
            if depth > MAX_NESTING:
                return None
        elif sign == "}":
            depth -= 1
            if depth == 0:
                return match.start()
    return None


def last_marked(response: str) -> Extracted:
    """The line of the last `Answer:` after the last `</think>`; searches only near the end, to bound time."""
    start = thought_ends(response)
    if start is None:
        return Extracted(None, "thinking did not end")
    tail = response[max(start, len(response) - MAX_ANSWER) :]
    found = [match for match in _MARK.finditer(tail) if match[1].strip("*_ \t$:")]
    if not found:
        return Extracted(None, "no answer line")
    line = found[-1][1].strip().strip("*_").strip()
    return Extracted(line.removesuffix(".") or None, "the last answer line")


def _phrase(response: str, start: int) -> Extracted:
    """The answer in the tail's last sentence with `the answer is`."""
    start = max(start, len(response) - TAIL)
    found = stated(response, start)
    if found is None:
        return Extracted(None, "no box")
    after = later(found.after, found.text or "")
    if found.text is None or after.back:
        return Extracted(None, TAKEN_BACK)
    return Extracted(found.text, "after a phrase", after.stated)


_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z]{2,}")
MAX_GOLD = 20_000
"""Maximum characters of a label; a longer one is no answer."""
MIN_WORDS = 4
"""Minimum words outside formulas for a label to count as prose."""
MAX_WORDS = 15
"""Maximum words of a label that is an answer; the longest of 2,190 public gold answers has 8."""
NO_ANSWERS = frozenset({"proof", "notfound", "not found", "n/a", "null", "unknown", "nan"})
"""Placeholders for a missing answer in data sets (NuminaMath, OpenR1-Math) and their exports, in lower case."""
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
