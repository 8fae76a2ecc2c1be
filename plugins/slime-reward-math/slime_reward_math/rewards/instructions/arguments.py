"""Arguments of an instruction, as rows give them: numbers that may be texts, lists that may be missing.

Example:

    Arguments({"num_words": "50", "relation": "at least"}).number("num_words")      # 50
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from slime_core.sample import Json

MAX_TEXT = 200_000
"""Characters of a response that are verified; a longer one is cut off, so that time is bounded."""


class MissingArgument(Exception):
    """The row does not say what the instruction needs."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a row says about one instruction."""

    values: Mapping[str, Json]
    """By name."""

    def text(self, name: str, default: str | None = None) -> str:
        """A text."""
        value = self.values.get(name)
        if isinstance(value, str):
            return value
        if default is None:
            raise MissingArgument(name)
        return default

    def number(self, name: str, default: int | None = None) -> int:
        """An integer."""
        value = self.values.get(name)
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            try:
                return int(float(value))
            except (ValueError, OverflowError):
                pass
        if default is None:
            raise MissingArgument(name)
        return default

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        value = self.values.get(name)
        if not isinstance(value, list):
            raise MissingArgument(name)
        return [str(each) for each in value]

    def compares(self, found: int, wanted: str, relation: str) -> bool:
        """Whether a count is `less than`, `at most`, `exactly` or, without a word, `at least` what is wanted."""
        expected, how = self.number(wanted), self.text(relation, "at least")
        rules = {"less than": found < expected, "at most": found <= expected, "exactly": found == expected}
        return rules.get(how, found >= expected)


Verifier: TypeAlias = Callable[[str, Arguments], bool]
"""Whether a response follows an instruction; raises MissingArgument where the row is incomplete."""


def text_of(response: str) -> str:
    """The part of a response that is verified."""
    return response[:MAX_TEXT]
