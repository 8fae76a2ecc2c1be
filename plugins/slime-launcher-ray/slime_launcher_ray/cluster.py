"""Cluster: this process's one connection to Ray, shared by all of its launchers, and left by the last of them.

A cluster of this machine belongs to a process of its own, `head`; one that ran before is never stopped.

Example:

    cluster = await join(settings)
    cluster.is_own, cluster.address, cluster.nodes()
    await cluster.leave()
"""

import asyncio
import contextlib
import importlib
import json
import logging
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import ray

from slime_core.errors import ConfigError, WorkerError
from slime_launcher_ray.guard import end_marked
from slime_launcher_ray.head import MARK
from slime_launcher_ray.settings import RaySettings

CONNECT_S = 5.0
"""Seconds within which a head accepts a connection."""
LOOK_S = 2.0
"""Seconds between two looks whether the head is there."""
LOOKS = 10
"""Looks in vain after which a cluster is taken to be lost."""
END_S = 15.0
"""Seconds that a cluster of this machine has to end."""
LAST_LINES = 15
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # who asks for no GPU may live beside who does
    "SPT_NOENV": "1",  # else a process's title is written over its environment, and its mark with it
}


@dataclass(frozen=True, slots=True)
class Node:
    """One that is alive."""

    identity: str
    """Ray's id of it."""
    address: str
    """Its IP address."""
    resources: dict[str, float]
    """All that it has."""


@dataclass(eq=False)
class Cluster:
    """A connection."""

    address: str
    """HOST:PORT of the head."""
    head: "Head | None" = None
    """The process that owns it; None where it ran before."""
    owns_connection: bool = True
    """Whether this process was connected by us."""
    users: int = 0
    """Launchers that have joined and not left."""

    @property
    def is_own(self) -> bool:
        """Whether it is of this machine, for this process alone."""
        return self.head is not None

    def nodes(self) -> list[Node]:
        """Those that are alive, by address."""
        found = [
            Node(str(each["NodeID"]), str(each["NodeManagerAddress"]), dict(each["Resources"]))
            for each in ray.nodes()
            if each["Alive"]
        ]
        return sorted(found, key=lambda node: (node.address, node.identity))

    async def lost(self) -> str:
        """Wait until the head is gone; returns what is known of it."""
        in_vain = 0
        while True:
            await asyncio.sleep(LOOK_S)
            if self.head is not None and self.head.process.poll() is not None:
                return f"the Ray cluster of this machine has ended: its head, process {self.head.process.pid}, is gone"
            in_vain = 0 if await asyncio.to_thread(answers, self.address) else in_vain + 1
            if in_vain >= LOOKS:
                return f"the head of the Ray cluster, {self.address}, has not answered for {LOOKS * LOOK_S:g} s"

    async def leave(self) -> None:
        """One launcher less; the last one disconnects, and ends what is this process's own."""
        await asyncio.to_thread(_leave, self)


class Head:
    """The process that owns a cluster of this machine."""

    def __init__(self, settings: RaySettings) -> None:
        """Start it; `started` waits until it is ready."""
        self._mark = secrets.token_hex(8)
        self._folder = Path(tempfile.mkdtemp(prefix="slime-ray-"))  # short: the path of a socket has to be
        self._limit_s = settings.start_timeout_s
        asked = {
            "mark": self._mark,
            "folder": str(self._folder),
            "driver": os.getpid(),
            "num_gpus": settings.num_gpus,
            "object_store_mb": settings.object_store_mb,
            "dashboard": settings.dashboard,
        }
        others = {name: each for name, each in os.environ.items() if name != "RAY_ADDRESS"}
        self._printed = (self._folder / "head.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "slime_launcher_ray.head", json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            start_new_session=True,
            env={**others, **ENVIRONMENT, MARK: self._mark, "RAY_raylet_start_wait_time_s": str(int(self._limit_s))},
        )

    def started(self) -> str:
        """Wait for its address.

        Raises:
            WorkerError: it ended instead, or took too long.
        """
        assert self.process.stdout is not None, "piped"
        ready = select.select([self.process.stdout], [], [], self._limit_s)[0]
        line = self.process.stdout.readline() if ready else b""
        if line:
            return str(json.loads(line)["address"])
        words = self._last_words()
        self.close()
        how = "ended" if ready else f"was not ready within {self._limit_s:g} s ([launcher.ray] start_timeout_s)"
        raise WorkerError(f"a Ray cluster of this machine could not be started: its head {how}; it said:\n{words}")

    def close(self) -> None:
        """End it, and all of the cluster."""
        with contextlib.suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        end_marked(f"{MARK}={self._mark}")
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._printed.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _last_words(self) -> str:
        """The end of what it and Ray's own processes printed."""
        logs = [self._folder / "head.log", *sorted(self._folder.glob("session_*/logs/raylet.*"))]
        lines: list[str] = []
        for log in logs:
            with contextlib.suppress(OSError):
                lines += log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join(lines)


