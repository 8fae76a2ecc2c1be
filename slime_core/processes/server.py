"""Server: one process that imports what takes time, forks workers that have it already, and sees to their end.

Whatever a worker has started goes with it, and all of them go when the driver does, however it dies.

Example:

    server = Server(preload=("torch",), environment={"OMP_NUM_THREADS": "1"})
    process = server.fork("slime_core.isolation.worker:main", title="trainer 0", output=log.fileno())
    await process.channel.send(b"...")          # `main(channel, lifeline)` is given the other ends, as numbers
    process.kill()
    await process.ended()
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from slime_core.processes.forked import Forked

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
    "from slime_core.processes.forking import main; main(int(sys.argv[2]), json.loads(sys.argv[3]))"
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
