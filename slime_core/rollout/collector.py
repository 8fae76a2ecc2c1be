"""rare_collections: Python's garbage collector looks less often at what lives long, while many samples are in flight.

It starts after every 700 new objects, and a rollout keeps hundreds of thousands alive: that was a fifth of the
controller's time, and more the more samples were in flight. What nothing refers to is still freed at once.

Example:

    with rare_collections():
        await scheduler.collect(rollout_id=0, want=64)
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEW_OBJECTS = 20_000
"""New objects after which the youngest are looked at."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Within it, collections are rare; process-wide. A process that set them more rarely, or off, keeps that."""
    before = gc.get_threshold()
    if 0 < before[0] < NEW_OBJECTS:
        gc.set_threshold(NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
