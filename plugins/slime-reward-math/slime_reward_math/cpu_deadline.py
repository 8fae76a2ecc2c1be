"""CPU time for deadlines: processor seconds of this thread, without Python's garbage collection.

A collection runs in the thread that happens to allocate, and takes over a second if the process holds millions of
objects. Counting it turned verdicts that took a millisecond into timeouts.

    deadline = cpu_time() + 1.0
"""

import gc
import threading
import time

DEADLINE_S = 1.0
"""Seconds for one verdict, in its thread's own time, which a busy machine or a garbage collection does not change.

The bounds of reader and evaluation keep almost all verdicts below 0.01.
"""


class _Collections(threading.local):
    """Garbage-collection time of one thread."""

    began = 0.0
    took_s = 0.0


_here = _Collections()


def cpu_time() -> float:
    """Processor seconds of this thread, the collector's left out; only differences mean anything."""
    return time.thread_time() - _here.took_s


def _note(phase: str, info: dict[str, int]) -> None:
    if phase == "start":
        _here.began = time.thread_time()
    else:
        _here.took_s += time.thread_time() - _here.began


gc.callbacks.append(_note)
