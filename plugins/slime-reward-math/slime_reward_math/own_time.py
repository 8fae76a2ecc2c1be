"""Own time: seconds that this thread has worked, without what Python's collector took of them.

A collection runs in whichever thread happens to ask for memory, and takes a second and more of it where the process
holds millions of objects: a verdict that was reached in a millisecond was a timeout there.

    deadline = own_time() + 1.0
"""

import gc
import threading
import time

DEADLINE_S = 1.0
"""Seconds of one verdict, of its thread's own time: no busy machine changes it, nor a collection of garbage.

The bounds of the reader and the evaluation keep almost all below 0.01.
"""


class _Collections(threading.local):
    """Of one thread."""

    began = 0.0
    took_s = 0.0


_here = _Collections()


def own_time() -> float:
    """Processor seconds of this thread, the collector's left out; only differences mean anything."""
    return time.thread_time() - _here.took_s


def _note(phase: str, info: dict[str, int]) -> None:
    if phase == "start":
        _here.began = time.thread_time()
    else:
        _here.took_s += time.thread_time() - _here.began


gc.callbacks.append(_note)
