"""Frames on a socket between driver and worker: each is an 8-byte length, followed by the payload.

The driver's end (`Channel`) never blocks the event loop and can be cancelled at any byte. The worker's end (`send`,
`receive`) is blocking code.

Example:

    await process.channel.send(b"...")      # in the driver
    send(own, receive(own))                 # in the worker
"""

import asyncio
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence

HEADER = struct.Struct(">Q")
_PART = 1 << 20
"""Bytes that are read at a time; other tasks get a turn between two parts."""


class TooLong(Exception):
    """A frame is longer than its limit; `args[0]` is its length."""


class Channel:
    """The driver's end of a worker's socket."""

    def __init__(self, own: socket.socket) -> None:
        own.setblocking(False)
        self._socket = own
        self._unsent: deque[memoryview] = deque()
        self._unread = bytearray()

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived after the last received frame."""
        return bool(self._unread)

    @property
    def is_closed(self) -> bool:
        """Whether the other end is closed and nothing is left to receive."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def send(self, *parts: bytes | memoryview) -> None:
        """Send one frame, after the rest of a frame whose sending was cancelled; OSError if the other end is closed."""
        loop = asyncio.get_running_loop()
        self._unsent += map(memoryview, _framed(parts))
        while not self._sent():
            await self._ready(loop.add_writer, loop.remove_writer)

    async def receive(self, limit: int | None = None) -> bytes:
        """Wait for the next frame.

        Raises:
            EOFError: the other end is closed.
            TooLong: the frame has more than `limit` bytes.
            OSError: this end is closed.
        """
        loop = asyncio.get_running_loop()
        while (body := self._whole(limit)) is None:
            if not self._took():
                await self._ready(loop.add_reader, loop.remove_reader)
            elif len(self._unread) >= _PART:
                await asyncio.sleep(0)
        return body

    def exchange(self, body: bytes, *, limit: int, timeout_s: float) -> bytes:
        """Send one frame and wait for the next, outside an event loop.

        Raises:
            EOFError: the other end is closed.
            TooLong: the answer is longer than `limit` bytes.
            TimeoutError: there is no answer in time.
            OSError: this end is closed.
        """
        deadline = time.monotonic() + timeout_s
        self._unsent.append(memoryview(HEADER.pack(len(body)) + body))  # at once: each part would wake the worker
        while not self._sent():
            self._wait_until(deadline, write=True)
        while (answer := self._whole(limit)) is None:
            if not self._took():
                self._wait_until(deadline, write=False)
        return answer

    def _wait_until(self, deadline: float, *, write: bool) -> None:
        left, own = max(0.0, deadline - time.monotonic()), [self._socket]
        if not any(select.select([] if write else own, own if write else [], [], left)):
            raise TimeoutError

    def end(self) -> None:
        """Send no more: the worker reads end-of-file after the frames that were sent."""
        _shut(self._socket, socket.SHUT_WR)

    def cut(self) -> None:
        """Break the connection at once; a waiting `receive` raises EOFError."""
        _shut(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket; no task may be waiting for a frame."""
        self._socket.close()

    def _sent(self) -> bool:
        while self._unsent:
            part = self._unsent[0]
            try:
                sent = self._socket.send(part)
            except BlockingIOError:
                return False
            if sent < len(part):
                self._unsent[0] = part[sent:]
                return False
            self._unsent.popleft()
        return True

    def _took(self) -> bool:
        try:
            part = self._socket.recv(_PART)
        except BlockingIOError:
            return False
        if not part:
            raise EOFError
        self._unread += part
        return True

    def _whole(self, limit: int | None) -> bytes | None:
        if len(self._unread) < HEADER.size:
            return None
        (length,) = HEADER.unpack(self._unread[: HEADER.size])
        if limit is not None and length > limit:
            raise TooLong(length)
        end = HEADER.size + length
        if len(self._unread) < end:
            return None
        body = bytes(memoryview(self._unread)[HEADER.size : end])
        del self._unread[:end]
        return body

    async def _ready(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        descriptor = self._socket.fileno()
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        add(descriptor, _settle, ready)
        try:
            await ready
        finally:
            if self._socket.fileno() >= 0:  # else another file may have the number by now
                remove(descriptor)


def send(channel: socket.socket, *parts: bytes | memoryview) -> None:
    """Send one frame of these parts."""
    for part in _framed(parts):
        channel.sendall(part)


def _framed(parts: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
    """A frame's pieces to send; a small frame is one piece, because the other end wakes at each."""
    size = sum(map(len, parts))
    whole = (HEADER.pack(size), *parts)
    return [b"".join(whole)] if size < _PART else whole


def receive(channel: socket.socket) -> bytearray:
    """Wait for the next frame; EOFError if the other end is closed."""
    (length,) = HEADER.unpack(_exactly(channel, HEADER.size))
    return _exactly(channel, length)


def _exactly(channel: socket.socket, count: int) -> bytearray:
    got = bytearray(count)
    view, filled = memoryview(got), 0
    while filled < count:
        read = channel.recv_into(view[filled:])
        if not read:
            raise EOFError
        filled += read
    return got


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _shut(own: socket.socket, how: int) -> None:
    try:
        own.shutdown(how)
    except OSError:  # the other end is gone, or this one is closed
        return
