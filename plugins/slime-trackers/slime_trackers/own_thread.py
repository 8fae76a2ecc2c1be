"""OwnThread: one thread that makes the calls of a blocking library, in order, while the event loop goes on.

Example:

    thread = OwnThread("slime-tracker-wandb")
    await thread.call(run.log, metrics, step)
    thread.end()

A call that is given up by its caller is still made, and the next ones after it. The thread is a daemon: a library that
hangs does not keep the run's process from ending, as a thread of a pool would.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


class OwnThread:
    """The thread starts with the first call."""

    def __init__(self, name: str) -> None:
        """`name` is that of the thread."""
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def call(self, function: Callable[P, ResultT], *args: P.args, **kwargs: P.kwargs) -> ResultT:
        """What `function` returns or raises, after all calls before it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        answer: Future[ResultT] = Future()

        def make() -> None:
            # Not `set_running_or_notify_cancel`: a call that nobody waits for any more is made all the same.
            try:
                result = function(*args, **kwargs)
            except BaseException as error:  # SystemExit too: it is the caller's to judge
                with contextlib.suppress(Exception):  # nobody waits any more
                    answer.set_exception(error)
            else:
                with contextlib.suppress(Exception):
                    answer.set_result(result)

        self._calls.put(make)
        return await asyncio.wrap_future(answer)

    def end(self) -> None:
        """Let it end after the calls that were asked for; another call starts it anew."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread = None

    def _work(self) -> None:
        while (make := self._calls.get()) is not None:
            make()
