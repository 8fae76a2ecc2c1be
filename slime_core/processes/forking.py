"""The server process: forks on request, reaps, and ends what workers leave behind. Started by `Server` alone.

It has one thread, holds nothing of the run's, and does not outlive its driver by more than it takes to end all others.
"""

import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from slime_core.processes.channel import HEADER
from slime_core.processes.forked import TOLD
from slime_core.processes.leash import die_with_parent, keep_descendants
from slime_core.processes.tree import children, end_tree
from slime_core.sample import Json

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
