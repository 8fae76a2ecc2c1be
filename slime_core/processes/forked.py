"""A forked process, as the driver sees it: calls over its channel, and its end over its leash.

The process answers one call at a time. Its server reports the process id and the end, and kills the process with all
its descendants when the driver closes the leash.

Example:

    process = server.fork("slime_core.processes.worker:serve_group", title="trainer 0", output=log.fileno())
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
from collections.abc import Callable
from contextlib import suppress

from slime_core.processes.channel import Channel, TooLong

NOTE = struct.Struct(">ii")
"""A note of the server on the leash. First: process id or a negative errno, and 0. At the end: exit code, and what was
over a limit: MiB of memory, or a negative number of processes; else 0."""
NUMBER = struct.Struct(">Q")
"""The number of a call, before its body and before its answer."""
DEATH_S = 10.0
"""Seconds within which a process ends that was killed, or that closed its connection."""


class Forked:
    """One process that answers calls over `channel`."""

    def __init__(
        self, leash: socket.socket, own: socket.socket, last_words: Callable[[], str], limits: tuple[int | None, int]
    ) -> None:
        """Take over the driver's ends; use `Server.fork`."""
        leash.setblocking(False)
        self.channel = Channel(own)
        """Frames to and from the process."""
        self.pid = 0
        """Process id, which is also its session and its group; 0 until it is known."""
        self.code: int | None = None
        """Exit code, negative for a signal; None while the process runs, and if its server ended first."""
        self.cause: tuple[str, str] | None = None
        """Reason ("memory", "processes", "timeout", ...) and text, if it was killed for one."""
        self._leash, self._last_words, self._limits = leash, last_words, limits
        self._unread = b""
        self._is_over = False
        self._errno = 0
        self._calls = 0
        self._waiting: list[asyncio.Future[None]] = []

    async def call(self, body: bytes, limit: int | None = None) -> memoryview:
        """Send a call and wait for its answer. Answers to earlier calls, which were cancelled, are skipped.

        Raises:
            EOFError: the process has ended; or was killed, for it closed its connection, sent a frame that answers no
                call, or answered with more than `limit` bytes.
        """
        if self.is_over:
            raise EOFError
        self._calls += 1
        watching = self._watch()
        try:
            await self.channel.send(NUMBER.pack(self._calls), body)
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
        """Whether the process has ended; then all its descendants were sent SIGKILL."""
        self._read_notes()
        return self._is_over

    @property
    def how(self) -> str:
        """How it ended: "exit code 1"."""
        if self.cause is not None:
            return self.cause[1]
        if self._errno:
            return f"it could not be started: {os.strerror(self._errno)}"
        if self.code is None and (words := self._last_words()):
            return f"{how_it_ended(None)}; that printed:\n{words}"
        return how_it_ended(self.code)

    def kill(self, reason: str = "", detail: str = "") -> None:
        """Kill it and its descendants; the first reason becomes its `cause`."""
        if reason and self.cause is None:
            self.cause = reason, detail
        with suppress(OSError):
            self._leash.shutdown(socket.SHUT_WR)

    def wait(self, timeout_s: float) -> bool:
        """Block until it has ended; returns whether it has."""
        while not self.is_over:
            if not select.select([self._leash], [], [], timeout_s)[0]:
                return False
        return True

    async def ended(self) -> None:
        """Wait until it has ended; several tasks may wait at once."""
        while not self.is_over:
            waiting = self._watch()
            try:
                await waiting
            finally:
                self._unwatch(waiting)

    async def see_end(self, reason: str, detail: str, grace_s: float = DEATH_S) -> None:
        """Wait until it has ended; kill it after `grace_s` seconds."""
        for seconds in (grace_s, DEATH_S):
            try:
                async with asyncio.timeout(seconds):
                    await self.ended()
                return
            except TimeoutError:
                self.kill(reason, detail)

    def close(self) -> None:
        """Kill it and close all files but the leash; no task may be waiting for a frame."""
        self.kill()
        self.channel.close()

    def forget(self) -> None:
        """Stop waiting for its end and close the leash."""
        self._is_over = True
        if self._waiting and self._leash.fileno() >= 0:
            self._waiting[0].get_loop().remove_reader(self._leash.fileno())
            self._wake()
        self._leash.close()

    def _watch(self) -> "asyncio.Future[None]":
        """Read notes as they arrive; the future is done after each."""
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
            self.channel.cut()  # a descendant may still hold the other end open
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def _read_notes(self) -> None:
        while not self._is_over:
            try:
                part = self._leash.recv(NOTE.size - len(self._unread))
            except BlockingIOError:
                return
            except OSError:
                part = b""
            self._unread += part
            if not part:
                self.forget()
                if self.pid:  # its server has ended, and the process with it; its group may still run
                    with suppress(ProcessLookupError):
                        os.killpg(self.pid, signal.SIGKILL)
            elif len(self._unread) == NOTE.size:
                self._note(*NOTE.unpack(self._unread))
                self._unread = b""

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
        self.forget()


def how_it_ended(code: int | None) -> str:
    """In words: exit code 7, killed by SIGSEGV. None: the server that started it ended first."""
    if code is None:
        return "gone with the process that started it"
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # most real-time signals have none
        name = f"signal {-code}"
    return f"killed by {name}{', perhaps for want of memory' if code == -signal.SIGKILL else ''}"
