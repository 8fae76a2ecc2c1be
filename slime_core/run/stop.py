"""Ctrl-C with manners: once, finish the step and save; twice, stop at once. SIGTERM counts as once."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StopRequest:
    """Whether somebody asked the run to end early, and who."""

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self.asked = False
        """End after the current step."""
        self.enough = False
        """A run hook said that the run is complete as it is."""

    def ask(self, enough: bool = False) -> None:
        """End after the current step."""
        self.asked = True
        self.enough = self.enough or enough


@contextmanager
def on_signals(request: StopRequest, notify: Callable[[str], None]) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into a stop request; SIGINT after either cancels the current task."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    signalled = False

    def stop(at_once: bool) -> None:
        nonlocal signalled
        if at_once and signalled and task is not None:
            notify("stopping at once; the newest checkpoint stays")
            task.cancel()
        elif not signalled:
            signalled = True
            request.ask()
            notify("finishing this step, then saving; press Ctrl-C again to stop at once")

    loop.add_signal_handler(signal.SIGINT, stop, True)
    loop.add_signal_handler(signal.SIGTERM, stop, False)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
