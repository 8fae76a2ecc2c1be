"""The fork server: a process with slow imports done, which forks workers, limits them, and ends their descendants.

Workers start fast and share the memory of preloaded modules. The server kills a worker with all its descendants when
the driver closes the worker's lifeline, when the worker exceeds its limits, and when the driver ends or crashes.

Example:

    server = Server(preload=("torch",), environment={"OMP_NUM_THREADS": "1"})
    process = server.fork("slime_core.processes.worker:serve", title="trainer 0", output=log.fileno())
    server.close()      # kills all processes that it forked
"""

import importlib
import json
import math
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

from slime_core.processes.forked import HEADER, REPORT, Forked
from slime_core.processes.limits import children, descendants, die_with_parent, end_tree, keep_descendants, private_mb
from slime_core.sample import Json

# The driver's handle of a server.

DRIVER_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""Signals that stop a run; only the driver handles them."""
ENVIRONMENT = {
    # Each worker has one core; a thread pool in each would also count against its memory limit.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
}
"""Default variables of every worker; some libraries read them at import."""
END_S = 5.0
"""Seconds that a server has to end all workers."""
LONGEST_TAIL = 4_000
_MAIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from slime_core.processes.server import main; main(int(sys.argv[2]), json.loads(sys.argv[3]))"
)


class Server:
    """Starts its process with the first worker, and again if it died."""

    def __init__(self, *, preload: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        """Start nothing yet.

        Args:
            preload: modules to import before any fork; workers that need a failed import report the error.
            environment: variables for these imports, added to the driver's and `ENVIRONMENT`.
        """
        self._preload = list(preload)
        self._environment = ENVIRONMENT | dict(environment or {})
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._end = weakref.finalize(self, lambda: None)

    def fork(
        self,
        entry: str,
        *,
        title: str,
        output: int,
        errors: int | None = None,
        environment: Mapping[str, str] | None = None,
        memory_mb: int | None = None,
        most_processes: int = 1_000,
        arguments: Sequence[Json] = (),
    ) -> Forked:
        """Fork a process that calls `entry` ("module:function") with its channel's descriptor and `arguments`.

        The process leads its own session, with the driver's current environment, folder and `sys.path`. Returns before
        any import.

        Args:
            entry: function to call; the process ends when it returns.
            title: name of the process.
            output: descriptor for its standard output; the caller keeps its own copy.
            errors: descriptor for its standard error; None: `output`.
            environment: variables to add to the driver's.
            memory_mb: MiB for the process and all descendants; None: no limit on memory or processes.
            most_processes: limit on its processes, with descendants.
            arguments: more arguments for `entry`.

        Raises:
            OSError: the system cannot start another process.
        """
        request = {
            "entry": entry,
            "title": title,
            "path": sys.path,
            "folder": os.getcwd(),  # noqa: PTH109  # as text
            "environment": {**os.environ, **self._environment, **(environment or {})},
            "memory_mb": memory_mb,
            "most_processes": most_processes,
            "arguments": arguments,
        }
        body, outputs = json.dumps(request).encode(), [output, output if errors is None else errors]
        with self._lock:
            running = self._running
            if running is None or running.process.poll() is not None:
                running = self._start()
            lifeline, far = socket.socketpair()
            own, channel = socket.socketpair()
            with far, channel:
                try:
                    socket.send_fds(running.control, [b"+"], [far.fileno()])
                    socket.send_fds(lifeline, [HEADER.pack(len(body))], [*outputs, channel.fileno()])
                    lifeline.sendall(body)
                except BaseException:
                    lifeline.close()
                    own.close()
                    raise
        return Forked(lifeline, own, running.last_words, (memory_mb, most_processes))

    def close(self) -> None:
        """Kill every worker and its descendants; idempotent."""
        with self._lock:
            self._end()
            self._running = None

    def _start(self) -> "_Running":
        self._end()
        control, theirs = socket.socketpair()
        output = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the process runs
        # The process inherits the blocked signals of this thread, so that a Ctrl-C does not end it while it starts.
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
        self._running = running = _Running(process, control, output)
        self._end = weakref.finalize(self, running.end)
        return running


@dataclass(frozen=True, slots=True)
class _Running:
    process: "subprocess.Popen[bytes]"
    control: socket.socket
    output: IO[bytes]

    def end(self) -> None:
        self.control.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.output.close()

    def last_words(self) -> str:
        with suppress(OSError, ValueError):
            if self.process.poll() is not None:
                self.output.seek(0, os.SEEK_END)
                self.output.seek(max(0, self.output.tell() - LONGEST_TAIL))
                return self.output.read().decode(errors="replace").strip()
        return ""


def shared_server(preload: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> Server:
    """Return this process's server for these modules and variables, so that slow imports happen once."""
    return _server(os.getpid(), tuple(preload), tuple(sorted((environment or {}).items())))


