"""Actor: the process of a Ray worker. It builds the group's class and runs calls one at a time in one thread.

Threads of another concurrency group answer during a call. Through them the driver detects that the process died.
"""

import contextlib
import errno
import faulthandler
import importlib
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ray

from slime_core.errors import WorkerError
from slime_core.processes import Host, Reply, find_project_files, free_port, make_reply
from slime_core.roles import Place, PluginSet, WorkerGroupSpec
from slime_launcher_ray import guard

MARK = "SLIME_RAY_WORKER"
"""Environment variable that marks all processes of one worker."""
CONTROL_GROUP = "aside"
SENT_MODULES = "/py_modules_files/"
"""Part of the path of modules sent by a runtime environment. On a node they precede the driver's `sys.path`."""
DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Site:
    """Location of an actor."""

    node: str
    """Ray's id of the node."""
    address: str
    pid: int
    port: int
    """A free port of the node."""
    devices: tuple[str, ...] = ()
    """GPUs that Ray assigned to it."""


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """How to set up a worker process before it builds the group's class."""

    place: Place
    """The worker's place in the group."""
    plugins: PluginSet | None
    """Plugins that the worker must have in the driver's versions; None: do not compare."""
    log: str
    """File for the worker's output."""
    token: str
    """A file that the driver created next to the log. If it is missing, the node does not share the folder."""
    folder: str
    """The driver's working directory."""
    path: tuple[str, ...]
    """The driver's `sys.path`."""
    environment: Mapping[str, str]
    """Environment variables. Set before the group's modules are imported, since Ray reuses running processes."""


class Actor:
    """One worker."""

    def __init__(self) -> None:
        """Start the guard, which ends all child processes when this process ends."""
        mark = uuid.uuid4().hex
        if hasattr(os, "pidfd_open"):
            arguments = [sys.executable, "-I", guard.__file__, str(os.getpid()), f"{MARK}={mark}"]
            subprocess.run(arguments, check=True, stdin=subprocess.DEVNULL)
        os.environ[MARK] = mark
        find_project_files()  # before Ray unpickles the spec, which may contain classes of the project
        self._host: Host | None = None

    def site(self) -> Site:
        """Location of this process."""
        context = ray.get_runtime_context()
        address = ray.util.get_node_ip_address()
        gpus = context.get_accelerator_ids().get("GPU", [])
        return Site(context.get_node_id(), address, os.getpid(), free_port(address), tuple(gpus))

    def build(self, setup: WorkerSetup, spec: WorkerGroupSpec) -> Reply:
        """Build the group's class in the driver's folder, with its modules."""
        return make_reply(lambda: self._build(setup, spec))

    def call(self, method: str, *arguments: object) -> object:
        """Call a method of the object; returns a `Reply` only on an error: Ray transfers plain bytes without a copy."""
        host = self._host
        assert host is not None, "build() runs first"
        reply = make_reply(lambda: host.call(method, arguments))
        return reply if reply.error is not None or reply.traceback else reply.value

    def close(self) -> None:
        """Call the object's `close`, if it has one."""
        if self._host is not None:
            self._host.close()

    @ray.method(concurrency_group=CONTROL_GROUP)  # type: ignore[untyped-decorator]
    def live(self) -> None:
        """Never return: the driver waits for this call, which fails as soon as the process dies."""
        threading.Event().wait()

    @ray.method(concurrency_group=CONTROL_GROUP)  # type: ignore[untyped-decorator]
    def leave(self) -> None:
        """End this process and its children at once: `ray.kill` needs the head, which may hang."""
        os._exit(1)

    def _build(self, setup: WorkerSetup, spec: WorkerGroupSpec) -> None:
        _print_to(setup)
        os.environ.update(setup.environment)
        faulthandler.enable()
        if setup.place.devices:
            os.environ[DEVICES] = ",".join(setup.place.devices)
        with contextlib.suppress(FileNotFoundError):  # a node with another disk cannot use relative paths
            os.chdir(setup.folder)
        sent = [each for each in sys.path if SENT_MODULES in each]
        sys.path[:] = [*sent, *setup.path, *(each for each in sys.path if each not in (*sent, *setup.path))]
        for module in spec.preload:  # in the local launcher's order: the import order can change the last bits
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        self._host = Host()
        self._host.build(spec, setup.place, setup.plugins)


def environment(cpus: float, extra: Mapping[str, str]) -> dict[str, str]:
    """Environment variables of a worker, in addition to its node's."""
    threads = str(max(1, int(cpus)))
    own = {
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "PYTHONUNBUFFERED": "1",  # for processes that the worker starts
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    return {**own, **extra}


def unwritable_error(folder: Path, where: str, why: str) -> WorkerError:
    """The error for a run's folder that a node cannot write to."""
    return WorkerError(
        f"the run folder {folder} cannot be written on {where} ({why}). All nodes must share it under the same path; "
        "set one with --save PATH"
    )


def _print_to(setup: WorkerSetup) -> None:
    log = Path(setup.log)
    try:
        if not Path(setup.token).exists():
            raise FileNotFoundError(errno.ENOENT, "the driver's files are missing")
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise unwritable_error(log.parent, setup.place.address, error.strerror or str(error)) from error
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
