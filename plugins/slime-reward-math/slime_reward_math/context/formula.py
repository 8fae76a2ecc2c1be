r"""The formula that a box stands in: `-\boxed{5}` says -5, `x > \boxed{5}` an inequality, `\boxed{5}\pi` five pi.

Example:

    formula(r"it is $2\cdot\boxed{5}$", 0, 13, 21, "5")      # r"2\cdot5"
"""

import re

REACH = 200
"""Characters on each side that a formula around a box may have."""
_OPERATOR_BEFORE = re.compile(
    r"(?:[-+*/^_<>≤≥≠±|]|\\(?:cdot|times|div|pm|mp|leq?|geq?|leqslant|geqslant|lt|gt|neq?|ll|gg|sqrt|approx\s*-|circ|"
    r"setminus)"
    r"|\\(?:ln|log|sin|cos|tan|lfloor|lceil)|(?<![\w.])\d+(?:\.\d+)?|\\pi|(?:\\sqrt|"
    r"\\[dt]?frac\{[^{}]{0,40}\})\{[^{}]{0,40}\})\s*$"
)
_ENCLOSED = re.compile(
    r"(?:\\[dt]?frac\s*\{|\\[dt]?frac\s*\{[^{}]{0,60}\}\s*\{|\\sqrt(?:\[\d\])?\s*\{|[\^_]\s*\{)[^{}$]{0,40}$|\d\s*:\s*$"
)
_OPERATOR_AFTER = re.compile(
    r"\s*(?:[-+*/^_<>≤≥≠!×·]|:\s?\d|\d|[A-Za-z](?![A-Za-z])|\\(?:cdot|times|div|pi|sqrt|[dt]?frac|pm|mp|leq?|geq?|lt|"
    r"gt|neq?|"
    r"cup|cap|setminus|"
    r"ln|log|sin|cos|tan|theta|alpha|beta|%|text|mathrm|mbox|operatorname|degree|circ|times|binom|choose|"
    r"left)(?![A-Za-z])|%|°)"
)
_GLUED_AFTER = re.compile(
    r"\s*\\(?:cdot|times|div)(?![A-Za-z])|\s*[+*/×·÷^]\s?[\d(\\]|\s+-\s?\d+\s*(?:$|[.,;)=])|[*/^_×·]|!(?=[^\s])|"
    r"[+-]\d|\d|\\(?:cdot|times|div|pi|sqrt|%|circ)(?![A-Za-z])|%|°|[a-z](?![A-Za-z])"
)
GLUED = 40
"""Characters of a sign or number that is glued to a box."""
_GLUED_BEFORE = re.compile(r"(?:(?<![\w}])[-−]|[+*/^√<>≤≥≠]|(?<![\w.])\d+)\Z")
"""At the very end: `$` would also stand before a line's end, and what the line above ends with is not a factor."""
_WITHIN = re.compile(
    r"\\(?:[dt]?frac\s*(?:\{[^{}]{0,60}\}\s*)?|sqrt(?:\[\d\])?\s*)\{[^{}$]{0,40}$|\\(?:log|ln|sin|cos|tan|cot|exp|"
    r"arcsin|arccos|arctan)(?:_\{?\w+\}?)?\s*[({]?\s*$"
)
"""A command without dollar signs that a box stands in."""
_FUNCTION = re.compile(
    r"\\(?:log|ln|sin|cos|tan|cot|exp|arcsin|arccos|arctan|max|min)(?:_\{?\w+\}?)?\s*(?:\\left)?\s*$"
    r"|(?<![A-Za-z\\])[fgh]\Z"
)
"""A function whose argument a bracket opens."""
_PROSE_END = re.compile(r"[,;:\n]|\.(?!\d)|(?<![\\A-Za-z])[A-Za-z]{2,}")
_BRACKET = re.compile(r"(?<!\\)[()\[\]]|\\[{}]")
_RIGHT_BRACKET_END = re.compile(r"\$|\\\)(?!\w)|\\\]|\n|=")
_LEFT_END = re.compile(
    r"=|≈|\\approx|\\therefore|\\implies|\\iff|\\[Rr]ightarrow|\\Longrightarrow|\\to\b|:|,(?!\\)|;|&|\\\\|\\q?quad|"
    r"\\text\{[^{}]*\}|\\in\b|\n"
)
_RIGHT_END = re.compile(
    r"[$\n=≈;&]|\\\)|\\\]|\\\\|\\approx|, |\.\s|\.$|\\q?quad|\\[Rr]ightarrow|\\implies|\\end|\\tag|\\p?mod(?![a-z])|"
    r",$|\\;|\\in\b"
)

