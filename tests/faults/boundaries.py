"""Boundaries: places in a run at which it can be cut, found from outside by watching calls, without a line in its code.

A boundary is a name and a count, the third "after posix.fsync in slime_core.run.checkpoint:sync". Names are of
functions of the driver, entered and left, and of calls that change files, before and after.
"""

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType

WATCHED = (
    "slime_core.run.",
    "slime_core.buffer.",
    "slime_core.data.",
    "slime_core.rollout.",
    "slime_core.telemetry.",
    "slime_buffer_priority.",
)
WRITING = ("open", "write", "truncate", "ftruncate", "flush", "close", "fsync", "posix_fallocate")
NAMING = ("rename", "replace", "link", "mkdir", "rmdir", "unlink", "remove")
FILE_CALLS = frozenset((*WRITING, *NAMING))
FILES = frozenset(("posix", "io", "_io", "FileIO", "BufferedWriter", "BufferedReader", "TextIOWrapper"))
"""Where these calls are at home; `str.replace` is not."""
Cut = Callable[[str, int], None]


def watch(cut: Cut) -> None:
    """Call `cut(name, count)` at every boundary of this thread, and of those that it starts, from now on."""
    seen: Counter[str] = Counter()
    functions: dict[CodeType, str] = {}  # of all that are called, most are nobody's business here

    def at(frame: FrameType, event: str, arg: object) -> None:
        if event.startswith("c_"):
            name = _file_call(frame, event, arg)
        else:
            name = functions.get(frame.f_code)
            if name is None:
                name = functions[frame.f_code] = _name_of(frame)
            name = name and f"{'enter' if event == 'call' else 'leave'} {name}"
        if name:
            seen[name] += 1
            cut(name, seen[name])

    threading.setprofile(at)
    sys.setprofile(at)


def kill_at(name: str, count: int) -> Cut:
    """Kills this process there."""

    def cut(here: str, times: int) -> None:
        if times == count and here == name:
            os.kill(os.getpid(), signal.SIGKILL)

    return cut


def _name_of(frame: FrameType) -> str:
    module = frame.f_globals.get("__name__", "")
    if not module.startswith(WATCHED) or frame.f_code.co_name.startswith("<"):
        return ""
    return f"{module}:{frame.f_code.co_qualname}"


def _file_call(frame: FrameType, event: str, arg: object) -> str:
    called = arg.__name__  # type: ignore[attr-defined]  # of a built-in function
    if called not in FILE_CALLS:
        return ""
    of = getattr(arg, "__module__", None) or type(getattr(arg, "__self__", None)).__name__
    if of not in FILES:
        return ""
    owner: FrameType | None = frame
    while owner is not None and not owner.f_globals.get("__name__", "").startswith(WATCHED):
        owner = owner.f_back
    if owner is None:
        return ""
    where = f"{owner.f_globals['__name__']}:{owner.f_code.co_qualname}"
    return f"{'before' if event == 'c_call' else 'after'} {of}.{called} in {where}"
