"""Guests: the engines that have come to rank 0 for a version, and what becomes of one that goes away.

Example:

    guests = Guests(listening, channel.secret, timeout_s=300.0)
    with guests.met(3, engines=(0, 1)) as come:
        come.tell(END)
        come.hear()
"""

import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from slime_engine_sglang.meeting.wire import READY, Hello, Message, Order, as_a, read, written

LOOK_S = 0.2


@dataclass
class Guest:
    """An engine that has come."""

    hello: Hello
    connection: socket.socket
    stream: BinaryIO

    def say(self, said: Message | Order) -> bool:
        """Tell it something; whether that could be sent."""
        try:
            self.connection.sendall(written(said))
        except OSError:
            return False
        return True

    def heard(self, end: float, wanted: Message) -> bool:
        """Whether it says `wanted` before `end`, a time of `time.monotonic`."""
        self.connection.settimeout(max(0.001, end - time.monotonic()))
        try:
            return read(self.stream.readline()) == wanted
        except OSError:
            return False

    def is_gone(self) -> bool:
        """Whether it has closed its end."""
        try:
            ready, _, _ = select.select([self.connection], [], [], 0)
            return bool(ready) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def close(self) -> None:
        """Let it go."""
        self.stream.close()
        self.connection.close()


class Guests:
    """The engines that connect to a listening socket."""

    def __init__(self, listening: socket.socket, secret: str, timeout_s: float) -> None:
        """Nobody has come yet."""
        self._listening, self._secret, self._timeout_s = listening, secret, timeout_s

    @contextmanager
    def met(self, version: int, engines: Sequence[int]) -> Iterator[list[Guest]]:
        """The guests, of these engines, that are ready in time; one that goes away before is passed over."""
        end = time.monotonic() + self._timeout_s
        come: dict[int, Guest] = {}
        try:
            while len(come) < len(set(engines)) and time.monotonic() < end:
                guest = self._next()
                if guest is None:
                    continue
                if guest.hello.engine in engines and guest.hello.version == version:
                    if before := come.get(guest.hello.engine):
                        before.close()
                    come[guest.hello.engine] = guest
                else:
                    guest.close()
            ready = [guest for _, guest in sorted(come.items()) if guest.heard(end, READY)]
            yield ready
        finally:
            for guest in come.values():
                guest.close()

    def _next(self) -> Guest | None:
        """The next engine that connects and knows the secret, if any."""
        self._listening.settimeout(LOOK_S)
        try:
            connection, _ = self._listening.accept()
        except TimeoutError:
            return None
        connection.settimeout(self._timeout_s)
        stream = connection.makefile("rb")
        try:
            hello = as_a(Hello, read(stream.readline()))
        except OSError:
            hello = None
        if hello is None or hello.secret != self._secret:
            stream.close()
            connection.close()
            return None
        return Guest(hello, connection, stream)
