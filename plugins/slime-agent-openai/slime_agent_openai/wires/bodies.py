"""Bodies and Known: parse only the new part of a request, since a conversation's requests repeat its history.

If a body is, byte for byte, the previous one with more messages at the end, both share their message objects. `Known`
recognises an object by identity (in Python 1 == True, so equal JSON may differ) and reuses what was read of it.

Example:

    bodies = Bodies()
    first = bodies.read(b'{"messages": [{"role": "user"}]}')       # and bodies.digest
    then = bodies.read(b'{"messages": [{"role": "user"}, {"role": "assistant"}]}')
    then["messages"][0] is first["messages"][0]        # True
"""

import json
import re
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Generic, TypeVar

from slime_agent_openai.message import Message, Tool
from slime_agent_openai.wires.values import Value
from slime_agent_openai.wires.wire import Body
from slime_core.sample import Json

HISTORY = "messages"  # The list that grows; protocols that store histories name theirs otherwise
_BEGINS = re.compile(rf'"{HISTORY}"\s*:\s*\['.encode())
_SPACE = " \t\n\r"
_MARK = secrets.token_hex(16)
"""Placeholder of the list. Clients cannot guess it, so the list belongs exactly where it appears."""
_read_one = json.JSONDecoder().raw_decode


def _hash(raw: bytes = b"") -> blake2b:
    return blake2b(raw, digest_size=16)


@dataclass(frozen=True, slots=True)
class _Known:
    """A body that was read."""

    begins: int  # Number of bytes before the list's first message
    raw: bytes  # Its bytes up to the end of the last message
    rows: list[Json]  # The messages
    rest: str = ""  # Text behind the list
    others: Body = field(default_factory=dict)  # The other fields, and the mark in place of the list
    hashed: blake2b = field(default_factory=_hash)  # Hash state of `raw`


class Bodies:
    """Reads the bodies of one conversation."""

    def __init__(self) -> None:
        self.digest = b""  # Digest of the latest body's bytes
        self._known: _Known | None = None

    def read(self, raw: bytes) -> Json:
        """A body, equal to what `json.loads` returns."""
        known, self._known = self._known, None
        if known is None or not raw.startswith(known.raw):
            begins = _BEGINS.search(raw)
            head = raw[: begins.end()] if begins else b""
            known = _Known(begins.end(), head, [], hashed=_hash(head)) if begins else None
        if known is not None:
            with suppress(ValueError):  # errors are reported for the whole body below
                self._known = _grown(known, raw)
        if self._known is None:
            self.digest = _hash(raw).digest()
            made: Json = json.loads(raw)
            return made
        self.digest = _more(self._known.hashed, raw[len(self._known.raw) :]).digest()
        return {**self._known.others, HISTORY: self._known.rows}


def _grown(known: _Known, raw: bytes) -> _Known | None:
    """A body that begins like a known one; None: its list is somewhere else."""
    fresh = raw[len(known.raw) :].decode().lstrip(_SPACE)
    goes_on = bool(known.rows) and fresh.startswith(",")
    if known.rows and not goes_on and not fresh.startswith("]"):
        raise ValueError("the last message goes on")
    listed = f"[{fresh[goes_on:]}"
    more, end = _read_one(listed)
    if goes_on and not more:
        raise ValueError("a comma and no message")
    rest = listed[end:]
    others = known.others
    if not others or rest != known.rest:
        others = json.loads(f'{raw[: known.begins - 1].decode()}"{_MARK}"{rest}')
        if not isinstance(others, dict) or others.get(HISTORY) != _MARK:  # a list of that name inside another field
            return None
    last = len(raw) - len(rest.encode()) - 1  # position of the list's closing bracket
    whole = raw[:last].rstrip()
    hashed = _more(known.hashed, whole[len(known.raw) :])
    return _Known(known.begins, whole, [*known.rows, *more], rest, others, hashed)


def _more(hashed: blake2b, raw: bytes) -> blake2b:
    state = hashed.copy()
    state.update(raw)
    return state


Read = TypeVar("Read")


class Rows(Generic[Read]):
    """Cache of the members read from one list."""

    def __init__(self) -> None:
        self._rows: list[Json] = []
        self._made: list[tuple[Read, ...]] = []

    def read(self, given: Value, one: Callable[[Value], Iterable[Read]]) -> tuple[Read, ...]:
        """The members of a list, in order; `one` reads a member."""
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

    messages: Rows[Message] = field(default_factory=Rows)  # The history
    tools: Rows[Tool] = field(default_factory=Rows)  # The tools offered
