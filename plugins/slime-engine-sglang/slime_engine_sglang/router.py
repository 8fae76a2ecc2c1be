"""Router: the process that distributes requests. Fleet: which of a run's servers are behind the router.

A server is added to the router after it has answered a direct request, and removed when its engine closes. Requests go
through the router while all its servers serve the same weights. Otherwise, and while the router restarts, each engine
sends requests to its own server.

Example:

    fleet = Fleet.of(setup, settings)
    await fleet.enter()
    server = fleet.router_for(own, request) or own
    await fleet.leave(own)
"""

import asyncio
import logging
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import cast
from weakref import WeakKeyDictionary

from pydantic import JsonValue

from slime_core.errors import SlimeError, WorkerError
from slime_core.roles import (
    EngineSetup,
    Extra,
    GenerateRequest,
    Launcher,
    Needs,
    WorkerGroup,
    WorkerGroupSpec,
)
from slime_engine_sglang.arguments import router_arguments
from slime_engine_sglang.calls import Gate
from slime_engine_sglang.command_line import command_line
from slime_engine_sglang.server import Server, Table
from slime_engine_sglang.settings import DROPPED_EXTRAS, ROUTER_MODULES, RouterSettings, SglangSettings

ROUTER_HOST = "slime_engine_sglang.host:RouterHost"
START_S = 60.0  # Seconds within which a router must listen, and within which it must add a server
POLL_S = 0.05
CHECK_S, ANSWER_S = 1.0, 5.0  # Seconds between two liveness checks, and within which the router must answer
DEFAULTS: Mapping[str, JsonValue] = {
    "log_level": "warn",
    "prometheus_host": "127.0.0.1",
    "worker_startup_check_interval": 1,
    # No retries or health checks: failed requests go to the engine's own server, and the pool finds dead ones.
    "disable_retries": True,
    "disable_health_check": True,
}  # Default arguments of a run's router


class Router:
    """One router process. `Fleet` restarts it when it ends."""

    def __init__(self, settings: RouterSettings, launcher: Launcher, *, timeout_s: float) -> None:
        self._settings, self._launcher, self._timeout_s = settings, launcher, timeout_s
        self._group: WorkerGroup | None = None
        self._server: Server | None = None

    @property
    def server(self) -> Server:
        assert self._server is not None, "start() has ended"
        return self._server

    async def start(self) -> None:
        command = await asyncio.to_thread(self._command)
        spec = WorkerGroupSpec("router", 1, ROUTER_HOST, {"command": command}, Needs(cpus=0.0))
        group = self._group = await self._launcher.start(spec)
        url, pid = cast(tuple[str, int], (await group.call("address"))[0])
        server = self._server = Server(url, f"router (pid {pid})")
        group_watch = asyncio.create_task(group.watch())
        try:
            async with asyncio.timeout(START_S):
                while not await server.listens("/liveness", ANSWER_S):
                    await asyncio.wait([group_watch], timeout=POLL_S)
                    if group_watch.done():
                        group_watch.result()
        except TimeoutError:
            raise WorkerError(f"{server.title} did not start within {START_S:g} s") from None
        finally:
            group_watch.cancel()
            await asyncio.gather(group_watch, return_exceptions=True)

    def _command(self) -> Sequence[str]:
        settings = self._settings
        try:
            known = router_arguments(settings.use, settings.python)
        except ValueError as error:
            raise WorkerError(str(error)) from None
        own: dict[str, JsonValue] = {"policy": settings.policy, "request_timeout_secs": math.ceil(self._timeout_s)}
        python = str(settings.python or sys.executable)
        return [python, "-m", ROUTER_MODULES[settings.use], *command_line(known, {**DEFAULTS, **own, **settings.args})]

    async def add(self, url: str) -> None:
        await self.server.ask("/workers", {"url": url}, timeout_s=START_S)
        try:
            async with asyncio.timeout(START_S):
                while not (listed := await self._find_worker(url)) or not listed["is_healthy"]:  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise WorkerError(f"{self.server.title} did not add {url} within {START_S:g} s") from None

    async def remove(self, url: str) -> None:
        """Stop routing new requests to a server; running requests continue."""
        if listed := await self._find_worker(url):
            await self.server.ask(f"/workers/{listed['id']}", method="DELETE", timeout_s=ANSWER_S)

    async def watch(self) -> None:
        assert self._group is not None, "start() has ended"
        group_watch = asyncio.create_task(self._group.watch())
        try:
            while not group_watch.done():
                await asyncio.wait([group_watch], timeout=CHECK_S)
                if not group_watch.done() and not await self.server.listens("/liveness", ANSWER_S):
                    await asyncio.wait([group_watch], timeout=CHECK_S)  # the process may just have ended
                    if not group_watch.done():
                        raise WorkerError(f"{self.server.title} does not answer any more")
            group_watch.result()
        finally:
            group_watch.cancel()
            await asyncio.gather(group_watch, return_exceptions=True)

    async def close(self) -> None:
        if self._group is not None:
            await self._group.close()
        if self._server is not None:
            await self._server.close()

    async def _find_worker(self, url: str) -> Table | None:
        workers = await self.server.ask("/workers", timeout_s=ANSWER_S)
        listed = self.server.parse("/workers", lambda: cast(Sequence[Table], workers["workers"]))
        return next((each for each in listed if each["url"] == url), None)


