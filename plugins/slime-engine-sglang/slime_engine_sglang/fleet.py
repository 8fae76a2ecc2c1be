"""Fleet: what the engines of a run share: the router before their servers, and which of those it deals to.

A server is put behind the router when it has answered a request that was put to itself, and taken away when its engine
is closed. The router is asked while all servers behind it serve the same weights; else, and while it is being started
anew, each engine asks its own server.

Example:

    fleet = Fleet.of(setup, settings)
    await fleet.enter()
    server = fleet.router_for(own, request) or own
    await fleet.leave(own)
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from weakref import WeakKeyDictionary

from slime_core.errors import SlimeError, WorkerError
from slime_core.roles import EngineRole, EngineSetup, Extra, GenerateRequest, Launcher
from slime_engine_sglang.gate import Gate
from slime_engine_sglang.router import Router
from slime_engine_sglang.server import Server
from slime_engine_sglang.settings import LEAVES_OUT, SglangSettings

FIRST_S, LONGEST_S = 1.0, 60.0
"""Seconds before a router is started again: the first pause, and the longest."""

log = logging.getLogger(__name__)
_fleets: "WeakKeyDictionary[Launcher, dict[tuple[EngineRole, Path], Fleet]]" = WeakKeyDictionary()


class Fleet:
    """The servers of one run's engines of one model; without a router it does nothing."""

    def __init__(self, setup: EngineSetup, settings: SglangSettings) -> None:
        """No engine has entered yet."""
        self.gate = Gate()
        """Shut while all requests of any of the engines are aborted."""
        chosen = settings.router
        self._leaves_out = LEAVES_OUT[chosen.use] if chosen else frozenset[Extra]()
        self._router = Router(chosen, setup.launcher, within_s=settings.request_timeout_s) if chosen else None
        self._versions: dict[Server, int | None] = {}
        self._behind: set[Server] = set()
        self._proved: set[Server] = set()
        self._users = 0
        self._is_up = self._agree = False
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._mind: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, setup: EngineSetup, settings: SglangSettings) -> "Fleet":
        """The fleet of a run's engines of one model, found by the launcher that they share."""
        fleets = _fleets.setdefault(setup.launcher, {})
        return fleets.setdefault((setup.role, setup.hf_checkpoint), cls(setup, settings))

    async def enter(self) -> None:
        """An engine begins; the first one starts the router.

        Raises:
            WorkerError: it could not be started.
        """
        self._users += 1
        async with self._turn:
            if self._router is None or self._mind is not None:
                return
            try:
                await self._router.start()
            except BaseException:
                await self._router.close()
                raise
            self._is_up = True
            self._mind = asyncio.create_task(self._kept(self._router))

    async def leave(self, server: Server | None) -> None:
        """An engine that has entered ends; the last one ends the router."""
        self._users -= 1
        if server is not None:
            await self._removed(server)
        async with self._turn:
            if self._users or self._router is None or self._mind is None:
                return
            mind, self._mind, self._is_up = self._mind, None, False
            for task in (mind, *self._tasks):
                task.cancel()
            await asyncio.gather(mind, *self._tasks, return_exceptions=True)
            await self._router.close()

    def serves(self, server: Server, version: int | None) -> None:
        """A server has these weights from now on; None: others are being loaded."""
        self._versions[server] = version
        self._look()

    def prove(self, server: Server) -> None:
        """A server has answered what was put to itself."""
        if self._router is not None and server not in self._proved:
            self._proved.add(server)
            task = asyncio.create_task(self._added(self._router, server))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def router_for(self, own: Server, request: GenerateRequest) -> Server | None:
        """Where a request goes instead of its engine's own server; None: nowhere."""
        if not self._is_up or not self._agree or own not in self._behind or request.want & self._leaves_out:
            return None
        assert self._router is not None, "it is up"
        return self._router.server

    def may_be_at(self, own: Server) -> Sequence[Server]:
        """Servers that may be working on a request of an engine."""
        return [own, *(self._behind - {own})] if own in self._behind else [own]

    async def _added(self, router: Router, server: Server) -> None:
        try:
            await router.add(server.url)
        except SlimeError as error:
            log.warning("%s is not put behind the router: %s", server.title, error)
            return
        if server in self._proved:  # it has not left meanwhile
            self._behind.add(server)
            self._look()

    async def _removed(self, server: Server) -> None:
        for known in (self._behind, self._proved):
            known.discard(server)
        self._versions.pop(server, None)
        self._look()
        if self._router is not None and self._is_up:
            with suppress(SlimeError):
                await self._router.remove(server.url)

    def _look(self) -> None:
        versions = {self._versions.get(each) for each in self._behind}
        self._agree = len(versions) == 1 and None not in versions

    async def _kept(self, router: Router) -> None:
        """Start the router again whenever it ends."""
        while True:
            try:
                await router.watch()
                return
            except WorkerError as error:
                self._is_up = False
                log.warning("servers are asked without the router until it is back: %s", error)
            pause_s = FIRST_S
            while not self._is_up:
                await router.close()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_S)
                try:
                    await router.start()
                    for server in tuple(self._behind):
                        await router.add(server.url)
                    self._is_up = True
                except SlimeError as error:
                    log.warning("the router could not be started again, next in %g s: %s", pause_s, error)
            log.warning("the router is back")
