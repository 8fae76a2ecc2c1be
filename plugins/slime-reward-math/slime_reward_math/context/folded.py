r"""Patterns for lower-case texts: a search that need not ask for case takes a third of the time.

Example:

    folded(r"\bI was wrong\b").search("I was wrong".lower())      # a match
"""

import re

_CAPITAL = re.compile(r"(\\.)|([A-Z])")


def folded(pattern: str) -> re.Pattern[str]:
    r"""The pattern for texts in lower case, its own capitals included; `\S` and its like stay what they are."""
    return re.compile(_CAPITAL.sub(lambda match: match[1] or match[2].lower(), pattern))


def low_case(text: str) -> str:
    """The text in lower case, with every sign where it was; a few signs of other scripts would move the rest."""
    low = text.lower()
    return low if len(low) == len(text) else text
