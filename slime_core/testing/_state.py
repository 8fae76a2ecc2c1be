"""What a process shares with everybody in it, before and after: an import that changes it changes it for the run.

Example:

    before = shared_state()
    import a_plugin
    changed_state(before)           # ["changed the recursion limit", "replaced slime_core.score.Score.__repr__"]
"""

import asyncio
import builtins
import gc
import locale
import logging
import os
import random
import resource
import sys
import threading
import types
import warnings
from collections.abc import Iterator, Mapping

_CODE = (types.FunctionType, classmethod, staticmethod, property)


def shared_state() -> Mapping[str, object]:
    """Each thing that is shared, by what to say if it changed."""
    root = logging.getLogger()
    limits = (resource.RLIMIT_NOFILE, resource.RLIMIT_DATA, resource.RLIMIT_STACK)
    state: dict[str, object] = {
        "changed the recursion limit": sys.getrecursionlimit(),
        "configured the root logger": (root.level, tuple(root.handlers), root.manager.disable),
        "removed filters of warnings": frozenset(map(str, warnings.filters)),
        "seeded or used the generator of `random`": random.getstate(),
        "changed the umask": _umask(),
        "changed a limit of the process": tuple(map(resource.getrlimit, limits)),
        "changed the locale": locale.setlocale(locale.LC_ALL),
        "changed the policy of event loops": asyncio.get_event_loop_policy(),
        "changed how memory is collected": (gc.isenabled(), gc.get_threshold()),
        "changed how threads are switched": (sys.getswitchinterval(), threading.stack_size()),
        "replaced sys.excepthook": sys.excepthook,
    }
    return state | {f"replaced {name}": value for name, value in _code()}


def changed_state(before: Mapping[str, object]) -> list[str]:
    """What is not as it was; what was not there before may be new."""
    now = shared_state()
    filters = "removed filters of warnings"
    removed = [filters] if not before[filters] <= now[filters] else []  # type: ignore[operator]
    return removed + [what for what, value in before.items() if what != filters and now.get(what) != value]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _code() -> Iterator[tuple[str, object]]:
    """The built-in functions, and every function and method of the core that is loaded."""
    yield from ((name, value) for name, value in vars(builtins).items() if callable(value))
    for module in [each for name, each in sys.modules.items() if name.partition(".")[0] == "slime_core"]:
        for name, value in list(vars(module).items()):
            home = getattr(value, "__module__", None)
            if home == module.__name__ and isinstance(value, _CODE):
                yield f"{home}.{name}", value
            elif home == module.__name__ and isinstance(value, type):
                methods = [(each, code) for each, code in vars(value).items() if isinstance(code, _CODE)]
                yield from ((f"{home}.{name}.{each}", code) for each, code in methods)
