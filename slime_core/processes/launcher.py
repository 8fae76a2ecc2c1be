"""Worker groups, and the local launcher that starts them on this machine's GPUs and cores.

All workers of a group are called together. They wait for each other in collective operations, so they all end when
one fails. A launcher derives from `GroupWorker` and implements how to send a call and how to end the process. The
local launcher forks workers from a server, which imports torch once for all. Groups may share cores, but not GPUs.

Example:

    group = await LocalLauncher(setup).start(WorkerGroupSpec("trainer", 2, "my_package:Rank", {}))
    await group.call("train_step", batches)
"""

import asyncio
import math
import os
import re
import socket
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import ClassVar, NamedTuple, Self, cast

from slime_core.aio import cancel_all, gather_or_cancel
from slime_core.errors import ConfigError, WorkerError
from slime_core.processes.limits import own_cores
from slime_core.processes.server import ENVIRONMENT, Server, shared_server
from slime_core.processes.worker import ENTRY, PRELOAD, BuildRequest, Reply, pickled
from slime_core.roles import LauncherSetup, Needs, Place, WorkerGroupSpec


class GroupWorker(ABC):
    """One worker of a group; subclasses define how a launcher reaches its process."""

    BUSY_GRACE_S: ClassVar[float] = 2.0
    """Seconds that a worker has to end if a call is in progress."""
    CLOSE_S: ClassVar[float] = 10.0
    """Seconds that an idle worker has for its `close`."""
    DEATH_S: ClassVar[float] = 10.0
    """Seconds after which a lost or killed process counts as ended, even if nothing reports its end."""
    LOG_TAIL_LINES: ClassVar[int] = 15

    def __init__(self, title: str, place: Place, log: Path) -> None:
        """Start nothing yet.

        Args:
            title: group and rank for errors, as "trainer 3".
            place: host, devices and ports of the worker.
            log: file with its output.
        """
        self.title, self.place, self.log = title, place, log
        self._turn = asyncio.Lock()
        self._is_stopping = False
        self._raised_death = False

    async def call(self, method: str, arguments: Sequence[object], timeout_s: float | None) -> object:
        """Call `worker.method(*arguments)` in turn; WorkerError if it raised, died or did not answer in time."""
        async with self._turn:
            try:
                async with asyncio.timeout(timeout_s) as limit:
                    return await self._exchange(f"{method}()", (method, tuple(arguments)))
            except TimeoutError:
                if not limit.expired():
                    raise
                raise WorkerError(
                    f"{self.title} did not answer {method}() within {timeout_s:g} s; its log is {self.log}"
                ) from None

    async def build(self) -> None:
        """Build the worker's object; errors as in `call`."""
        async with self._turn:
            await self._exchange("its construction", None)

    async def wait_died_idle(self) -> None:
        """Wait until the process ends outside of a call. If it dies in a call, the call raises instead."""
        await self._wait_ended()
        async with self._turn:
            if not self._raised_death:
                return
        await asyncio.Event().wait()

    @property
    def is_busy(self) -> bool:
        """Whether a call is in progress."""
        return self._turn.locked()

    def death(self) -> WorkerError:
        """Return the error for a worker that has ended."""
        if self._is_stopping:
            return WorkerError(f"{self.title} was stopped with its group; its log is {self.log}")
        return WorkerError(f"{self._describe_death()}; the end of its log, {self.log}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """Return the last lines of the worker's output."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.is_file() else []
        return "\n".join(lines[-self.LOG_TAIL_LINES :])

    def request_stop(self) -> None:
        """Announce that there will be no more calls."""
        self._is_stopping = True

    @property
    @abstractmethod
    def has_ended(self) -> bool:
        """Whether its process has ended."""

    @property
    @abstractmethod
    def state(self) -> str:
        """The process as shown to users, as "pid 4711"."""

    @abstractmethod
    async def stop(self) -> None:
        """End the process with its descendants, and wait for their end."""

    @abstractmethod
    async def _exchange(self, what: str, call: tuple[str, tuple[object, ...]] | None) -> object:
        """Send a call (method, arguments), or None to build the object; errors as in `call`, without a time limit.

        `what` names it in errors.
        """

    @abstractmethod
    async def _wait_ended(self) -> None:
        """Wait until the process has ended."""

    @abstractmethod
    def _describe_death(self) -> str:
        """Describe which worker died, where, and how, as "trainer 3 died (exit code 1)"."""

    def _value(self, what: str, reply: Reply) -> object:
        """Return the value of a reply; raise the `SlimeError` in it, or WorkerError with the worker's traceback."""
        if reply.error is not None:
            raise reply.error
        if reply.traceback:
            raise WorkerError(f"{self.title} raised in {what}; its log is {self.log}\n{reply.traceback}")
        return reply.value


# A worker of the local launcher.


class LocalWorker(GroupWorker):
    """One forked process."""

    def __init__(self, server: Server, request: BuildRequest, log: Path, environment: Mapping[str, str]) -> None:
        """Start to fork the process, with its output appended to `log`; WorkerError if the system cannot."""
        super().__init__(f"{request.spec.name} {request.place.rank}", request.place, log)
        self._request = request
        self._answer: asyncio.Future[bytearray] | None = None
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as output:
                self._process = server.fork(ENTRY, title=self.title, output=output.fileno(), environment=environment)
        except OSError as error:
            raise WorkerError(f"{self.title} could not be started: {error}") from error

    @property
    def state(self) -> str:
        """The process id, in words."""
        return f"pid {self._process.pid}"

    @property
    def has_ended(self) -> bool:
        """Whether its process has ended."""
        return self._process.has_ended

    def request_stop(self) -> None:
        """Send no more calls."""
        super().request_stop()
        self._process.end_calls()

    async def stop(self) -> None:
        """Wait until the process and its descendants have ended, after a kill if necessary, and close its files."""
        process = self._process
        is_busy = self._answer is not None and not self._answer.done()
        await process.wait_or_kill("stopped", "it was stopped", self.BUSY_GRACE_S if is_busy else self.CLOSE_S)
        process.disconnect()
        async with self._turn:  # a call in progress handles the end first
            await self._last_answer()
            process.close()

    async def _wait_ended(self) -> None:
        await self._process.wait()

    def _describe_death(self) -> str:
        return f"{self.title} died ({self._process.exit_text})"

    async def _exchange(self, what: str, call: tuple[str, tuple[object, ...]] | None) -> object:
        if self._is_stopping:
            raise self.death()
        await self._last_answer()
        self._answer = asyncio.ensure_future(self._process.call(pickled(call or self._request)))
        try:
            frame = await asyncio.shield(self._answer)
        except EOFError:
            self._raised_death = True
            raise self.death() from None
        return self._value(what, cast(Reply, ForkingPickler.loads(frame)))

    async def _last_answer(self) -> None:
        """Wait for the answer of the last call, if that was cancelled, or for its failure."""
        if self._answer is not None:
            await asyncio.wait({self._answer})
            if not self._answer.cancelled():
                self._answer.exception()  # retrieved, so that asyncio does not log it


LAST_WORDS_S = 0.3
"""Seconds to wait for the death of a worker when another worker reports an error."""


class GroupOfWorkers:
    """Implements `slime_core.roles.WorkerGroup`."""

    def __init__(self, workers: Sequence[GroupWorker]) -> None:
        """Take over started workers, ordered by rank."""
        self._workers = list(workers)
        self._closing: asyncio.Task[None] | None = None
        self._is_closed = asyncio.Event()
        self._death: WorkerError | None = None

    @property
    def size(self) -> int:
        """Number of workers."""
        return len(self._workers)

    @property
    def places(self) -> Sequence[Place]:
        """Place of each worker."""
        return [worker.place for worker in self._workers]

    @property
    def is_closed(self) -> bool:
        """Whether the group was closed, by its owner or after a failure."""
        return self._closing is not None

    async def build(self, timeout_s: float | None) -> None:
        """Wait until every worker has built its object; WorkerError if one fails or the time is over."""
        waiting = list(self._workers)

        async def build(worker: GroupWorker) -> None:
            await worker.build()
            waiting.remove(worker)

        try:
            async with asyncio.timeout(timeout_s):
                await gather_or_cancel(*map(build, self._workers))
        except BaseException as error:
            await self.close()
            if not isinstance(error, TimeoutError):
                raise
            waiting = waiting or self._workers  # the last one was built as the time was over
            raise WorkerError(
                f"{', '.join(worker.title for worker in waiting)}: not built within {timeout_s:g} s "
                f"({self.size - len(waiting)} of {self.size} are); the end of the log of {waiting[0].title}, "
                f"{waiting[0].log}:\n{waiting[0].log_tail()}"
            ) from None

    async def call(
        self, method: str, arguments: Sequence[object] | None = None, *, timeout_s: float | None = None
    ) -> list[object]:
        """Call `method` on every worker at once; see `WorkerGroup.call`."""
        per_worker = [()] * self.size if arguments is None else [(argument,) for argument in arguments]
        calls = [worker.call(method, each, timeout_s) for worker, each in zip(self._workers, per_worker, strict=True)]
        return await self._all(calls)

    async def call_one(self, rank: int, method: str, argument: object, *, timeout_s: float | None = None) -> object:
        """Call `method` on one worker."""
        return (await self._all([self._workers[rank].call(method, (argument,), timeout_s)]))[0]

    def unanswered(self) -> Mapping[int, str]:
        """Return the workers with a call in progress; see `WorkerGroup.unanswered`."""
        return {rank: worker.state for rank, worker in enumerate(self._workers) if worker.is_busy}

    async def watch(self) -> None:
        """Wait until the group is closed; see `WorkerGroup.watch`."""
        closed = asyncio.create_task(self._is_closed.wait())
        deaths = {asyncio.create_task(worker.wait_died_idle()): worker for worker in self._workers}
        try:
            await asyncio.wait({closed, *deaths}, return_when=asyncio.FIRST_COMPLETED)
            dead = [worker for task, worker in deaths.items() if task.done()]
        finally:
            await cancel_all([closed, *deaths])
        if dead and not self.is_closed:
            error = self._death = dead[0].death()
            await self.close()
            raise error

    async def close(self) -> None:
        """Stop all workers; calls in progress fail."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)  # closing continues if the caller is cancelled

    async def _close(self) -> None:
        for worker in self._workers:
            worker.request_stop()
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        self._is_closed.set()

    async def _all(self, calls: Sequence[Coroutine[object, object, object]]) -> list[object]:
        try:
            return await gather_or_cancel(*calls)
        except WorkerError as error:
            # The other ranks wait for the failed one in collective operations, so no worker is usable any more.
            cause = await self._cause(error)
            await self.close()
            raise cause from (error if cause is not error else None)

    async def _cause(self, error: WorkerError) -> WorkerError:
        """Return the death behind an error: a worker may report a lost peer before the peer's end is known."""
        if self._death is not None:
            return self._death
        until = asyncio.get_running_loop().time() + LAST_WORDS_S
        while not (dead := [worker for worker in self._workers if worker.has_ended]):
            if asyncio.get_running_loop().time() > until:
                return error
            await asyncio.sleep(LAST_WORDS_S / 10)
        return error if any(str(error) == str(worker.death()) for worker in dead) else dead[0].death()


# The local launcher.

DEVICES = "CUDA_VISIBLE_DEVICES"
"""Environment variable that lists the GPUs of a process."""


class GroupResources(NamedTuple):
    """Resources of a running group."""

    group: str
    needs: Needs
    """Needs of each worker."""
    devices: Sequence[tuple[str, ...]]
    """GPUs of each worker."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores and GPUs of one machine."""

    cores: int
    gpus: Sequence[str]

    @classmethod
    def here(cls) -> Self:
        """Return the resources of this machine that this process may use."""
        return cls(own_cores(), _gpus())

    def __str__(self) -> str:
        gpus = f"GPUs {', '.join(self.gpus)}" if self.gpus else "no GPU"
        return f"{self.cores} core{'' if self.cores == 1 else 's'}, {gpus}"

    def share(self, group: str, needs: Needs, workers: int, taken: Sequence[GroupResources]) -> list[tuple[str, ...]]:
        """Return the GPUs for each worker of another group; ConfigError if its needs do not fit."""
        free = dict.fromkeys(self.gpus, 1.0)
        for each in taken:
            for name in chain.from_iterable(each.devices):
                free[name] -= min(each.needs.gpus, 1.0)
        devices, part, count = list[tuple[str, ...]](), min(needs.gpus, 1.0), math.ceil(needs.gpus)
        for _ in range(workers):
            fitting = [name for name, left in free.items() if left >= part - 1e-9][:count]
            free.update({name: free[name] - part for name in fitting})
            devices.append(tuple(fitting))
        if needs.custom:
            why = f"it has nothing called {', '.join(sorted(needs.custom))}"
        elif needs.cpus > self.cores:
            why = "a worker cannot have more cores than there are"
        elif any(len(each) < count for each in devices):
            why = "not so many GPUs are free"
        else:
            return devices
        others = f"; {', '.join(each.group for each in taken)} already use part of it" if taken else ""
        needed = f"{workers} workers, each with {needs}" if workers > 1 else str(needs)
        raise ConfigError(
            f"group {group!r} needs {needed}. This machine has {self}{others}: {why}. Ask for less, or choose a "
            "launcher of a cluster that has it"
        )


def _gpus() -> list[str]:
    visible = os.environ.get(DEVICES)
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]
    found = [each for each in Path("/dev").iterdir() if re.fullmatch(r"nvidia\d+", each.name)]
    return [str(number) for number in range(len(found))]


