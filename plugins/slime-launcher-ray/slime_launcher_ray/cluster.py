"""Cluster: this process's only connection to Ray. All launchers of the process share it; the last one closes it.

A separate process, `head`, owns a local cluster. A cluster that was already running is never stopped.

Example:

    cluster = await join(settings)
    cluster.is_own, cluster.address, cluster.nodes()
    await cluster.leave()
"""

import asyncio
import contextlib
import importlib
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import ray

from slime_core.errors import ConfigError
from slime_launcher_ray.head_process import ENVIRONMENT, Head
from slime_launcher_ray.settings import RaySettings

ANSWER_S = 5.0
"""Seconds within which a head must answer."""
CHECK_S = 2.0
"""Seconds between two checks of the head."""
FAILED_CHECKS = 3
"""Failed checks in a row before a cluster counts as lost."""
LOST_S = 30.0
"""Seconds without an answer before a cluster counts as lost."""
LEAVE_S = 10.0
"""Seconds that Ray may take to disconnect before its local cluster is killed."""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
"""First bytes of a gRPC client: the HTTP/2 preface and an empty SETTINGS frame (RFC 9113, 3.4)."""
FRAME, SETTINGS = 9, 4
"""Bytes of a frame's header, and the type (fourth byte) of a server's first frame."""


@dataclass(frozen=True, slots=True)
class Node:
    """A live node: Ray's id, its IP address, and its total resources."""

    identity: str
    address: str
    resources: dict[str, float]


@dataclass(frozen=True, slots=True)
class ClusterResources:
    """Total resources of a cluster: a description, its nodes by address, and whether workers share cores."""

    where: str
    nodes: Sequence[Node]
    shares_cores: bool


@dataclass(eq=False)
class Cluster:
    """A connection to one cluster, which this process's launchers share."""

    address: str
    """HOST:PORT of the head."""
    requested: str | None
    """The address in the settings."""
    head: Head | None = None
    """The process that owns the cluster; None if the cluster was already running."""
    owns_connection: bool = True
    """Whether this package connected the process to Ray."""
    users: int = 0
    """Launchers that have joined and not left."""

    @property
    def is_own(self) -> bool:
        """Whether this process started the cluster."""
        return self.head is not None

    def nodes(self) -> list[Node]:
        """Live nodes, sorted by address."""
        found = [
            Node(str(each["NodeID"]), str(each["NodeManagerAddress"]), dict(each["Resources"]))
            for each in ray.nodes()
            if each["Alive"]
        ]
        return sorted(found, key=lambda node: (node.address, node.identity))

    def resources(self) -> ClusterResources:
        """Nodes and their resources, for `check_room`."""
        return ClusterResources(f"the Ray cluster at {self.address}", self.nodes(), self.is_own)

    def serves(self, requested: str | None) -> bool:
        """Whether this is the cluster of an address; None: a local cluster."""
        if requested == self.requested:
            return True
        if requested in (None, "auto"):
            return self.is_own == (requested is None) or not self.owns_connection
        return _numeric_address(str(requested)) == _numeric_address(self.address)

    async def wait_lost(self) -> str:
        """Wait until the head is lost; returns the reason."""
        failures, last_answer = 0, time.monotonic()
        while True:
            await asyncio.sleep(CHECK_S)
            if self.head is not None and self.head.process.poll() is not None:
                return f"the Ray cluster on this machine has ended: its head process {self.head.process.pid} is gone"
            if await asyncio.to_thread(head_answers, self.address):
                failures, last_answer = 0, time.monotonic()
            else:
                failures += 1
            if failures >= FAILED_CHECKS and (silence := time.monotonic() - last_answer) > LOST_S:
                return f"the head of the Ray cluster at {self.address} has not answered for {silence:.0f} s"

    async def leave(self) -> None:
        """Unregister a launcher. The last one disconnects and ends a local cluster."""
        await asyncio.to_thread(_leave, self)


_lock = threading.Lock()
_token = secrets.token_hex(32)
"""Access token of this process's local clusters. Ray's default is one token file in the home directory."""
_current: Cluster | None = None


async def join(settings: RaySettings) -> Cluster:
    """Connect this process to the cluster in the settings.

    Raises:
        ConfigError: no head answers at the address, or the cluster has another version of Ray or Python.
        WorkerError: a local cluster could not be started.
    """
    cluster = await asyncio.to_thread(_join, settings)
    if threading.current_thread() is threading.main_thread():
        _restore_signal_handlers()
    return cluster


