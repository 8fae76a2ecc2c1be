"""Forked: the driver's handle of a process that a server has forked for it.

Between the two lies the leash, a socket on which the server tells the process's id and how it ended; closing the
driver's end has the process killed, with all that it has started.
"""

import asyncio
import os
import select
import signal
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from slime_core.processes.channel import HEADER, Channel

TOLD = struct.Struct(">i")
"""A number on the leash: first the id of the process, or an error's negative number; then its exit code."""


class Forked:
    """One process, which may be asked for things over `channel`."""

    def __init__(self, leash: socket.socket, own: socket.socket, lifeline: int, last_words: Callable[[], str]) -> None:
        """Take over the driver's ends; use `Server.fork`."""
        leash.setblocking(False)
        self.channel = Channel(own)
        """Frames to and from the process."""
        self.pid = 0
        """Of the process, its session and its group; 0 until it is told."""
        self.code: int | None = None
        """Exit code, negative for a signal; None while it runs, and if nobody is left to tell."""
        self._leash, self._lifeline, self._last_words = leash, lifeline, last_words
        self._heard = b""
        self._is_over = False
        self._error = 0
        self._waiting: list[asyncio.Future[None]] = []

    @classmethod
    def ask(cls, control: socket.socket, request: bytes, output: int, last_words: Callable[[], str]) -> Self:
        """Ask a server for a process; the answer comes on the leash.

        Raises:
            OSError: no more descriptors, or the server is gone.
        """
        theirs: list[int] = []
        leash, far = socket.socketpair()
        own, channel = socket.socketpair()
        lifeline_end = -1
        try:
            theirs += (far.detach(), channel.detach())
            lifeline, lifeline_end = os.pipe()
            theirs.append(lifeline)
            socket.send_fds(control, [b"+"], [theirs[0]])
            socket.send_fds(leash, [HEADER.pack(len(request))], [output, theirs[1], lifeline])
            leash.sendall(request)
        except BaseException:
            leash.close()
            own.close()
            if lifeline_end >= 0:
                os.close(lifeline_end)
            raise
        finally:
            for each in theirs:
                os.close(each)
        return cls(leash, own, lifeline_end, last_words)

    @property
    def is_over(self) -> bool:
        """Whether the process has ended, and all that it had started was sent the signal to."""
        self._listen()
        return self._is_over

    @property
    def how(self) -> str:
        """How it ended, in words."""
        if self._error:
            return f"it could not be started: {os.strerror(self._error)}"
        if self.code is None and (words := self._last_words()):
            return f"{how_it_ended(None)}; that printed:\n{words}"
        return how_it_ended(self.code)

    def kill(self) -> None:
        """End it and all that it started, at once."""
        with suppress(OSError):
            self._leash.shutdown(socket.SHUT_WR)

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; whether it came."""
        while not self.is_over:
            if not select.select([self._leash], [], [], timeout_s)[0]:
                return False
        return True

    async def ended(self) -> None:
        """Wait for its end; several callers may wait at once."""
        loop = asyncio.get_running_loop()
        while not self.is_over:
            waiting: asyncio.Future[None] = loop.create_future()
            self._waiting.append(waiting)
            loop.add_reader(self._leash.fileno(), self._wake)
            try:
                await waiting
            finally:
                self._waiting.remove(waiting)
                if not self._waiting and self._leash.fileno() >= 0:
                    loop.remove_reader(self._leash.fileno())

    def close(self) -> None:
        """Kill it, and let go of all files but the leash; nobody may be waiting for a frame of it."""
        self.kill()
        self.channel.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def forget(self) -> None:
        """Wait for its end no longer, and close the leash."""
        self._is_over = True
        if self._waiting and self._leash.fileno() >= 0:
            self._waiting[0].get_loop().remove_reader(self._leash.fileno())
            self._wake()
        self._leash.close()

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def _listen(self) -> None:
        """Read what the server has told."""
        while not self._is_over:
            try:
                part = self._leash.recv(TOLD.size - len(self._heard))
            except BlockingIOError:
                return
            except OSError:
                part = b""
            self._heard += part
            if not part:
                self._lose()
            elif len(self._heard) == TOLD.size:
                self._note(*TOLD.unpack(self._heard))
                self._heard = b""

    def _note(self, number: int) -> None:
        if self.pid:
            self.code = number
            self.forget()
        elif number > 0:
            self.pid = number
        else:
            self._error = -number
            self.forget()

    def _lose(self) -> None:
        """The server is gone, and the process with it: kill what the process has started, which is not gone."""
        self.forget()
        if self.pid:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


def how_it_ended(code: int | None) -> str:
    """In words: exit code 7, killed by SIGSEGV, killed by signal 40.

    `code` is as `subprocess` has it, negative for a signal; None: nobody can tell any more.
    """
    if code is None:
        return "gone with the process that started it"
    if code >= 0:
        return f"exit code {code}"
    hint = ", perhaps for want of memory" if code == -signal.SIGKILL else ""
    return f"killed by {_name(-code)}{hint}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have none
        return f"signal {number}"
