"""The driver's handle of a forked process: calls over its channel, its output, and its end over its leash.

The process answers one call at a time. Its server reports the process id and the exit, and kills the process with all
its descendants when the driver closes the leash. A channel carries frames: an 8-byte length, followed by the payload.
The driver's end (`Channel`) never blocks the event loop and can be cancelled at any byte; the worker's end (`send`,
`receive`) is blocking code.

Example:

    process = server.fork("slime_core.processes.worker:serve", title="trainer 0", output=log.fileno())
    answer = await process.call(b"...")
    process.kill()
    await process.ended()
"""

import asyncio
import os
import select
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

HEADER = struct.Struct(">Q")
"""Header of a frame: the length of its payload."""
NOTE = struct.Struct(">ii")
"""A message of the server on the leash. First: process id or a negative errno, and 0. At the end: exit code, and
the exceeded limit: MiB of memory, or a negative number of processes; else 0."""
NUMBER = struct.Struct(">Q")
"""Number of a call, which precedes the call and its answer."""
DEATH_S = 10.0
"""Seconds that a process may take to end after it was killed or has closed its connection."""
DRAIN_S = 0.05
"""Seconds between two reads of a process's output, so that much output slows the process and not the driver."""
_PART = 1 << 20
"""Most bytes per read; other tasks run between two reads."""


class TooLong(Exception):
    """A frame is longer than the limit; `args[0]` is its length."""


