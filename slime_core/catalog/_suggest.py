"""The nearest spelling, for error messages; case, '-' and '_' do not count.

    raise UnknownName(f"no reward {name!r}.{did_you_mean(name, rewards)}")

reads "no reward 'mth'. Did you mean 'math'?"
"""

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A sentence to append, " Did you mean 'math'?", or "" when nothing is near."""
    spellings: dict[str, list[str]] = {}
    for choice in sorted(choices):
        spellings.setdefault(_plain(choice), []).append(choice)
    near = difflib.get_close_matches(_plain(word), spellings, n=1)
    if not near:
        return ""
    best = max(spellings[near[0]], key=lambda choice: difflib.SequenceMatcher(None, word, choice).ratio())
    return f" Did you mean {best!r}?"


def _plain(word: str) -> str:
    return word.lower().replace("_", "-")
