"""The driver's handle of a forked process: calls, output, and its end.

The process answers one call at a time over a socket, its channel. Its server reports the process id and the exit over
another one, the lifeline, and kills the process with all its descendants when the driver closes the lifeline. A channel
carries frames: an 8-byte length, followed by the payload.

Example:

    process = server.fork("slime_core.processes.worker:serve", title="trainer 0", output=log.fileno())
    answer = await process.call(b"...")
    process.kill()
    await process.wait()
"""

import asyncio
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

HEADER = struct.Struct(">Q")
"""Header of a frame: the length of its payload."""
REPORT = struct.Struct(">ii")
"""A message of the server on the lifeline. First: process id or a negative errno, and 0. At the end: exit code, and
the exceeded limit: MiB of memory, or a negative number of processes; else 0."""
DEATH_S = 10.0
"""Seconds that a process may take to end after it was killed or has closed its connection."""
DRAIN_S = 0.05
"""Seconds between two reads of a process's output, so that much output slows the process and not the driver."""
_PART = 1 << 20
"""Bytes read in a row before other tasks run."""


class TooLong(Exception):
    """A frame is longer than the limit; `args[0]` is its length."""


def send(channel: socket.socket, body: bytes) -> None:
    """Send one frame."""
    channel.sendall(HEADER.pack(len(body)) + body)  # in one piece: each piece wakes the other end


def receive(channel: socket.socket, limit: int | None = None) -> bytearray:
    """Wait for the next frame; EOFError if the other end is closed, TooLong for more than `limit` bytes."""
    length = _length(_exactly(channel, HEADER.size), limit)
    return _exactly(channel, length)


def _exactly(channel: socket.socket, count: int) -> bytearray:
    frame = bytearray(count)
    view, filled = memoryview(frame), 0
    while filled < count:
        read = channel.recv_into(view[filled:])
        if not read:
            raise EOFError
        filled += read
    return frame


