"""The fork server: one process with slow imports done, which forks workers and ends everything that they start.

Workers start fast and share the memory of preloaded modules. The server also kills all workers and their children
when the driver exits or crashes.

Example:

    server = Server(preload=("torch",), environment={"OMP_NUM_THREADS": "1"})
    process = server.fork("slime_core.processes.worker:main", title="trainer 0", output=log.fileno())
    await process.channel.send(b"...")          # `main(channel, lifeline)` gets the other ends, as numbers
    process.kill()
    await process.ended()
"""

import asyncio
import importlib
import json
import os
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn, Self

from slime_core.processes.channel import HEADER, Channel
from slime_core.processes.limits import children, die_with_parent, end_tree, keep_descendants
from slime_core.sample import Json

# Forked: the driver's handle of a process that a server has forked for it.

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


# Server: one process that imports what takes time, forks workers that have it already, and sees to their end.

DRIVER_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""What asks a run to stop: for the driver alone to answer."""
ENVIRONMENT = {
    # Workers are many and of one core each; a pool of threads in each would also count against its memory.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
}
"""What every worker has, unless it is asked otherwise; libraries read some of it when they are imported."""
END_S = 5.0
"""Seconds that a server has to end all workers."""
LONGEST_TAIL = 4_000
_MAIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from slime_core.processes.server import main; main(int(sys.argv[2]), json.loads(sys.argv[3]))"
)


class Server:
    """Starts its process when the first worker is asked for, and another should it die."""

    def __init__(self, *, preload: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        """Nothing is started yet.

        Args:
            preload: modules to import before anything is forked; one that cannot be imported is left to the workers.
            environment: variables, besides the driver's and `ENVIRONMENT`, that are set before that.
        """
        self._preload = list(preload)
        self._environment = ENVIRONMENT | dict(environment or {})
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._end = weakref.finalize(self, _nothing)

    def fork(self, entry: str, *, title: str, output: int, environment: Mapping[str, str] | None = None) -> Forked:
        """Have a process forked that calls `entry`, `module:function`, in a session of its own.

        It has the driver's environment, folder and `sys.path` as they are now; `environment` comes on top. What it
        prints goes to the descriptor `output`, which stays the caller's. Waits for no import.

        Raises:
            OSError: the system has no room for another process.
        """
        request = {
            "entry": entry,
            "title": title,
            "path": sys.path,
            "folder": os.getcwd(),  # noqa: PTH109  # as text
            "environment": {**os.environ, **self._environment, **(environment or {})},
        }
        body = json.dumps(request).encode()
        with self._lock:
            if self._running is None or self._running.process.poll() is not None:
                self._start()
            assert self._running is not None, "started just now"
            return Forked.ask(self._running.control, body, output, self._running.last_words)

    def close(self) -> None:
        """End every worker and what they started; does nothing the second time."""
        with self._lock:
            self._end()
            self._running = None

    def _start(self) -> None:
        self._end()
        control, theirs = socket.socketpair()
        output = tempfile.TemporaryFile()  # noqa: SIM115  # open for as long as the process
        # The process inherits what this thread blocks: a Ctrl-C while it starts must not end it.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, DRIVER_SIGNALS)
        arguments = [json.dumps(sys.path), str(theirs.fileno()), json.dumps(self._preload)]
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _MAIN, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**os.environ, **self._environment},
            )
        except BaseException:
            control.close()
            output.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            theirs.close()
        self._running = _Running(process, control, output)
        self._end = weakref.finalize(self, self._running.end)


@dataclass(frozen=True, slots=True)
class _Running:
    """A server process."""

    process: "subprocess.Popen[bytes]"
    control: socket.socket
    output: IO[bytes]

    def end(self) -> None:
        """End it, with all workers."""
        self.control.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.output.close()

    def last_words(self) -> str:
        """What it printed last, if it is gone."""
        with suppress(OSError, ValueError):
            if self.process.poll() is not None:
                self.output.seek(0, os.SEEK_END)
                self.output.seek(max(0, self.output.tell() - LONGEST_TAIL))
                return self.output.read().decode(errors="replace").strip()
        return ""


def _nothing() -> None:
    """Do nothing: there is no process to end yet."""


_SHARED: dict[tuple[int, tuple[str, ...], tuple[tuple[str, str], ...]], Server] = {}


def shared_server(preload: Sequence[str], environment: Mapping[str, str]) -> Server:
    """The server of this process for these modules and variables: what takes long to import is imported once."""
    key = (os.getpid(), tuple(preload), tuple(sorted(environment.items())))
    if key not in _SHARED:
        _SHARED[key] = Server(preload=preload, environment=environment)
    return _SHARED[key]


# The server process: forks on request, reaps, and ends what workers leave behind. Started by `Server` alone.

LONGEST_TITLE = 15
"""Characters of a process's name that Linux keeps."""


def main(control_fd: int, preload: Sequence[str]) -> NoReturn:
    """Serve until the driver is gone."""
    os.set_inheritable(control_fd, False)
    keep_descendants()
    before = dict(os.environ)
    for module in preload:
        try:
            importlib.import_module(module)
        except BaseException:  # a worker that needs it says so where its run looks
            traceback.print_exc()
    set_by_modules = {name: value for name, value in os.environ.items() if name not in before}
    Nursery(socket.socket(fileno=control_fd), set_by_modules).serve()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(0)  # its driver waits for it, and to take apart what was imported takes seconds


