"""A virtual clock for asyncio: nothing waits for real; when nothing can run, time jumps to the next timer.

Example:

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(asyncio.sleep(3600))         # returns at once; loop.time() is 3600.0
"""

import asyncio
import selectors


class _Jump(selectors.DefaultSelector):
    """Looks at files without waiting for them, and lets the time pass instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Pass the time that would have been waited.

        Raises:
            RuntimeError: there is nothing to wait for, and so no end of it.
        """
        if timeout is None:
            raise RuntimeError("everything waits, and nothing will ever happen")
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is counted in events."""

    def __init__(self) -> None:
        """Start at 0.0 seconds."""
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        """Virtual seconds."""
        return self._jump.now
