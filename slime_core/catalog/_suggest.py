"""The nearest spelling, for error messages; case, '-' and '_' do not count.

    raise UnknownName(f"no reward {name!r}.{did_you_mean(name, rewards)}")

reads "no reward 'mth'. Did you mean 'math'?"
"""

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A sentence to append, " Did you mean 'math'?", or "" when nothing is near."""
    spellings: dict[str, str] = {}
    for choice in sorted(choices):
        spellings.setdefault(_plain(choice), choice)
    near = difflib.get_close_matches(_plain(word), spellings, n=1)
    return f" Did you mean {spellings[near[0]]!r}?" if near else ""


def _plain(word: str) -> str:
    return word.lower().replace("_", "-")
