"""Interrupt: raises TimeoutError in a plugin's code that keeps the event loop's thread beyond its limit.

Example:

    with Interrupt(look) as interrupt:      # `look(frame)` names the call that a frame of the main thread is in
        interrupt.put_off()                 # the loop runs; called every now and then
        interrupt.now(thread_id)            # the loop is held up: look, and raise if need be

A signal reaches what sleeps, waits for a lock or spins, in Python or in a regular expression. C code that never looks
for signals cannot be interrupted.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Protocol, Self

SIGNAL = signal.SIGVTALRM
"""Signal of the CPU timer: it fires even while C code holds the interpreter and no other thread runs."""
FIRST_S, EVERY_S = 2.0, 1.0
"""CPU seconds without a turn of the loop before the first look, and between two looks."""
GRACE_S = 1.0
"""Seconds between two interrupts of one call."""
MOST_INTERRUPTS = 10
"""Interrupts that one call may catch; then the process ends."""


class Held(Protocol):
    """A call that the thread is in."""

    @property
    def entry(self) -> FrameType:
        """Where the core called the plugin."""
        ...

    @property
    def limit_s(self) -> float:
        """Seconds for which it may keep the loop."""
        ...

    @property
    def told(self) -> str:
        """Role, plugin and place."""
        ...


class Interrupt:
    """Signals to the main thread; elsewhere Python has none, and this does nothing."""

    def __init__(self, look: Callable[[FrameType], Held | None]) -> None:
        """Watch nothing yet; `look` is None where no plugin's code runs."""
        self._look = look
        self._entry: FrameType | None = None
        self._since = 0.0
        self._count = 0
        self._on = False

    def __enter__(self) -> Self:
        """Take the signal over."""
        self._on = threading.current_thread() is threading.main_thread()
        if self._on:
            self._before = signal.signal(SIGNAL, self._heard)
            if (wakeup := signal.set_wakeup_fd(-1)) >= 0:  # the loop's; it need not hear of each signal
                signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        return self

    def __exit__(self, *exc: object) -> None:
        """Give the signal back."""
        if self._on:
            self._on = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            signal.signal(SIGNAL, self._before)
            self._entry = None

    def put_off(self) -> None:
        """The loop lives: start the timer anew."""
        self._entry = None
        if self._on:
            signal.setitimer(signal.ITIMER_VIRTUAL, FIRST_S, EVERY_S)

    def now(self, thread_id: int) -> None:
        """Have the main thread look at what it is doing; called from another thread."""
        if self._on:
            with suppress(ProcessLookupError):
                signal.pthread_kill(thread_id, SIGNAL)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        """Runs in the main thread, between two instructions of what it does; what this raises is raised there."""
        held, now = self._look(frame) if frame is not None else None, time.monotonic()
        if held is None or held.entry is not self._entry:
            # The frame is kept, so that no later call has the same identity.
            self._entry, self._since, self._count = held.entry if held else None, now, 0
            return
        if now - self._since < held.limit_s + self._count * GRACE_S:
            return
        self._count += 1
        if self._count > MOST_INTERRUPTS:
            os.write(2, f"error: {held.told} keeps the event loop and cannot be stopped: the run ends\n".encode())
            os._exit(1)
        raise TimeoutError(f"it kept the event loop for {now - self._since:.1f} s")
