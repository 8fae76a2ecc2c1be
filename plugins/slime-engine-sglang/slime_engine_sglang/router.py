"""Router: the process that requests go through, and which servers it deals them to.

Example:

    router = Router(settings, launcher, within_s=3600.0)
    await router.start()
    await router.add("http://127.0.0.1:30000")
    reply = await router.server.ask("/generate", body)
"""

import asyncio
import math
import sys
from collections.abc import Mapping, Sequence
from typing import cast

from pydantic import JsonValue

from slime_core.errors import WorkerError
from slime_core.roles import Launcher, Needs, WorkerGroup, WorkerGroupSpec, command_line
from slime_engine_sglang.arguments import router_arguments
from slime_engine_sglang.server import Server, Table
from slime_engine_sglang.settings import ROUTER_MODULES, RouterSettings

HOST = "slime_engine_sglang.router_host:RouterHost"
START_S = 60.0
"""Seconds in which it must listen, and in which it must have taken a server in."""
POLL_S = 0.05
LOOK_S, DEAF_S = 1.0, 5.0
"""Seconds between two looks whether it lives, and within which it must answer."""
DEFAULTS: Mapping[str, JsonValue] = {
    "log_level": "warn",
    "prometheus_host": "127.0.0.1",
    "worker_startup_check_interval": 1,
    # What a server fails is asked of the engine's own, and who is ill is the pool's to find.
    "disable_retries": True,
    "disable_health_check": True,
}
"""What a run's router is told, where nothing else is said."""


class Router:
    """One router, started anew whenever it has ended."""

    def __init__(self, settings: RouterSettings, launcher: Launcher, *, within_s: float) -> None:
        """Start nothing yet; `within_s`: seconds that a request may take."""
        self._settings, self._launcher, self._within_s = settings, launcher, within_s
        self._group: WorkerGroup | None = None
        self._server: Server | None = None

    @property
    def server(self) -> Server:
        """Where requests go."""
        assert self._server is not None, "it was started"
        return self._server

    async def start(self) -> None:
        """Start it; returns when it listens.

        Raises:
            WorkerError: it ended, or did not listen in time; with the last lines of its log.
        """
        command = await asyncio.to_thread(self._command)
        spec = WorkerGroupSpec("router", 1, HOST, {"command": command}, Needs(cpus=0.0))
        group = self._group = await self._launcher.start(spec)
        url, pid = cast(tuple[str, int], (await group.call("address"))[0])
        server = self._server = Server(url, f"router (pid {pid})")
        life = asyncio.create_task(group.watch())
        try:
            async with asyncio.timeout(START_S):
                while not await server.listens("/liveness", DEAF_S):
                    await asyncio.wait([life], timeout=POLL_S)
                    if life.done():
                        life.result()
        except TimeoutError:
            raise WorkerError(f"{server.title} did not listen in {START_S:g} s") from None
        finally:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)

    def _command(self) -> Sequence[str]:
        """What starts it, but for its host and ports."""
        settings = self._settings
        try:
            known = router_arguments(settings.use, settings.python)
        except ValueError as error:
            raise WorkerError(str(error)) from None
        own: dict[str, JsonValue] = {"policy": settings.policy, "request_timeout_secs": math.ceil(self._within_s)}
        python = str(settings.python or sys.executable)
        return [python, "-m", ROUTER_MODULES[settings.use], *command_line(known, {**DEFAULTS, **own, **settings.args})]

    async def add(self, url: str) -> None:
        """Have it deal requests to a server, too.

        Raises:
            WorkerError: it does not.
        """
        await self.server.ask("/workers", {"url": url}, within_s=START_S)
        try:
            async with asyncio.timeout(START_S):
                while not (listed := await self._listed(url)) or not listed["is_healthy"]:  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise WorkerError(f"{self.server.title} has not taken {url} in within {START_S:g} s") from None

    async def remove(self, url: str) -> None:
        """Have it deal no more requests to a server; what is under way goes on."""
        if listed := await self._listed(url):
            await self.server.ask(f"/workers/{listed['id']}", method="DELETE", within_s=DEAF_S)

    async def watch(self) -> None:
        """Wait until it is closed.

        Raises:
            WorkerError: it has ended, or does not answer any more.
        """
        assert self._group is not None, "it was started"
        life = asyncio.create_task(self._group.watch())
        try:
            while not life.done():
                await asyncio.wait([life], timeout=LOOK_S)
                if not life.done() and not await self.server.listens("/liveness", DEAF_S):
                    await asyncio.wait([life], timeout=LOOK_S)  # it may have ended
                    if not life.done():
                        raise WorkerError(f"{self.server.title} does not answer any more")
            life.result()
        finally:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)

    async def close(self) -> None:
        """End it; whoever waits for an answer gets a WorkerError."""
        if self._group is not None:
            await self._group.close()
        if self._server is not None:
            await self._server.close()

    async def _listed(self, url: str) -> Table | None:
        workers = await self.server.ask("/workers", within_s=DEAF_S)
        listed = self.server.understood("/workers", lambda: cast(Sequence[Table], workers["workers"]))
        return next((each for each in listed if each["url"] == url), None)
