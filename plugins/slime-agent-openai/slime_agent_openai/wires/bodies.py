"""Bodies and HistoryCache: parse only the new part of a request, since a conversation's requests repeat its history.

If a body is, byte for byte, the previous one with more messages at the end, both share their message objects.
`HistoryCache` recognises an object by identity (in Python 1 == True, so equal JSON may differ) and keeps its result.

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
class _ParsedBody:
    """A parsed body."""

    begin: int  # Number of bytes before the list's first message
    raw: bytes  # Its bytes up to the end of the last message
    rows: list[Json]  # The messages
    rest: str = ""  # Text behind the list
    others: Body = field(default_factory=dict)  # The other fields, and the mark in place of the list
    hash_state: blake2b = field(default_factory=_hash)  # Hash state of `raw`


class Bodies:
    """Reads the bodies of one conversation."""

    def __init__(self) -> None:
        self.digest = b""  # Digest of the latest body's bytes
        self._known: _ParsedBody | None = None

    def read(self, raw: bytes) -> Json:
        """A body, equal to what `json.loads` returns."""
        known, self._known = self._known, None
        if known is None or not raw.startswith(known.raw):
            begin = _BEGINS.search(raw)
            head = raw[: begin.end()] if begin else b""
            known = _ParsedBody(begin.end(), head, [], hash_state=_hash(head)) if begin else None
        if known is not None:
            with suppress(ValueError):  # errors are reported for the whole body below
                self._known = _extended(known, raw)
        if self._known is None:
            self.digest = _hash(raw).digest()
            body: Json = json.loads(raw)
            return body
        self.digest = _updated(self._known.hash_state, raw[len(self._known.raw) :]).digest()
        return {**self._known.others, HISTORY: self._known.rows}


def _extended(known: _ParsedBody, raw: bytes) -> _ParsedBody | None:
    """A body that begins like a known one; None: its list is somewhere else."""
    new = raw[len(known.raw) :].decode().lstrip(_SPACE)
    continues = bool(known.rows) and new.startswith(",")
    if known.rows and not continues and not new.startswith("]"):
        raise ValueError("the last message goes on")
    listed = f"[{new[continues:]}"
    more, end = _read_one(listed)
    if continues and not more:
        raise ValueError("a comma and no message")
    rest = listed[end:]
    others = known.others
    if not others or rest != known.rest:
        others = json.loads(f'{raw[: known.begin - 1].decode()}"{_MARK}"{rest}')
        if not isinstance(others, dict) or others.get(HISTORY) != _MARK:  # a list of that name inside another field
            return None
    last = len(raw) - len(rest.encode()) - 1  # position of the list's closing bracket
    whole = raw[:last].rstrip()
    hash_state = _updated(known.hash_state, whole[len(known.raw) :])
    return _ParsedBody(known.begin, whole, [*known.rows, *more], rest, others, hash_state)


def _updated(hash_state: blake2b, raw: bytes) -> blake2b:
    state = hash_state.copy()
    state.update(raw)
    return state


Read = TypeVar("Read")


class RowCache(Generic[Read]):
    """Cache of the parsed members of one list."""

    def __init__(self) -> None:
        self._rows: list[Json] = []
        self._made: list[tuple[Read, ...]] = []

    def read(self, value: Value, one: Callable[[Value], Iterable[Read]]) -> tuple[Read, ...]:
        """The members of a list, in order; `one` reads a member."""
        rows = value.json if isinstance(value.json, list) else []
        pairs = enumerate(zip(rows, self._rows, strict=False))
        same = next((place for place, (row, before) in pairs if row is not before), min(len(rows), len(self._rows)))
        parsed = self._made[:same]
        parsed += (tuple(one(member)) for member in value.each(same))
        self._rows, self._made = rows, parsed
        return tuple(each for row in parsed for each in row)


@dataclass(frozen=True, slots=True)
class HistoryCache:
    """Parsed messages and tools of one conversation."""

    messages: RowCache[Message] = field(default_factory=RowCache)  # The history
    tools: RowCache[Tool] = field(default_factory=RowCache)  # The tools offered