def _length(header: bytes | bytearray, limit: int | None) -> int:
    length: int = HEADER.unpack(header)[0]
    if limit is not None and length > limit:
        raise TooLong(length)
    return length


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
    """One process that answers calls."""

    def __init__(
        self,
        lifeline: socket.socket,
        channel: socket.socket,
        last_words: Callable[[], str],
        limits: tuple[int | None, int],
    ) -> None:
        """Take over the driver's ends; use `Server.fork`."""
        lifeline.setblocking(False)
        channel.setblocking(False)
        self.channel = channel
        """The driver's end of the channel."""
        self.pid = 0
        """Process id, also of its session and process group; 0 until it is known."""
        self.code: int | None = None
        """Exit code, negative for a signal; None while the process runs, or if its server ended first."""
        self.cause: tuple[str, str] | None = None
        """Reason ("memory", "processes", "timeout", ...) and text, if the process was killed for one."""
        self._lifeline, self._last_words, self._limits = lifeline, last_words, limits
        self._has_ended = False
        self._start_errno = 0
        self._waiting: list[asyncio.Future[None]] = []

    async def call(self, body: bytes, limit: int | None = None) -> bytearray:
        """Send a call and wait for its answer. After a cancelled call, kill the process.

        Raises:
            EOFError: the process ended. It is killed for closing its connection, and for an answer of more than `limit`
                bytes.
        """
        if self.has_ended:
            raise EOFError
        with self._watched():
            try:
                await asyncio.get_running_loop().sock_sendall(self.channel, HEADER.pack(len(body)) + body)
                length = _length(await self._receive(HEADER.size), limit)
                return await self._receive(length)
            except TooLong as error:
                self.kill("output", f"it answered with {error.args[0]} bytes; {limit} are allowed")
                raise EOFError from None
            except (EOFError, OSError):
                await self.wait_or_kill("died", "it closed its connection")
                raise EOFError from None

    def call_blocking(self, body: bytes, *, limit: int, timeout_s: float) -> bytearray:
        """Send a call and wait for its answer, without an event loop; TimeoutError, or errors as of `receive`."""
        self.channel.settimeout(timeout_s)
        send(self.channel, body)
        return receive(self.channel, limit)

    async def _receive(self, count: int) -> bytearray:
        loop, frame = asyncio.get_running_loop(), bytearray(count)
        view, filled = memoryview(frame), 0
        while filled < count:
            read = await loop.sock_recv_into(self.channel, view[filled : filled + _PART])
            if not read:
                raise EOFError
            filled += read
            if filled >= _PART:
                await asyncio.sleep(0)
        return frame

    @property
    def is_idle(self) -> bool:
        """Whether the process runs and has sent nothing since its last answer."""
        try:
            self.channel.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return not self.has_ended
        except OSError:
            return False
        return False  # closed, or something other than an answer was written

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended; all its descendants then got a SIGKILL."""
        self._read_reports()
        return self._has_ended

    @property
    def exit_text(self) -> str:
        """How the process ended, as "exit code 1"."""
        if self.cause is not None:
            return self.cause[1]
        if self._start_errno:
            return f"it could not be started: {os.strerror(self._start_errno)}"
        if self.code is None and (words := self._last_words()):
            return f"{describe_exit(None)}; the server printed:\n{words}"
        return describe_exit(self.code)

    def kill(self, reason: str = "", detail: str = "") -> None:
        """Kill the process and its descendants; the first reason becomes its `cause`."""
        if reason and self.cause is None:
            self.cause = reason, detail
        with suppress(OSError):
            self._lifeline.shutdown(socket.SHUT_WR)

    def end_calls(self) -> None:
        """Announce that no more calls follow: the worker reads end-of-file after the last one."""
        self._shut(socket.SHUT_WR)

    def disconnect(self) -> None:
        """Break the connection at once; a call in progress fails."""
        self._shut(socket.SHUT_RDWR)

    def _shut(self, how: int) -> None:
        with suppress(OSError):  # the other end or this one is closed already
            self.channel.shutdown(how)

    async def wait(self) -> None:
        """Wait until the process has ended; several tasks may wait."""
        while not self.has_ended:
            with self._watched() as waiting:
                await waiting

    async def wait_or_kill(self, reason: str, detail: str, grace_s: float = DEATH_S) -> None:
        """Wait until the process has ended. Kills it after `grace_s` seconds; stops waiting after `DEATH_S` more."""
        for seconds in (grace_s, DEATH_S):
            try:
                async with asyncio.timeout(seconds):
                    await self.wait()
                return
            except TimeoutError:
                self.kill(reason, detail)
        self._forget()

    def close(self) -> None:
        """Kill the process and close its files; no call may be in progress."""
        self.kill()
        self._forget()
        self.channel.close()

    def _forget(self) -> None:
        self._has_ended = True
        if self._waiting and self._lifeline.fileno() >= 0:
            self._waiting[0].get_loop().remove_reader(self._lifeline.fileno())
            self._wake()
        self._lifeline.close()

    @contextmanager
    def _watched(self) -> "Iterator[asyncio.Future[None]]":
        """Read the server's messages on the event loop; the future is done at the next one."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiting)
        loop.add_reader(self._lifeline.fileno(), self._wake)
        try:
            yield waiting
        finally:
            self._waiting.remove(waiting)
            if not self._waiting and self._lifeline.fileno() >= 0:
                loop.remove_reader(self._lifeline.fileno())

    def _wake(self) -> None:
        if self.has_ended:
            self.disconnect()  # a descendant may hold the other end open
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def _read_reports(self) -> None:
        while not self._has_ended:
            try:
                report = self._lifeline.recv(REPORT.size)
            except BlockingIOError:
                return
            except OSError:
                report = b""
            if len(report) == REPORT.size:
                self._handle_report(*REPORT.unpack(report))
                continue
            self._forget()  # the server has ended, and so has the process; its process group may still run
            if self.pid:
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)

    def _handle_report(self, number: int, excess: int) -> None:
        if not self.pid and number > 0:
            self.pid = number
            return
        if self.pid:
            self.code = number
        else:
            self._start_errno = -number
        memory_mb, most_processes = self._limits
        if excess > 0:
            self.cause = self.cause or ("memory", f"it and its processes use {excess} MiB of {memory_mb}")
        elif excess < 0:
            self.cause = self.cause or ("processes", f"it has started more than {most_processes} processes")
        self._forget()


def describe_exit(code: int | None) -> str:
    """Describe an exit code: exit code 7, killed by SIGSEGV. None: the server of the process ended first."""
    if code is None:
        return "ended with its fork server"
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # most real-time signals have no name
        name = f"signal {-code}"
    return f"killed by {name}{', possibly out of memory' if code == -signal.SIGKILL else ''}"