@cache
def _server(pid: int, preload: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> Server:
    return Server(preload=preload, environment=dict(environment))


# The server process, which only `Server` starts.

LONGEST_TITLE = 15
"""Characters of a process name that Linux keeps."""
CHECK_S = 0.25
"""Seconds between two measurements of limited processes."""
LEFTOVERS_S = 5.0
"""Longest wait for killed descendants before reporting the exit, in seconds."""


def main(control_fd: int, preload: Sequence[str]) -> NoReturn:
    """Serve until the driver has ended."""
    os.set_inheritable(control_fd, False)
    keep_descendants()
    before = dict(os.environ)
    for module in preload:
        try:
            importlib.import_module(module)
        except BaseException:  # a worker that needs the module reports the error
            traceback.print_exc()
    set_by_modules = {name: value for name, value in os.environ.items() if name not in before}
    _ForkServer(socket.socket(fileno=control_fd), set_by_modules).serve()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(0)  # the driver waits, and a shutdown of the interpreter takes seconds after heavy imports


@dataclass(slots=True)
class _Child:
    lifeline: socket.socket
    memory_mb: int | None
    most_processes: int
    excess: int = 0


class _ForkServer:
    """The server's forked processes; handles requests from `control`."""

    def __init__(self, control: socket.socket, set_by_modules: Mapping[str, str]) -> None:
        self._control, self._set_by_modules = control, set_by_modules
        self._children: dict[int, _Child] = {}
        self._ended: list[tuple[_Child, int, float]] = []
        self._next_check = 0.0
        self._selector = selectors.DefaultSelector()
        self._woken, self._wakeup = socket.socketpair()
        for each in (self._woken, self._wakeup):
            each.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # wakes the selector, by the wakeup descriptor
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._selector.register(control, selectors.EVENT_READ)

    def serve(self) -> None:
        while True:
            limited = any(child.memory_mb is not None for child in self._children.values())
            for key, _ in self._selector.select(CHECK_S if limited or self._ended else None):
                if key.fileobj is self._control:
                    if not self._accept():
                        for pid in tuple(self._children):
                            end_tree(pid)
                        while self._reap(0):
                            continue
                        return
                elif key.fileobj is self._woken:
                    with suppress(BlockingIOError):
                        self._woken.recv(1 << 12)
                else:
                    self._end_if_released(int(key.data))
            self._reap(os.WNOHANG)
            if limited and time.monotonic() >= self._next_check:
                self._check_limits()
                self._next_check = time.monotonic() + CHECK_S

    def _accept(self) -> bool:  # whether the driver still runs
        try:
            byte, (lifeline_fd, *_), _, _ = socket.recv_fds(self._control, 1, 1)
        except (OSError, ValueError):
            return False
        lifeline = socket.socket(fileno=lifeline_fd)
        try:
            header, fds, _, _ = socket.recv_fds(lifeline, HEADER.size, 3)
            body = lifeline.recv(HEADER.unpack(header)[0], socket.MSG_WAITALL)
            request = json.loads(body)
        except (OSError, ValueError, struct.error):  # the driver was killed while sending
            lifeline.close()
            return bool(byte)
        try:
            pid = os.fork()
        except OSError as error:
            _report(lifeline, -(error.errno or 1))
            lifeline.close()
        else:
            if pid == 0:
                self._run_child(request, lifeline, fds)
            self._children[pid] = _Child(lifeline, request["memory_mb"], request["most_processes"])
            self._selector.register(lifeline, selectors.EVENT_READ, pid)
            _report(lifeline, pid)
        for each in fds:
            os.close(each)
        return True

    def _run_child(self, request: dict[str, Any], lifeline: socket.socket, fds: Sequence[int]) -> NoReturn:
        code = 1
        try:
            os.setsid()
            die_with_parent()
            keep_descendants()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            lifelines = [child.lifeline for child in (*self._children.values(), *(each for each, _, _ in self._ended))]
            for each in (lifeline, self._control, self._woken, self._wakeup, *lifelines):
                each.close()
            *outputs, channel = fds
            for number, output in enumerate(outputs, 1):
                os.dup2(output, number)
                os.close(output)
            os.set_inheritable(channel, False)
            with suppress(OSError):
                Path("/proc/self/comm").write_text(request["title"][:LONGEST_TITLE])
            os.environ.clear()
            os.environ.update({**self._set_by_modules, **request["environment"]})
            sys.path[:] = request["path"]
            importlib.invalidate_caches()
            os.chdir(request["folder"])
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            module, _, name = request["entry"].partition(":")
            getattr(importlib.import_module(module), name)(channel, *request["arguments"])
            code = 0
        except BaseException as error:
            if isinstance(error, SystemExit) and isinstance(error.code, int | None):
                code = error.code or 0
            else:
                traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            os._exit(code)

    def _end_if_released(self, pid: int) -> None:
        lifeline = self._children[pid].lifeline
        with suppress(BlockingIOError, OSError):
            if lifeline.recv(1, socket.MSG_DONTWAIT):
                return
        self._selector.unregister(lifeline)
        end_tree(pid)

    def _check_limits(self) -> None:
        for pid, child in self._children.items():
            if child.memory_mb is None or child.excess:
                continue
            sizes = [size for each in (pid, *descendants(pid)) if (size := private_mb(each))]
            if len(sizes) > child.most_processes:
                child.excess = -len(sizes)
            elif sum(sizes) > child.memory_mb:
                child.excess = math.ceil(sum(sizes))
            if child.excess:
                end_tree(pid)

    def _reap(self, options: int) -> bool:
        """Report ended processes after their descendants have ended; returns whether any process still runs."""
        pid = -1
        while pid:
            try:
                pid, status = os.waitpid(-1, options)
            except ChildProcessError:
                break
            options = os.WNOHANG
            child = self._children.pop(pid, None)
            if child is not None:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                with suppress(KeyError):
                    self._selector.unregister(child.lifeline)
                self._ended.append((child, os.waitstatus_to_exitcode(status), time.monotonic() + LEFTOVERS_S))
        orphans = [each for each in children(os.getpid()) if each not in self._children]
        for each in orphans:
            end_tree(each)
        waiting, self._ended = self._ended, []
        for child, code, limit in waiting:
            if orphans and time.monotonic() < limit:
                self._ended.append((child, code, limit))
            else:
                _report(child.lifeline, code, child.excess)
                child.lifeline.close()
        return pid == 0


def _report(lifeline: socket.socket, number: int, excess: int = 0) -> None:
    with suppress(OSError):  # the driver closed its end
        lifeline.sendall(REPORT.pack(number, excess))
