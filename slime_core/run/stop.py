"""Ctrl-C with manners: once, finish the step and save; twice, stop at once. SIGTERM and SIGHUP count as once."""

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
    """Turn SIGINT, SIGTERM and SIGHUP into a stop request; SIGINT after any of them cancels the current task.

    A SIGHUP that is ignored, as under nohup, stays ignored.
    """
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

    taken = {signal.SIGINT, signal.SIGTERM}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        taken.add(signal.SIGHUP)
    for each in taken:
        loop.add_signal_handler(each, stop, each is signal.SIGINT)
    try:
        yield
    finally:
        for each in taken:
            loop.remove_signal_handler(each)
