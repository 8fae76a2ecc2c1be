"""Messages between an engine and rank 0 while weights are sent: a JSON object a line, over a connection.

An engine comes with `Hello`, says `READY` when its server can take weights, and answers each order with `DONE`. Rank 0
orders to join a group (`Join`), to take a bucket that is broadcast (`Bucket`) or whose handles it gives (`Handles`),
and ends with `END`, or with `{"failed": why}`. A closed connection means that the other end is gone.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias, TypeVar

Message: TypeAlias = dict[str, object]
READY: Message = {"ready": True}
DONE: Message = {"done": True}
END: Message = {"end": True}
LONGEST = 2**24  # Bytes of a line: the names of a bucket's weights are the longest

SaidT = TypeVar("SaidT", "Hello", "Join", "Bucket", "Handles")


@dataclass(frozen=True, slots=True)
class Hello:
    """An engine introduces itself."""

    secret: str  # The channel's
    engine: int  # Its number
    version: int  # What it wants
    server: str  # The address of its server: a group is of servers
    ranks: int  # How many the server is split over


@dataclass(frozen=True, slots=True)
class Join:
    """Join a group; its first member is rank 0, and waits."""

    address: str  # Where the group meets
    port: int  # The same
    first: int  # Rank of the server's first in the group
    size: int  # Of the group
    name: str  # Of the group
    backend: str  # As torch calls it
    leave: str  # Name of a group to leave before; empty: none


@dataclass(frozen=True, slots=True)
class Bucket:
    """Take these weights, of one dtype, as one flat tensor."""

    group: str  # Name of the group
    names: Sequence[str]  # In their order
    shapes: Sequence[Sequence[int]]  # The same
    dtype: str  # As torch calls it


@dataclass(frozen=True, slots=True)
class Handles:
    """Copy these weights from shared memory."""

    payloads: Sequence[str]  # Names and handles, for each of the server's ranks


Order: TypeAlias = Hello | Join | Bucket | Handles


def written(said: Message | Order) -> bytes:
    """A message encoded as a line."""
    return json.dumps(said if isinstance(said, dict) else {type(said).__name__: asdict(said)}).encode() + b"\n"


def read(line: bytes) -> Message:
    """The message in a line; empty if there is none, as at the end of a connection."""
    try:
        found = json.loads(line) if line.endswith(b"\n") else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def as_a(kind: type[SaidT], message: Message) -> SaidT | None:
    """The message as this kind; None if it has another form."""
    found = message.get(kind.__name__)
    try:
        return kind(**found) if isinstance(found, dict) else None
    except TypeError:
        return None
