"""Heap: keeps Python's garbage collector from looking, again and again, at what lives as long as a run.

Example:

    with settled_heap():        # everything is imported and built
        ...                     # a full collection looks at what was made since

The collector looks through all that lives whenever a quarter has been added, on the event loop's thread: 6 ms for what
the core alone imports (55,000 objects), 126 ms where a plugin has imported transformers and torch (240,000). And it
starts after every 700 new objects, where a rollout of a thousand samples keeps sixty thousand alive: that was a fifth
of the controller's time, and after every 20,000 a tenth. What nothing refers to is still freed at once.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEW_OBJECTS = 100_000
"""New objects after which the youngest are looked at."""


@contextmanager
def settled_heap() -> Iterator[None]:
    """Within it, what is there now is set aside, garbage excepted, and collections are rare; process-wide.

    A process that set its collections more rarely, or off, keeps that.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    if 0 < before[0] < NEW_OBJECTS:
        gc.set_threshold(NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
