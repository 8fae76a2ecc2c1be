"""Names plugins that are slow to load: every command waits for them.

Example:

    with watched("slime-mine"):
        module = entry_point.load()         # after 2 s one line on standard error names slime-mine
    loads()["slime-mine"].seconds
"""

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

SLOW_S = 2.0
"""Seconds of loading after which a plugin is named."""


@dataclass(frozen=True, slots=True)
class Load:
    """The first load of a plugin in this process."""

    seconds: float
    """Wall time."""
    imported: frozenset[str]
    """Modules that it was the first to import, packages of others included."""


_LOADS: dict[str, Load] = {}


def loads() -> Mapping[str, Load]:
    """The first load of each plugin, by `Candidate.plugin`; a later one finds its modules imported."""
    return dict(_LOADS)


@contextmanager
def watched(plugin: str) -> Iterator[None]:
    """Load a plugin in this block: record its load, and name the plugin once if it takes `SLOW_S` or more."""
    before, began, unnamed = set(sys.modules), time.perf_counter(), threading.Lock()

    def name() -> None:
        if unnamed.acquire(blocking=False):
            taken = time.perf_counter() - began
            said = f"plugin {plugin} takes {taken:.1f} s to load and every command waits: {how_to_speed_up(plugin)}"
            sys.stderr.write(f"warning: {said}\n")

    timer = threading.Timer(SLOW_S, name)  # while it loads, for it may never end
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        load = Load(time.perf_counter() - began, frozenset(sys.modules.keys() - before))
        _LOADS.setdefault(plugin, load)
        if load.seconds >= SLOW_S:  # an import that holds the interpreter's lock keeps the timer waiting
            name()


def how_to_speed_up(plugin: str) -> str:
    """What to do about a slow plugin."""
    return f"its author imports heavy packages inside factories; you leave it out with --no-plugin {plugin}"
