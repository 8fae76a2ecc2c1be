"""Served: an engine under test with its setup, started and closed once for a check, or once for a class of them."""

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from slime_core.roles import EngineSetup, WeightChannel
from slime_testing._play import Play

ResultT = TypeVar("ResultT")


@dataclass(slots=True)
class Served:
    """An engine, its setup and the version that it serves."""

    setup: EngineSetup
    """What it was built from."""
    play: Play
    """The engine."""
    publish: Callable[[EngineSetup, int], WeightChannel]
    """The author's."""
    version: int | None = None
    """Version of the weights that it was told to load last."""

    async def start(self) -> None:
        """Start it with version 0."""
        await self.play.limited(self.play.engine.start(), "start()")
        await self.load(0)

    async def load(self, version: int) -> None:
        """Publish a version and load it."""
        channel = await asyncio.to_thread(self.publish, self.setup, version)
        await self.play.limited(self.play.engine.load_weights(channel, version), "load_weights()")
        self.version = version

    async def close(self) -> None:
        """Close it, and its launcher."""
        await self.play.limited(self.play.engine.close(), "close()")
        await self.setup.launcher.close()


@dataclass(slots=True)
class Kept:
    """An engine that serves one check after the other, in a loop of its own."""

    serve: Callable[[Path], Served]
    """Builds it, in a folder for its files."""
    _runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    _scratch: "tempfile.TemporaryDirectory[str]" = field(default_factory=tempfile.TemporaryDirectory)
    _served: Served | None = None

    def run(self, use: Callable[[Served], Coroutine[None, None, ResultT]]) -> ResultT:
        """Use it, with version 0 loaded; it is started before the first use."""

        async def using() -> ResultT:
            if self._served is None:
                self._served = self.serve(Path(self._scratch.name))
                await self._served.start()
            elif self._served.version != 0:
                await self._served.load(0)
            return await use(self._served)

        return self._runner.run(using())

    def end(self) -> None:
        """Close it."""
        served, self._served = self._served, None
        try:
            if served is not None:
                self._runner.run(served.close())
        finally:
            self._runner.close()
            self._scratch.cleanup()
