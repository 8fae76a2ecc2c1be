"""A virtual clock for asyncio: when nothing can run, time jumps to the next timer.

Example:

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(asyncio.sleep(3600))         # returns at once; loop.time() is 3600.0
"""

import asyncio
import selectors


class _Jump(selectors.DefaultSelector):
    """Polls files without waiting, and advances the virtual time instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Advance the virtual time by the timeout.

        Raises:
            RuntimeError: no timer is set, so that the loop would wait forever.
        """
        if timeout is None:
            raise RuntimeError("the simulation has a deadlock: all tasks wait, and no timer is set")
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on a virtual clock."""

    def __init__(self) -> None:
        """Start at 0.0 seconds."""
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        """Virtual seconds."""
        return self._jump.now
