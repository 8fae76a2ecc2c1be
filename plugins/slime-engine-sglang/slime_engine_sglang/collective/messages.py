"""Messages between an engine and rank 0 while weights are sent: one JSON object per line over a TCP connection.

An engine sends `Hello`, then `READY` when its server can receive weights, and `DONE` after each order. Rank 0 orders it
to join a process group (`Join`), to receive a broadcast bucket (`Bucket`) or to copy a bucket from memory handles
(`Handles`). Last it sends `END` or `{"failed": why}`. A closed connection means that the other side is gone.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias, TypeVar

Message: TypeAlias = dict[str, object]
READY: Message = {"ready": True}
DONE: Message = {"done": True}
END: Message = {"end": True}
LONGEST = 2**24  # Maximum bytes of a line; the names of a bucket's weights are the longest part

OrderT = TypeVar("OrderT", "Hello", "Join", "Bucket", "Handles")


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of an engine."""

    secret: str  # The channel's secret
    engine: int  # The engine's number
    version: int  # The version of the weights that it needs
    server: str  # The address of its server, which identifies a member of the process group
    ranks: int  # Number of ranks of the server


@dataclass(frozen=True, slots=True)
class Join:
    """Order to join a process group, in which rank 0 waits."""

    address: str  # Host of the group's rendezvous
    port: int  # Port of the group's rendezvous
    first: int  # Rank of the server's first process in the group
    size: int  # Number of processes in the group
    name: str  # The group's name
    backend: str  # torch's name of the backend
    leave: str  # Name of a group to leave first; empty: none


@dataclass(frozen=True, slots=True)
class Bucket:
    """Order to receive these weights, of one dtype, as one flat tensor."""

    group: str  # Name of the process group
    names: Sequence[str]  # Names of the weights in their order in the bucket
    shapes: Sequence[Sequence[int]]  # Their shapes
    dtype: str  # torch's name of the dtype


@dataclass(frozen=True, slots=True)
class Handles:
    """Order to copy these weights from shared memory."""

    payloads: Sequence[str]  # Pickled names and handles, one payload for each rank of the server


Order: TypeAlias = Hello | Join | Bucket | Handles


def encode(message: Message | Order) -> bytes:
    """A message encoded as a line."""
    return (
        json.dumps(message if isinstance(message, dict) else {type(message).__name__: asdict(message)}).encode() + b"\n"
    )


def decode(line: bytes) -> Message:
    """The message in a line; empty if there is none, such as at the end of a connection."""
    try:
        found = json.loads(line) if line.endswith(b"\n") else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def parse_as(kind: type[OrderT], message: Message) -> OrderT | None:
    """The message as an instance of `kind`; None if it is another message."""
    found = message.get(kind.__name__)
    try:
        return kind(**found) if isinstance(found, dict) else None
    except TypeError:
        return None
