"""Known: what was read of the lists that clients send again with every request, so that only what is new is read.

A member is known if it is the very object that stood there before (`bodies`), not if it only looks alike: in Python
1 is True, and tools that differ in that are two.

Example:

    known = Known()
    messages = known.messages.read(asked.at("messages"), lambda said: [read_message(said)])
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from slime_agent_openai.message import Message, Tool
from slime_agent_openai.wires.reading import Value
from slime_core.sample import Json

Read = TypeVar("Read")


class Rows(Generic[Read]):
    """One such list."""

    def __init__(self) -> None:
        """Nothing is known."""
        self._rows: list[Json] = []
        self._made: list[tuple[Read, ...]] = []

    def read(self, given: Value, one: Callable[[Value], Iterable[Read]]) -> tuple[Read, ...]:
        """What the members of a list are, in order; `one` reads a member.

        Raises:
            ApiError: it is not a list, or a member cannot be read.
        """
        rows = given.json if isinstance(given.json, list) else []
        pairs = enumerate(zip(rows, self._rows, strict=False))
        same = next((place for place, (row, before) in pairs if row is not before), min(len(rows), len(self._rows)))
        made = self._made[:same]
        made += (tuple(one(member)) for member in given.each(same))
        self._rows, self._made = rows, made
        return tuple(each for row in made for each in row)


@dataclass(frozen=True, slots=True)
class Known:
    """What was read of one conversation."""

    messages: Rows[Message] = field(default_factory=Rows)
    """The history."""
    tools: Rows[Tool] = field(default_factory=Rows)
    """What is offered."""
