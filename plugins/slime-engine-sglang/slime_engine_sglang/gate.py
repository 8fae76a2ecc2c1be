"""Gate: keeps requests from beginning for a while: until all are aborted, or weights are switched.

Example:

    gate = Gate()
    await gate.turn()                   # waits while it is shut
    async with gate.held():             # nothing begins, and no `whole` is under way
        ...
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class Gate:
    """Shut while at least one caller holds it shut."""

    def __init__(self) -> None:
        """It is open."""
        self._holds = self._wholes = 0
        self._changed = asyncio.Event()

    @property
    def is_shut(self) -> bool:
        """Whether nothing may begin."""
        return self._holds > 0

    async def turn(self) -> None:
        """Wait while it is shut."""
        while self._holds:
            await self._changed.wait()

    @contextmanager
    def shut(self) -> Iterator[None]:
        """Nothing new begins; what is under way goes on."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._change()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Shut it, and wait until no `whole` is under way."""
        with self.shut():
            while self._wholes:
                await self._changed.wait()
            yield

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Calls that need the same weights, say: `held` waits for all of them. To be entered after `turn`."""
        self._wholes += 1
        try:
            yield
        finally:
            self._wholes -= 1
            self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
