"""ServerHost and RouterHost: workers that run a server or a router as a child process.

When the server or one of its processes ends, the worker ends too, with the server's last lines in its log. So the
group's `watch` raises at once. SGLang alone would keep running for a minute without its scheduler and answer nothing.

Example:

    spec = WorkerGroupSpec("engine", 1, "slime_engine_sglang.host:ServerHost", {"command": [...], "environment": {}})
    group = await launcher.start(spec)
    (url, pid), = await group.call("address")
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path

from slime_core.errors import ConfigError, WorkerError
from slime_core.processes import free_port
from slime_core.roles import Place
from slime_engine_sglang.arguments import environment_for

PR_SET_PDEATHSIG = 1
CHECK_S = 0.5  # Seconds between two checks of the server's processes
STOPPED_S = 5.0  # Seconds that a process may be stopped (SIGSTOP) before the server counts as dead
LAST_BYTES, LAST_LINES = 8192, 20  # How much of the output an error contains
TITLE_PREFIX = b"sglang::"  # Prefix of the titles of SGLang's processes


class Host:
    """Owns one process, which listens on a port reserved for it."""

    def __init__(
        self,
        command: Sequence[str],
        place: Place,
        setting: str,
        ports: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        output: int | None = None,
    ) -> None:
        if shutil.which(command[0]) is None:
            raise ConfigError(f"{command[0]} ({setting}) does not exist")
        self._reservation = reserve_port(place.address, place.port)
        port = self._reservation.getsockname()[1]
        self._url = f"http://{place.address}:{port}"
        self._process = subprocess.Popen(
            [*command, "--host", place.address, "--port", str(port), *ports],
            env={**environment_for(command[0]), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output and subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )
        self._closing = threading.Event()

    def address(self) -> tuple[str, int]:
        return self._url, self._process.pid

    def close(self) -> None:
        self._closing.set()
        self._process.kill()
        self._process.wait()
        self._reservation.close()


class ServerHost(Host):
    """Owns one server; the server's output goes to the worker's log."""

    def __init__(
        self, rank: int, size: int, *, command: Sequence[str], environment: Mapping[str, str], place: Place
    ) -> None:
        # A separate folder, since SGLang leaves sockets there. Its path is short, since socket paths have a limit.
        self._temporary = tempfile.mkdtemp(prefix="sglang-")
        environment = {**environment, "TMPDIR": self._temporary}
        try:
            setting = "[engine.sglang] python"
            super().__init__(command, place, setting, environment=environment, output=subprocess.PIPE)
        except BaseException:
            shutil.rmtree(self._temporary, ignore_errors=True)
            raise
        self._copying = threading.Thread(target=self._copy_output, name="output", daemon=True)
        self._copying.start()
        threading.Thread(target=self._watch, name="server", daemon=True).start()

    def last_lines(self) -> str:
        """The end of the output of worker and server, if it goes to a file."""
        with suppress(OSError), Path("/proc/self/fd/1").open("rb") as printed:
            printed.seek(max(0, os.fstat(printed.fileno()).st_size - LAST_BYTES))
            return "\n".join(printed.read().decode(errors="replace").splitlines()[-LAST_LINES:])
        return ""

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _copy_output(self) -> None:
        """Copy the server's output to the log; if the disk is full, drop it: a failed write would end SGLang."""
        assert self._process.stdout is not None, "stdout is a pipe"
        with self._process.stdout as printed:
            while part := os.read(printed.fileno(), LAST_BYTES):
                with suppress(OSError):
                    os.write(1, part)

    def _watch(self) -> None:
        processes, stops = ServerProcesses(), dict[int, int]()
        while not self._closing.wait(CHECK_S):
            code = self._process.poll()
            running = {pid for pid in _descendants(self._process.pid) if _is_sglang(pid)}
            stops = {pid: stops.get(pid, 0) + 1 for pid in (self._process.pid, *running) if _is_stopped(pid)}
            stopped = [pid for pid, count in stops.items() if count * CHECK_S >= STOPPED_S]
            lost = processes.lost(running)
            if code is None and not lost and not stopped:
                continue
            if self._closing.is_set():
                return
            if code is not None:
                how = f"ended with code {code}"
            elif lost:
                how = f"has lost its process {min(lost)}"
            else:
                how = f"is stopped: its process {stopped[0]} has not run for {STOPPED_S:g} s"
            self._process.kill()
            self._copying.join(CHECK_S)
            with suppress(OSError):
                os.write(1, f"the SGLang server, process {self._process.pid}, {how}\n".encode())
            shutil.rmtree(self._temporary, ignore_errors=True)
            os._exit(1)


class ServerProcesses:
    """The processes that a server needs, found by repeated checks of its process tree.

    A process counts only if two checks find it. A short-lived child such as `lscpu` has its parent's title until it
    calls exec; if it counted, its exit would kill a healthy server.
    """

    def __init__(self) -> None:
        self._once, self._known = frozenset[int](), frozenset[int]()

    def lost(self, running: Set[int]) -> Set[int]:
        lost = self._known - running
        self._known, self._once = self._once & running, frozenset(running)
        return lost


def die_with_parent() -> None:
    """Ask the kernel to kill the server when this worker dies. Runs in the child before exec."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return [each for child in found for each in (child, *_descendants(child))]


def _is_sglang(pid: int) -> bool:
    """Whether a process is alive and belongs to SGLang; a dead process has no command line."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(TITLE_PREFIX)
    return False


def _is_stopped(pid: int) -> bool:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


def reserve_port(address: str, preferred: int) -> socket.socket:
    """A bound socket that reserves a port for a server and never listens: `preferred`, or a free port if it is taken.

    A server takes minutes to start. Without the socket the OS could assign its port to another process, and its
    responses would count as the server's. Servers set SO_REUSEADDR, so they can still listen on the port.
    """
    for port in (preferred, 0):
        reserved = socket.socket()
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reserved.bind((address, port))
        except OSError:
            reserved.close()
        else:
            return reserved
    raise WorkerError(f"{address} has no free port")


class RouterHost(Host):
    """Owns one router; the router's output goes to the worker's log."""

    def __init__(self, rank: int, size: int, *, command: Sequence[str], place: Place) -> None:
        ports = ["--prometheus-port", str(free_port(place.address))]
        super().__init__(command, place, "[engine.sglang.router] python", ports)
        threading.Thread(target=self._watch, name="router", daemon=True).start()

    def _watch(self) -> None:
        code = self._process.wait()
        if not self._closing.is_set():
            print(f"the router, process {self._process.pid}, ended with code {code}", flush=True)  # noqa: T201  # for the log
            os._exit(1)