_turn = threading.Lock()
_token = secrets.token_hex(32)
"""What clusters of this process let in: with Ray's own choice, one file of the home directory would."""
_current: Cluster | None = None


async def join(settings: RaySettings) -> Cluster:
    """The cluster that the settings name, with this process connected to it.

    Raises:
        ConfigError: nobody answers at its address, or it has another version of Ray or Python.
        WorkerError: one of this machine could not be started.
    """
    cluster = await asyncio.to_thread(_join, settings)
    if threading.current_thread() is threading.main_thread():
        _take_signals_back()
    return cluster


def answers(address: str) -> bool:
    """Whether somebody accepts connections there."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except OSError:
        return False
    return True


def _join(settings: RaySettings) -> Cluster:
    global _current  # Ray has one connection a process
    with _turn:
        if _current is None:
            _current = _connected(settings)
        elif settings.address not in (None, "auto", _current.address):
            raise ConfigError(
                f"[launcher.ray] address = {settings.address!r}: this process is connected to the Ray cluster at "
                f"{_current.address}, and can be to one alone"
            )
        _current.users += 1
        return _current


def _leave(cluster: Cluster) -> None:
    global _current
    with _turn:
        cluster.users -= 1
        if cluster.users:
            return
        _current = None
        if cluster.owns_connection:
            ray.shutdown()
        if cluster.head is not None:
            cluster.head.close()


def _connected(settings: RaySettings) -> Cluster:
    """Connect this process; it is not."""
    _silence()
    if ray.is_initialized():  # by who runs us
        return Cluster(str(ray.get_runtime_context().gcs_address), owns_connection=False)
    address = settings.address or os.environ.get("RAY_ADDRESS")
    if address:
        if address != "auto" and not answers(address):
            raise ConfigError(
                f"no Ray cluster answers at {address} ([launcher.ray] address, or RAY_ADDRESS): start one with "
                "`ray start --head`, or leave the address out for a cluster of this machine"
            )
        _init(address)
        return Cluster(str(ray.get_runtime_context().gcs_address))
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=_token)
        importlib.import_module("ray._raylet").Config.initialize("")  # Ray has read the mode when it was imported
    head = Head(settings)
    try:
        _init(head.started())
    except BaseException:
        head.close()
        raise
    return Cluster(str(ray.get_runtime_context().gcs_address), head)


def _init(address: str) -> None:
    """Connect to a cluster that runs.

    Raises:
        ConfigError: that is not possible.
    """
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
    except Exception as error:
        if "mismatch" in str(error).lower():
            raise ConfigError(
                f"the Ray cluster at {address} is of another version: {_line(error)}. This environment has Ray "
                f"{ray.__version__} and Python {sys.version.split()[0]}; install the same on all nodes"
            ) from error
        raise ConfigError(
            f"the Ray cluster at {address} cannot be joined: {_line(error)}. The driver must run on one of its nodes "
            "(`ray status` there shows the cluster); from elsewhere: slime submit RUN.toml --address http://HOST:8265"
        ) from error


def _take_signals_back() -> None:
    """Ray puts a handler of its own before those that are there, which prints a stack at SIGTERM."""
    for number in (signal.SIGTERM, signal.SIGINT):
        if (handler := signal.getsignal(number)) is not None:
            signal.signal(number, handler)
            signal.siginterrupt(number, False)


def _silence() -> None:
    """Ray prints of every death, also where it was told to print nothing; a run tells of them itself."""
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
    logging.getLogger("ray").setLevel(logging.ERROR)
    module = importlib.import_module("ray._private.worker")
    if hasattr(module, "print_to_stdstream"):
        setattr(module, "print_to_stdstream", lambda *arguments, **named: None)  # noqa: B010  # it is Ray's own


def _line(error: BaseException) -> str:
    """An error's text in one line."""
    return " ".join(str(error).split())[:500].rstrip(".")
