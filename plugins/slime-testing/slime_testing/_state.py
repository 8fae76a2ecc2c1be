"""Compares process-wide state before and after an import or a call.

Example:

    before = shared_state()
    import a_plugin
    changed_state(before)           # ["changed the recursion limit", "replaced slime_core.score.Score.__repr__"]
"""

import asyncio
import builtins
import gc
import json
import locale
import logging
import math
import os
import random
import resource
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator, Mapping

_CODE = (types.FunctionType, classmethod, staticmethod, property)
RANDOM = "seeded or used the global generator of `random`"
FILTERS = "removed warning filters"


def shared_state() -> Mapping[str, object]:
    return {**settings_state(), **code_state()}


def settings_state() -> Mapping[str, object]:
    """Process-wide settings; cheap enough to read at every import."""
    root = logging.getLogger()
    limits = (resource.RLIMIT_NOFILE, resource.RLIMIT_DATA, resource.RLIMIT_STACK)
    return {
        "changed the recursion limit": sys.getrecursionlimit(),
        "configured the root logger": (root.level, tuple(root.handlers), root.manager.disable),
        FILTERS: frozenset(map(str, warnings.filters)),
        RANDOM: random.getstate(),
        "changed the umask": _umask(),
        "changed a resource limit of the process": tuple(map(resource.getrlimit, limits)),
        "changed the locale": locale.setlocale(locale.LC_ALL),
        "changed the event loop policy": asyncio.get_event_loop_policy(),
        "changed settings of the garbage collector": (gc.isenabled(), gc.get_threshold()),
        "changed settings of threads": (sys.getswitchinterval(), threading.stack_size()),
        "replaced sys.excepthook": sys.excepthook,
    }


def code_state() -> Mapping[str, object]:
    """Functions and classes that all code in the process shares, by the message for a replaced one."""
    return {f"replaced {name}": value for name, value in _code()}


def changed_state(before: Mapping[str, object]) -> list[str]:
    """Messages for differences from `before`; additions do not count."""
    return difference(before, shared_state())


def difference(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    removed = FILTERS in before and not before[FILTERS] <= now[FILTERS]  # type: ignore[operator]  # these are sets
    changed = [text for text, value in before.items() if text != FILTERS and now.get(text) != value]
    return [FILTERS, *changed] if removed else changed


def changed_by(call: Callable[[], object], code: Mapping[str, object]) -> list[str]:
    """Messages for process-wide changes by a call; `code` is the `code_state` before the first call.

    The call may draw from `random`, but not seed it. Seeding shows as the same generator state after each call.
    """
    original, states = random.getstate(), []
    try:
        random.seed(1)
        before = settings_state()
        call()
        now = {**settings_state(), RANDOM: before[RANDOM]}
        for seed in (2, 3):
            random.seed(seed)
            call()
            states.append(random.getstate())
    finally:
        random.setstate(original)
    seeded = ["seeded the global generator of `random`"] if states[0] == states[1] else []
    return seeded + difference(before, now) + difference(code, code_state())


def plain_state(state: object) -> str:
    """The result of `state_dict`, as JSON text.

    Raises:
        AssertionError: it is not plain JSON; the message contains the key.
    """
    try:
        return json.dumps(state, allow_nan=False)
    except (TypeError, ValueError) as error:
        where = f", at {path}" if (path := _invalid_path(state)) else ""
        raise AssertionError(f"state_dict is not plain JSON{where}: {error}") from None


def _invalid_path(value: object, path: str = "state_dict()") -> str:
    items: list[tuple[str, object]] = []
    if isinstance(value, dict):
        if invalid := next((key for key in value if not isinstance(key, str)), None):
            return f"{path}, key {invalid!r}"
        items = [(f"{path}[{key!r}]", each) for key, each in value.items()]
    elif isinstance(value, list | tuple):
        items = [(f"{path}[{place}]", each) for place, each in enumerate(value)]
    for below, each in items:
        if found := _invalid_path(each, below):
            return found
    if value is None or isinstance(value, dict | list | tuple | str | bool | int):
        return ""
    return "" if isinstance(value, float) and math.isfinite(value) else path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_PROTECTED = ("slime_core", "slime_testing")
"""Packages whose functions plugins must not replace."""


def _code() -> Iterator[tuple[str, object]]:
    yield from ((name, value) for name, value in vars(builtins).items() if callable(value))
    for module in [each for name, each in sys.modules.items() if name in sys.stdlib_module_names]:
        for name, value in list(vars(module).items()):
            own = getattr(value, "__module__", None) == module.__name__
            if own and callable(value) and not name.startswith("_"):
                yield f"{module.__name__}.{name}", value
    for module in [each for name, each in sys.modules.items() if name.partition(".")[0] in _PROTECTED]:
        for name, value in list(vars(module).items()):
            home = getattr(value, "__module__", None)
            if home == module.__name__ and isinstance(value, _CODE):
                yield f"{home}.{name}", value
            elif home == module.__name__ and isinstance(value, type):
                methods = [(each, code) for each, code in vars(value).items() if isinstance(code, _CODE)]
                yield from ((f"{home}.{name}.{each}", code) for each, code in methods)
