"""RayWorker: one actor of a group on the driver's side, with its calls, its death and its log."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import ray
from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError, RayError, RayTaskError

from slime_core.errors import WorkerError
from slime_core.processes import GroupWorker, Reply
from slime_core.roles import Place
from slime_launcher_ray.actor import Actor, Site, WorkerSetup

ENDS = (RayActorError, OutOfMemoryError, NodeDiedError)
"""Ray's errors for a call to an actor whose process is gone."""


class RayWorker(GroupWorker):
    """One actor of a group."""

    def __init__(
        self,
        name: str,
        actor: "ray.actor.ActorHandle[Actor]",
        site: Site,
        bundle: int,
        on_ended: Callable[[], Awaitable[None]],
    ) -> None:
        """Wrap an actor whose location is known; `assign` sets its rank.

        Args:
            name: the group's name.
            actor: the actor's handle.
            site: the actor's location.
            bundle: index of the actor's bundle in the placement group.
            on_ended: awaited when the process is gone.
        """
        super().__init__(name, Place(0), Path())
        self.site, self.bundle = site, bundle
        self._name, self._actor, self._on_ended = name, actor, on_ended
        self._ended = asyncio.Event()
        self._reason = ""
        self._waiting: asyncio.Future[object] | None = None
        self._busy = False
        self._watcher = asyncio.create_task(self._watch())

    def assign(self, setup: WorkerSetup, spec: "ray.ObjectRef[object]") -> None:
        """Set the actor's place in the group."""
        self.place, self.log = setup.place, Path(setup.log)
        self.title = f"{self._name} {setup.place.rank}"
        self._task: tuple[WorkerSetup, ray.ObjectRef[object]] | None = (setup, spec)

    @property
    def state(self) -> str:
        """The actor's process and node."""
        return f"pid {self.site.pid} on {self.site.address}"

    @property
    def has_ended(self) -> bool:
        """Whether the actor's process has ended."""
        return self._ended.is_set()

    def mark_lost(self, reason: str) -> None:
        """Mark the actor as ended because its cluster is lost, and end its process if it is still running."""
        self._reason = self._reason or reason
        with suppress(RayError):
            self._actor.leave.remote()
        self._ended.set()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(_WorkerGone())

    async def stop(self) -> None:
        """End the process and its children, and wait until it is gone."""
        if not self._ended.is_set():
            with suppress(TimeoutError, RayError):
                async with asyncio.timeout(self.BUSY_GRACE_S if self._busy else self.CLOSE_S):
                    await asyncio.wrap_future(self._actor.close.remote().future())
            await asyncio.to_thread(ray.kill, self._actor, no_restart=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.DEATH_S):
                    await self._ended.wait()
        self._ended.set()
        self._watcher.cancel()
        async with self._turn:  # lets a waiting call raise its error first
            pass
        await self._on_ended()

    async def _wait_ended(self) -> None:
        await self._ended.wait()

    def _describe_death(self) -> str:
        return f"{self.title} on {self.site.address} died ({self._reason})"

    async def _watch(self) -> None:
        try:
            await self._actor.live.remote()
        except (RayError, ValueError) as error:
            self._reason = self._reason or death_reason(error)
        self._ended.set()

    async def _exchange(self, what: str, call: tuple[str, tuple[object, ...]] | None) -> object:
        if self._is_stopping or self.has_ended:
            self._raised_death = True
            raise self.death()
        # Drop the reference to the spec: Ray ends a driver that owns objects on a dead node.
        task, self._task = self._task, None
        ask = (
            partial(self._actor.build.remote, *(task or ()))
            if call is None
            else partial(self._actor.call.remote, call[0], *call[1])
        )
        self._busy = True
        try:
            reference = await self._submit(what, ask)
            reply = await self._wait_result(reference)
        except (*ENDS, _WorkerGone) as error:
            if isinstance(error, ENDS):
                self._reason = self._reason or death_reason(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.DEATH_S):
                    await self._ended.wait()
            self._raised_death = True
            raise self.death() from None
        except RayTaskError as error:
            raise WorkerError(f"{self.title}: the result of {what} cannot be sent: {_cause(error)}") from None
        except RayError as error:
            raise WorkerError(f"{self.title}: Ray could not complete {what}: {_line(error)}") from None
        self._busy = False
        return self._value(what, reply) if isinstance(reply, Reply) else reply

    async def _submit(self, what: str, ask: "Callable[[], ray.ObjectRef[object]]") -> "ray.ObjectRef[object]":
        try:
            return await asyncio.to_thread(ask)
        except (TypeError, AttributeError) as error:
            self._busy = False
            raise WorkerError(f"{self.title}: an argument of {what} cannot be sent: {_line(error)}") from error

    async def _wait_result(self, reference: "ray.ObjectRef[object]") -> object:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[object] = loop.create_future()

        def on_done(future: asyncio.Future[object]) -> None:
            if future.cancelled():
                return
            error = future.exception()  # always retrieve it, else asyncio logs it
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(future.result())

        reference.as_future().add_done_callback(on_done)
        self._waiting = answer
        try:
            return await answer
        finally:
            self._waiting = None


class _WorkerGone(Exception):
    """Raised in a waiting call when the worker has ended."""


def death_reason(error: BaseException) -> str:
    """A phrase that says why an actor is gone."""
    text = " ".join(str(error).split())
    message = text.partition("Some common causes")[0]  # what follows are guesses
    if isinstance(error, OutOfMemoryError) or "OOM" in message or "memory usage" in message:
        return "out of memory: Ray killed it because its node had too little memory left"
    if found := re.search(r"ModuleNotFoundError: (No module named '[^']+')", text):
        where = re.search(r"\bip=([\w.:]+)", text)
        return (
            f"{found[1]} on {where[1] if where else 'its node'}: install the package there, or send it with "
            "[launcher.ray] runtime_env = {py_modules = [...]}"
        )
    if found := re.search(r"exit code (\d+)", text):
        return f"exit code {found[1]}"
    if re.search(r"\bnode\b.*\b(died|dead|terminated|down)\b", text) and "worker process" not in text.split("exit")[0]:
        return "its node is gone"
    if "connection error code" in message:
        return "its process was killed without a message, possibly out of memory"
    if found := re.search(r"Worker exit detail: (.*?)(?:\. |$)", text):
        return found[1]
    return text[:300]


def _cause(error: RayTaskError) -> str:
    return _line(error.cause if error.cause is not None else error)


def _line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__).strip()[:500]