def address_of(settings: RaySettings) -> str | None:
    """Address of the cluster in the settings: HOST:PORT, `auto`, or None for a local cluster."""
    return settings.address or os.environ.get("RAY_ADDRESS") or None


def resolve_head(address: str) -> str:
    """HOST:PORT of a head that answers.

    `auto` means the last head that `ray start` started on this node. Ray's own `auto` falls back to any cluster of the
    machine, including another run's private one, which refuses connections.

    Raises:
        ConfigError: no head answers.
    """
    where, named = address, "from [launcher.ray] address or RAY_ADDRESS"
    advice = "Start a cluster with `ray start --head`, or remove the address to start a local cluster"
    if address == "auto":
        where = importlib.import_module("ray._private.utils").read_ray_address() or ""
        if not where:
            raise ConfigError(f"`auto` ({named}) finds no Ray cluster: none was started on this node. {advice}")
        named = f"the cluster that `ray start` last started on this node; `auto` is {named}"
    if not head_answers(where):
        raise ConfigError(f"no Ray cluster answers at {where} ({named}). {advice}")
    return where


def head_answers(address: str) -> bool:
    """Whether a gRPC server such as a head answers at an address. False: another server, or a server that hangs."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), ANSWER_S) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return True
            connection.sendall(HELLO)
            header = connection.recv(FRAME, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(header) == FRAME and header[3] == SETTINGS


def _join(settings: RaySettings) -> Cluster:
    global _current  # Ray has one connection per process
    requested = address_of(settings)
    with _lock:
        cluster = _current or _connect(settings, requested)
        if not cluster.serves(requested):
            wanted = f"the Ray cluster at {requested}" if requested else "a local Ray cluster (no address is set)"
            raise ConfigError(
                f"[launcher.ray] needs {wanted}, but this process is connected to the Ray cluster at "
                f"{cluster.address}. A process can connect to only one cluster. Use the same address in both "
                "launchers, or close the first"
            )
        _current = cluster
        _current.users += 1
        return _current


def _leave(cluster: Cluster) -> None:
    global _current
    with _lock:
        cluster.users -= 1
        if cluster.users:
            return
        _current = None
        if cluster.owns_connection:
            leaving = threading.Thread(target=ray.shutdown, daemon=True)
            leaving.start()
            leaving.join(LEAVE_S)
            if leaving.is_alive() and cluster.head is not None:
                # A stopped raylet never answers. Killing it instead would end its driver without a message.
                cluster.head.wake()
                leaving.join(LEAVE_S)
        if cluster.head is not None:
            cluster.head.close()


def _connect(settings: RaySettings, requested: str | None) -> Cluster:
    _silence_ray()
    if ray.is_initialized():  # by the program that runs slime
        return Cluster(str(ray.get_runtime_context().gcs_address), None, owns_connection=False)
    if requested:
        _init(resolve_head(requested))
        return Cluster(str(ray.get_runtime_context().gcs_address), requested)
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=_token)
        importlib.import_module("ray._raylet").Config.initialize("")  # Ray read the mode at its import
    head = Head(settings)
    try:
        _init(head.wait_started())
    except BaseException:
        head.close()
        raise
    return Cluster(str(ray.get_runtime_context().gcs_address), None, head)


def _init(address: str) -> None:
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
                f"the Ray cluster at {address} has another version: {_line(error)}. This environment has Ray "
                f"{ray.__version__} and Python {sys.version.split()[0]}. Install the same versions on all nodes"
            ) from error
        raise ConfigError(
            f"cannot join the Ray cluster at {address}: {_line(error)}. Start the run on one of the cluster's nodes "
            "(`ray status` there shows the cluster), or from elsewhere with `ray job submit`"
        ) from error


def _restore_signal_handlers() -> None:
    """Restore the signal handlers, since Ray's own handler prints a stack at SIGTERM."""
    for number in (signal.SIGTERM, signal.SIGINT):
        if (handler := signal.getsignal(number)) is not None:
            signal.signal(number, handler)
            signal.siginterrupt(number, False)


def _silence_ray() -> None:
    """Silence Ray's output about dead processes, which its options do not silence. A run reports them itself."""
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
    logging.getLogger("ray").setLevel(logging.ERROR)
    module = importlib.import_module("ray._private.worker")
    if hasattr(module, "print_to_stdstream"):
        setattr(module, "print_to_stdstream", lambda *arguments, **named: None)  # noqa: B010  # a private name of Ray


def _numeric_address(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        host = socket.gethostbyname(host)
    return host, port


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500].rstrip(".")
