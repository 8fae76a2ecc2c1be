"""Words: what models write in ways of their own, as JSON: values without quotes, and members between brackets.

Example:

    bare("True")      # "true"
    bare("-1.50")     # "-1.50", as it was written
    bare("Lyon")      # None
"""

import re
from collections.abc import Callable

from slime_agent_openai.parsers.draft import can_name

DEEPEST = 100
"""Lists and objects within each other that are read: what is deeper is not a call of anybody's."""
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}


class NoCallError(ValueError):
    """A text is not written as calls are."""


def bare(word: str) -> str | None:
    """The JSON of a word that is a number, true, false or null; None: it is none of these."""
    return _WORDS.get(word, word if _NUMBER.fullmatch(word) else None)


def named(word: str) -> str:
    """A word, if it may be the name of a tool.

    Raises:
        NoCallError: it may not.
    """
    if not can_name(word):
        raise NoCallError
    return word


def members(closes: str, is_next: Callable[[str], bool], one: Callable[[], str]) -> str:
    """What is written up to a bracket, with commas between.

    Args:
        closes: the bracket.
        is_next: whether a mark comes next, which is read then.
        one: reads a member, and writes it as JSON.

    Raises:
        NoCallError: there is no comma.
    """
    made: list[str] = []
    while not is_next(closes):
        if made and not is_next(","):
            raise NoCallError
        made.append(one())
    return ", ".join(made)