LOOPBACK = "127.0.0.1"
OWN_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}
"""Additional variables for local workers, which communicate only on this machine."""


class LocalLauncher:
    """Implements `slime_core.roles.Launcher`."""

    def __init__(self, setup: LauncherSetup) -> None:
        """Detect the resources of this machine."""
        self._logs, self._plugins = setup.scratch, setup.plugins
        self._machine = Machine.here()
        self._running: list[tuple[GroupResources, GroupOfWorkers]] = []

    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> GroupOfWorkers:
        """Start a group and wait until its workers are built; see `Launcher.start`."""
        taken = self._take(spec)
        ports = [free_port(LOOPBACK) for _ in taken.devices]
        rendezvous = f"{LOOPBACK}:{ports[0]}"
        threads = str(max(1, int(spec.needs.cpus)))
        own = OWN_ENVIRONMENT | {name: threads for name in ENVIRONMENT if name.endswith("_THREADS")}
        # CUDA does not survive a fork, and importing some modules (megatron-core) initializes it if there is a GPU.
        preload = () if spec.needs.gpus else spec.preload
        server = shared_server([PRELOAD, *preload], own | dict(spec.environment))
        workers: list[LocalWorker] = []
        try:
            for rank, (devices, port) in enumerate(zip(taken.devices, ports, strict=True)):
                place = Place(rank, rank, address=LOOPBACK, devices=devices, port=port, rendezvous=rendezvous)
                environment = {DEVICES: ",".join(devices)} if devices else {}
                log = self._logs / f"{spec.name}-{rank}.log"
                workers.append(LocalWorker(server, BuildRequest(spec, place, self._plugins), log, environment))
        except BaseException:
            await GroupOfWorkers(workers).close()
            raise
        group = GroupOfWorkers(workers)
        self._running.append((taken, group))
        await group.build(timeout_s)
        return group

    async def close(self) -> None:
        """Stop every group."""
        await asyncio.gather(*(group.close() for _, group in self._running))

    def _take(self, spec: WorkerGroupSpec) -> GroupResources:
        """Return the resources for a group; ConfigError if they are not available."""
        self._running = [each for each in self._running if not each[1].is_closed]
        taken = [each for each, _ in self._running]
        if spec.per_node is not None and spec.per_node < spec.size:
            raise ConfigError(
                f"group {spec.name!r} asks for {spec.per_node} of its {spec.size} workers on a node; this machine "
                f"is one node. Have all {spec.size} on one, or choose a launcher of several nodes"
            )
        if spec.colocate_with is None:
            return GroupResources(spec.name, spec.needs, self._machine.share(spec.name, spec.needs, spec.size, taken))
        for other in taken:
            if other.group == spec.colocate_with:
                shared = [other.devices[rank % len(other.devices)] for rank in range(spec.size)]
                return GroupResources(spec.name, Needs(), shared)
        raise ConfigError(
            f"group {spec.name!r} shares the devices of {spec.colocate_with!r}, which is not running. Running: "
            f"{', '.join(each.group for each in taken) or 'no group'}"
        )


def free_port(address: str) -> int:
    """A free port that the OS will not assign to another process for about a minute.

    A connection that this side closes first leaves its port in TIME_WAIT. A server, which sets SO_REUSEADDR, can bind
    the port, but the OS gives it to no client.
    """
    with socket.socket() as listening, socket.socket() as client:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, 0))
        listening.listen(1)
        client.connect(listening.getsockname())
        accepted, _ = listening.accept()
        port: int = listening.getsockname()[1]
        accepted.close()
        return port
