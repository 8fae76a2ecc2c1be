"""Frames: JSON values on a socket, each after its length, 4 bytes, big endian."""

import json
import socket
import struct

from slime_core.sample import Json

HEADER = struct.Struct(">I")
LARGEST_ANSWER = 1 << 20
"""Bytes; a verdict has no use for more."""


def frame(value: Json) -> bytes:
    """One value as it travels."""
    body = json.dumps(value, separators=(",", ":")).encode()
    return HEADER.pack(len(body)) + body


def receive(channel: socket.socket) -> Json:
    """Wait for the next value.

    Raises:
        EOFError: the other end is closed.
    """
    (length,) = HEADER.unpack(_exactly(channel, HEADER.size))
    value: Json = json.loads(_exactly(channel, length))
    return value


def _exactly(channel: socket.socket, count: int) -> bytes:
    got = bytearray()
    while len(got) < count:
        chunk = channel.recv(min(count - len(got), 1 << 20))
        if not chunk:
            raise EOFError
        got += chunk
    return bytes(got)