_EQUALS = re.compile(
    r"[\s\\,;!]*=\s*([^$\n\\,][^$\n]{0,120}?)\s*(?:\$|\\\)|\\\]|\n|\.(?=\s|$)|$)|"
    r"[\s\\,;!]*=\s*(\\(?![\])])[^$\n]{1,120}?)\s*(?:\$|\\\)|\\\]|\n|\.(?=\s|$)|$)"
)
"""What a box is said to be equal to in its own formula."""
_UNNAMED = re.compile(r"\\(?:[dt]?frac|sqrt|pi|cdot|times|left|right|circ|pm|text\{ ?(?:and|or) ?\})(?![A-Za-z])")


def equation(after: str, content: str) -> tuple[str, str] | None:
    r"""The equation that a box with a name opens, `S = 12` of `\boxed{S} = 12`, and the text behind it; else None."""
    if "=" not in after[:4] or "=" in content or not any(map(str.isalpha, _UNNAMED.sub("", content))):
        return None
    match = _EQUALS.match(after)
    return None if match is None else (f"{content}={match[1] or match[2]}", after[match.end() :])


def formula(response: str, start: int, place: int, end: int, content: str) -> str | None:
    """What the formula around a box says, the box written out in it; None where the box is all of it.

    Args:
        response: the model's text.
        start: where its answer begins.
        place: where the box begins.
        end: where it ends.
        content: what it holds.
    """
    before, after = response[max(start, place - REACH) : place], response[end : end + REACH]
    inside = _opening(before)
    if inside is None and (within := _WITHIN.search(before)) is not None:
        inside = within.start()
    if inside is None:
        glued = _GLUED_BEFORE.search(before, max(0, len(before) - GLUED))
        follows = _GLUED_AFTER.match(after)
        if glued is None and follows is None:
            return None
        left = glued[0] if glued is not None else ""
        right = _PROSE_END.split(after, maxsplit=1)[0] if follows is not None else ""
        return left + _grouped(content) + right
    left = before[inside:]
    opened = _bracket(left)
    if opened is not None:
        named = _FUNCTION.search(left[:opened])
        opened = named.start() if named is not None else opened
        stop = _RIGHT_BRACKET_END.search(after)
        return left[opened:] + _grouped(content) + (after[: stop.start()] if stop else after)
    if not (_OPERATOR_BEFORE.search(left) or _ENCLOSED.search(left) or _OPERATOR_AFTER.match(after)):
        return None
    enclosed = _ENCLOSED.search(left)
    cuts = [match.end() for match in _LEFT_END.finditer(left[: enclosed.start()] if enclosed else left)]
    stop = _RIGHT_END.search(after)
    left, right = left[cuts[-1] if cuts else 0 :], after[: stop.start()] if stop else after
    return (left + _grouped(content) + right).strip(" .")


def _opening(before: str) -> int | None:
    """Where the formula begins that goes on at the end of a text; None in prose."""
    dollar = before.rfind("$") + 1
    if dollar and before.rpartition("\n\n")[2].count("$") % 2:
        return dollar
    for opening, closing in (("\\(", "\\)"), ("\\[", "\\]")):
        at = before.rfind(opening)
        if at >= 0 and before.rfind(closing) < at:
            return at + 2
    return None


def _bracket(left: str) -> int | None:
    """Where a list begins that a box is an item of: `(`, `[` or a brace that is still open; None without one."""
    depth = 0
    for match in reversed(list(_BRACKET.finditer(left))):
        depth += 1 if match[0][-1] in "([{" else -1
        if depth > 0:
            return match.start()
    return None


def _grouped(content: str) -> str:
    """A box's content as one thing within a formula."""
    return content if re.fullmatch(r"[\d.,]+|[A-Za-z]|\\pi", content) else f"({content})"
