"""Query: which samples are wanted, as a page asks for them: conditions of columns, a text, an order, a page.

Example:

    Query.parse({"status": "truncated", "reward_max": "0.5", "sort": "longest"})
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import TypeVar, get_args, get_type_hints

from slime_core.errors import ConfigError, did_you_mean

PAGE = 50
"""Samples a page."""
T = TypeVar("T", int, float)


class Sort(Enum):
    """Which samples come first."""

    NEWEST = "newest"
    OLDEST = "oldest"
    BEST = "best"
    WORST = "worst"
    LONGEST = "longest"
    SHORTEST = "shortest"


@dataclass(frozen=True, slots=True)
class Query:
    """Conditions that a sample must all meet; None: no condition."""

    kind: str | None = None
    """`rollout` or `eval`."""
    rollout_min: int | None = None
    rollout_max: int | None = None
    reward_min: float | None = None
    """A sample without a reward is in no range."""
    reward_max: float | None = None
    source: str | None = None
    """Name of the data set."""
    status: str | None = None
    reason: str | None = None
    """Why it failed or its group was dropped; `none` for what was kept, `any` for what was not."""
    text: str | None = None
    """What the prompt or the response has in it, in any case. Such samples come newest first."""
    sort: Sort = Sort.NEWEST
    offset: int = 0
    """Samples before the page."""
    after: str | None = None
    """Of a search: where the page before it ended, `FILE:ROW`."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Query":
        """What the parameters of an address say; an empty one says nothing.

        Raises:
            ConfigError: one is unknown, or not of its type.
        """
        known = {each.name for each in fields(cls)}
        values: dict[str, object] = {}
        for name, text in given.items():
            if name not in known:
                raise ConfigError(
                    f"unknown condition {name!r}.{did_you_mean(name, known)} There are: {', '.join(sorted(known))}"
                )
            if text:
                values[name] = _value(name, text, get_type_hints(cls)[name])
        return cls(**values)  # type: ignore[arg-type]  # each value has the type of its field


def _value(name: str, text: str, kind: object) -> object:
    try:
        if kind is Sort:
            return Sort(text)
        if kind is int or int in get_args(kind):
            return int(text)
        return float(text) if float in get_args(kind) else text
    except ValueError:
        raise ConfigError(f"{name} = {text!r} is not {_expected(kind)}") from None


def _expected(kind: object) -> str:
    if kind is Sort:
        return "one of " + ", ".join(each.value for each in Sort)
    return "a whole number" if kind is int or int in get_args(kind) else "a number"