RESTART_S, LONGEST_RESTART_S = 1.0, 60.0  # Seconds before a router is restarted: the first pause and the longest

log = logging.getLogger(__name__)
_fleets: "WeakKeyDictionary[Launcher, dict[str, Fleet]]" = WeakKeyDictionary()


class Fleet:
    """The servers of a run's engines of one model. Without a router it does nothing."""

    def __init__(self, setup: EngineSetup, settings: SglangSettings) -> None:
        self.gate = Gate()  # Closed while an engine aborts all its requests
        chosen = settings.router
        self._dropped = DROPPED_EXTRAS[chosen.use] if chosen else frozenset[Extra]()
        self._router = Router(chosen, setup.launcher, timeout_s=settings.request_timeout_s) if chosen else None
        self._versions: dict[Server, int | None] = {}
        self._routed: set[Server] = set()
        self._working: set[Server] = set()
        self._engine_count = 0
        self._is_up = self._versions_agree = False
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeper: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, setup: EngineSetup, settings: SglangSettings) -> "Fleet":
        fleets = _fleets.setdefault(setup.launcher, {})
        return fleets.setdefault(setup.serves, cls(setup, settings))

    async def enter(self) -> None:
        """Register an engine. The first engine starts the router. Raises WorkerError: the router could not start."""
        self._engine_count += 1
        async with self._lock:
            if self._router is None or self._keeper is not None:
                return
            try:
                await self._router.start()
            except BaseException:
                await self._router.close()
                raise
            self._is_up = True
            self._keeper = asyncio.create_task(self._keep_running(self._router))

    async def leave(self, server: Server | None) -> None:
        self._engine_count -= 1
        if server is not None:
            await self._remove(server)
        async with self._lock:
            if self._engine_count or self._router is None or self._keeper is None:
                return
            keeper, self._keeper, self._is_up = self._keeper, None, False
            for task in (keeper, *self._tasks):
                task.cancel()
            await asyncio.gather(keeper, *self._tasks, return_exceptions=True)
            await self._router.close()

    def set_version(self, server: Server, version: int | None) -> None:
        self._versions[server] = version
        self._compare_versions()

    def mark_working(self, server: Server) -> None:
        if self._router is not None and server not in self._working:
            self._working.add(server)
            task = asyncio.create_task(self._add(self._router, server))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def router_for(self, own: Server, request: GenerateRequest) -> Server | None:
        """The router for a request; None: use the engine's own server."""
        if not self._is_up or not self._versions_agree or own not in self._routed or request.want & self._dropped:
            return None
        assert self._router is not None, "_is_up"
        return self._router.server

    def possible_servers(self, own: Server) -> Sequence[Server]:
        """Servers that may be working on a request of an engine."""
        return [own, *(self._routed - {own})] if own in self._routed else [own]

    async def _add(self, router: Router, server: Server) -> None:
        try:
            await router.add(server.url)
        except SlimeError as error:
            log.warning("%s was not added to the router: %s", server.title, error)
            return
        if server in self._working:  # its engine has not closed meanwhile
            self._routed.add(server)
            self._compare_versions()

    async def _remove(self, server: Server) -> None:
        for known in (self._routed, self._working):
            known.discard(server)
        self._versions.pop(server, None)
        self._compare_versions()
        if self._router is not None and self._is_up:
            with suppress(SlimeError):
                await self._router.remove(server.url)

    def _compare_versions(self) -> None:
        versions = {self._versions.get(each) for each in self._routed}
        self._versions_agree = len(versions) == 1 and None not in versions

    async def _keep_running(self, router: Router) -> None:
        while True:
            try:
                await router.watch()
                return
            except WorkerError as error:
                self._is_up = False
                log.warning("requests bypass the router until it is back: %s", error)
            pause_s = RESTART_S
            while not self._is_up:
                await router.close()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_RESTART_S)
                try:
                    await router.start()
                    for server in tuple(self._routed):
                        await router.add(server.url)
                    self._is_up = True
                except SlimeError as error:
                    log.warning("the router could not restart, next try in %g s: %s", pause_s, error)
            log.warning("the router is back")