class Nursery:
    """The workers that this process has forked."""

    def __init__(self, control: socket.socket, environment: Mapping[str, str]) -> None:
        """None yet; `environment` is what modules have set when they were imported, for libraries that read it late."""
        self._control, self._environment = control, environment
        self._leashes: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._wakeup = socket.socketpair()
        for each in (self._woken, self._wakeup):
            each.setblocking(False)
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._selector.register(control, selectors.EVENT_READ)

    def serve(self) -> None:
        """Fork, end and reap until the driver is gone; then end all."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._control:
                    if not self._accept():
                        self._end_all()
                        return
                elif key.fileobj is self._woken:
                    with suppress(BlockingIOError):
                        self._woken.recv(1 << 12)
                else:
                    self._let_go(int(key.data))
            self._reap(os.WNOHANG)

    def _accept(self) -> bool:
        """Take one request; whether the driver is still there."""
        try:
            asked, (leash_fd, *_), _, _ = socket.recv_fds(self._control, 1, 1)
        except (OSError, ValueError):
            return False
        leash = socket.socket(fileno=leash_fd)
        try:
            header, fds, _, _ = socket.recv_fds(leash, HEADER.size, 3)
            body = leash.recv(HEADER.unpack(header)[0], socket.MSG_WAITALL)
            request: dict[str, Json] = json.loads(body)
        except (OSError, ValueError):  # the driver was killed in the middle of it
            leash.close()
            return bool(asked)
        try:
            pid = os.fork()
        except OSError as error:
            _tell(leash, -(error.errno or 1))
            leash.close()
        else:
            if pid == 0:
                self._become(request, leash, fds)
            self._leashes[pid] = leash
            self._selector.register(leash, selectors.EVENT_READ, pid)
            _tell(leash, pid)
        for each in fds:
            os.close(each)
        return True

    def _become(self, request: dict[str, Json], leash: socket.socket, fds: Sequence[int]) -> NoReturn:
        """What the child does from the fork to its end."""
        code = 1
        try:
            os.setsid()
            die_with_parent()
            keep_descendants()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            for each in (leash, self._control, self._woken, self._wakeup, *self._leashes.values()):
                each.close()
            output, *others = fds
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            for descriptor in others:
                os.set_inheritable(descriptor, False)
            _dress(request, self._environment)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            _load(str(request["entry"]))(*others)
            code = 0
        except SystemExit as leaving:
            code = _code_of(leaving)
        except BaseException:
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            os._exit(code)

    def _let_go(self, pid: int) -> None:
        """The driver closed its end of a leash: kill that worker."""
        leash = self._leashes[pid]
        with suppress(BlockingIOError, OSError):
            if leash.recv(1, socket.MSG_DONTWAIT):
                return
        self._selector.unregister(leash)
        end_tree(pid)

    def _reap(self, options: int) -> bool:
        """See who has ended, and end what they leave; whether anybody is left."""
        dead: list[tuple[socket.socket, int]] = []
        pid = -1
        while pid:
            try:
                pid, status = os.waitpid(-1, options)
            except ChildProcessError:
                break
            options = os.WNOHANG
            leash = self._leashes.pop(pid, None)
            if leash is not None:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                with suppress(KeyError):
                    self._selector.unregister(leash)
                dead.append((leash, os.waitstatus_to_exitcode(status)))
        for each in children(os.getpid()):
            if each not in self._leashes:  # an orphan of a worker that is gone, or of an orphan
                end_tree(each)
        for leash, code in dead:
            _tell(leash, code)
            leash.close()
        return pid == 0

    def _end_all(self) -> None:
        for pid in tuple(self._leashes):
            end_tree(pid)
        while self._reap(0):
            continue


def _dress(request: dict[str, Json], defaults: Mapping[str, str]) -> None:
    """Take on the driver's directory and environment; a variable that the driver does not set has its default."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(str(request["title"])[:LONGEST_TITLE])
    environment, path = request["environment"], request["path"]
    assert isinstance(environment, dict), "the driver's"
    assert isinstance(path, list), "the driver's"
    os.environ.clear()
    os.environ.update({**defaults, **{name: str(value) for name, value in environment.items()}})
    sys.path[:] = map(str, path)
    importlib.invalidate_caches()
    os.chdir(str(request["folder"]))


def _load(entry: str) -> Callable[..., object]:
    module, _, name = entry.partition(":")
    found: Callable[..., object] = getattr(importlib.import_module(module), name)
    return found


def _code_of(leaving: SystemExit) -> int:
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    print(leaving.code, file=sys.stderr)  # noqa: T201  # as Python does
    return 1


def _tell(leash: socket.socket, number: int) -> None:
    with suppress(OSError):  # the driver does not want to know
        leash.sendall(TOLD.pack(number))


def _ignore(number: int, frame: object) -> None:
    """SIGCHLD wakes the selector by the descriptor that was set for it."""