class Channel:
    """The driver's end of a worker's socket."""

    def __init__(self, own: socket.socket) -> None:
        own.setblocking(False)
        self._socket = own
        self._unsent, self._unread = deque[memoryview](), bytearray()

    @property
    def is_closed(self) -> bool:
        """Whether the other end is closed and all frames were received."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def send(self, body: bytes) -> None:
        """Send one frame, after the rest of any cancelled one; OSError if the other end is closed."""
        loop = asyncio.get_running_loop()
        self._frame(body)
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
        """Send one frame and wait for the next, without an event loop; TimeoutError, or errors as of `receive`."""
        deadline = time.monotonic() + timeout_s
        self._frame(body)
        while (answer := self._whole(limit)) is None:
            if (is_sent := self._sent()) and self._took():
                continue
            left, own = max(0.0, deadline - time.monotonic()), [self._socket]
            if not any(select.select(own, [] if is_sent else own, [], left)):
                raise TimeoutError
        return answer

    def end(self) -> None:
        """Close this end for sending: the worker reads end-of-file after the last frame."""
        self._shut(socket.SHUT_WR)

    def cut(self) -> None:
        """Break the connection at once; a waiting `receive` raises EOFError."""
        self._shut(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket; no task may be waiting for a frame."""
        self._socket.close()

    def _shut(self, how: int) -> None:
        with suppress(OSError):  # the other end or this one is closed already
            self._socket.shutdown(how)

    def _frame(self, body: bytes) -> None:
        head = HEADER.pack(len(body))
        # Send a small frame in one piece, since each piece wakes the other end; do not copy a large one.
        self._unsent += map(memoryview, [head + body] if len(body) < _PART else [head, body])

    def _sent(self) -> bool:
        with suppress(BlockingIOError):
            while self._unsent:
                part = self._unsent[0]
                self._unsent[0] = part[self._socket.send(part) :]
                if not self._unsent[0]:
                    self._unsent.popleft()
        return not self._unsent

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
        descriptor, ready = self._socket.fileno(), asyncio.Event()
        add(descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            if self._socket.fileno() >= 0:  # another file may have the number by now
                remove(descriptor)


def send(channel: socket.socket, body: bytes) -> None:
    """Send one frame."""
    channel.sendall(HEADER.pack(len(body)) + body)  # in one piece: each piece wakes the other end


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


class Output:
    """The latest output of a process, read from a pipe."""

    def __init__(self, most: int) -> None:
        """Keep the last `most` bytes; opens no pipe yet."""
        self._most, self._kept, self._pipe = most, bytearray(), -1
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Context manager with the descriptor for `Server.fork`, closed afterwards, since the process has a copy."""
        self._pipe, write = os.pipe()
        os.set_blocking(self._pipe, False)
        try:
            yield write
        except BaseException:
            self.close()
            raise
        finally:
            os.close(write)

    def watch(self, busy_s: float = DRAIN_S) -> None:
        """Read on the running event loop until `stop`: every `busy_s` while there is output, else every `DRAIN_S`."""
        pause = busy_s if self.read() else DRAIN_S
        self._timer = asyncio.get_running_loop().call_later(pause, self.watch, busy_s)

    def stop(self) -> None:
        """Stop reading."""
        if self._timer is not None:
            self._timer.cancel()

    def read(self) -> bool:
        """Read at most 1 MiB of the available output; returns whether there was any."""
        before = len(self._kept)
        with suppress(OSError):
            for _ in range(16):
                if not (chunk := os.read(self._pipe, 1 << 16)):
                    break
                self._kept += chunk
        is_more = len(self._kept) > before
        del self._kept[: -self._most]
        return is_more

    def text(self) -> str:
        """Return the kept output."""
        self.read()
        return self._kept.decode(errors="replace")

    def printed(self) -> str:
        """Return the kept output as the end of an error text; empty if it is blank."""
        text = self.text().strip()
        return f"\nit printed:\n{text}" if text else ""

    def clear(self) -> None:
        """Discard the output so far."""
        self.read()
        self._kept.clear()

    def close(self) -> None:
        """Close the pipe; idempotent."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


class Forked:
    """One process that answers calls over `channel`."""

    def __init__(
        self, leash: socket.socket, own: socket.socket, last_words: Callable[[], str], limits: tuple[int | None, int]
    ) -> None:
        """Take over the driver's ends; use `Server.fork`."""
        leash.setblocking(False)
        self.channel = Channel(own)
        """Sends and receives frames."""
        self.pid = 0
        """Process id, also of its session and process group; 0 until it is known."""
        self.code: int | None = None
        """Exit code, negative for a signal; None while the process runs, or if its server ended first."""
        self.cause: tuple[str, str] | None = None
        """Reason ("memory", "processes", "timeout", ...) and text, if the process was killed for one."""
        self._leash, self._last_words, self._limits = leash, last_words, limits
        self._is_over = False
        self._errno = 0
        self._calls = 0
        self._waiting: list[asyncio.Future[None]] = []

    async def call(self, body: bytes, limit: int | None = None) -> memoryview:
        """Send a call and wait for its answer. Skips answers to earlier, cancelled calls.

        Raises:
            EOFError: the process ended. It is killed for closing its connection, for a frame that answers no call, and
                for an answer of more than `limit` bytes.
        """
        if self.is_over:
            raise EOFError
        self._calls += 1
        watching = self._watch()
        try:
            await self.channel.send(NUMBER.pack(self._calls) + body)
            while True:
                frame = memoryview(await self.channel.receive(limit))
                number = int.from_bytes(frame[: NUMBER.size], "big")
                if number == self._calls:
                    return frame[NUMBER.size :]
                if number > self._calls:
                    self.kill("contract", "something other than its answer was written to its socket")
                    raise EOFError
        except TooLong as error:
            self.kill("output", f"it answered with {error.args[0]} bytes; {limit} are allowed")
            raise EOFError from None
        except (EOFError, OSError):
            await self.see_end("died", "it closed its connection")
            raise EOFError from None
        finally:
            self._unwatch(watching)

    @property
    def is_over(self) -> bool:
        """Whether the process has ended; all its descendants then got a SIGKILL."""
        self._read_notes()
        return self._is_over

    @property
    def how(self) -> str:
        """How the process ended, as "exit code 1"."""
        if self.cause is not None:
            return self.cause[1]
        if self._errno:
            return f"it could not be started: {os.strerror(self._errno)}"
        if self.code is None and (words := self._last_words()):
            return f"{how_it_ended(None)}; that printed:\n{words}"
        return how_it_ended(self.code)

    def kill(self, reason: str = "", detail: str = "") -> None:
        """Kill the process and its descendants; the first reason becomes its `cause`."""
        if reason and self.cause is None:
            self.cause = reason, detail
        with suppress(OSError):
            self._leash.shutdown(socket.SHUT_WR)

    async def ended(self) -> None:
        """Wait until the process has ended; several tasks may wait."""
        while not self.is_over:
            waiting = self._watch()
            try:
                await waiting
            finally:
                self._unwatch(waiting)

    async def see_end(self, reason: str, detail: str, grace_s: float = DEATH_S) -> None:
        """Wait until the process has ended. Kills it after `grace_s` seconds; stops waiting after `DEATH_S` more."""
        for seconds in (grace_s, DEATH_S):
            try:
                async with asyncio.timeout(seconds):
                    await self.ended()
                return
            except TimeoutError:
                self.kill(reason, detail)
        self._forget()

    def close(self) -> None:
        """Kill the process and close its files; no task may be waiting for a frame."""
        self.kill()
        self._forget()
        self.channel.close()

    def _forget(self) -> None:
        self._is_over = True
        if self._waiting and self._leash.fileno() >= 0:
            self._waiting[0].get_loop().remove_reader(self._leash.fileno())
            self._wake()
        self._leash.close()

    def _watch(self) -> "asyncio.Future[None]":
        """Return a future that is done at the next message of the server."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiting)
        loop.add_reader(self._leash.fileno(), self._wake)
        return waiting

    def _unwatch(self, waiting: "asyncio.Future[None]") -> None:
        self._waiting.remove(waiting)
        if not self._waiting and self._leash.fileno() >= 0:
            waiting.get_loop().remove_reader(self._leash.fileno())

    def _wake(self) -> None:
        if self.is_over:
            self.channel.cut()  # a descendant may hold the other end open
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def _read_notes(self) -> None:
        while not self._is_over:
            try:
                note = self._leash.recv(NOTE.size)
            except BlockingIOError:
                return
            except OSError:
                note = b""
            if len(note) == NOTE.size:
                self._note(*NOTE.unpack(note))
                continue
            self._forget()  # the server has ended, and so has the process; its process group may still run
            if self.pid:
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)

    def _note(self, number: int, excess: int) -> None:
        if not self.pid and number > 0:
            self.pid = number
            return
        if self.pid:
            self.code = number
        else:
            self._errno = -number
        memory_mb, most_processes = self._limits
        if excess > 0:
            self.cause = self.cause or ("memory", f"it and its processes use {excess} MiB of {memory_mb}")
        elif excess < 0:
            self.cause = self.cause or ("processes", f"it has started more than {most_processes} processes")
        self._forget()


def how_it_ended(code: int | None) -> str:
    """Describe an exit code: exit code 7, killed by SIGSEGV. None: the server of the process ended first."""
    if code is None:
        return "gone with the process that started it"
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # most real-time signals have no name
        name = f"signal {-code}"
    return f"killed by {name}{', perhaps for want of memory' if code == -signal.SIGKILL else ''}"
