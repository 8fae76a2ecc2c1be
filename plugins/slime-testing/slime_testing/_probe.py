"""Script for a new process: imports a plugin, collects its choices, and reports side effects.

python -W error -B -m slime_testing._probe slime_reward_math.plugin      # {"heavy": [], "printed": "", ...}
"""

import contextlib
import io
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from slime_core.catalog import import_project_module
from slime_core.hookspecs import PROVIDER_OF_ROLE
from slime_core.processes.limits import end_descendants, keep_descendants
from slime_testing._state import changed_state, shared_state

HEAVY = ("jax", "megatron", "numpy", "ray", "sglang", "tensorflow", "torch", "transformers", "vllm")
"""Libraries that the import of a plugin must not load."""
_EFFECT_OF_EVENT = {
    "os.fork": "forked",
    "os.forkpty": "forked",
    "os.posix_spawn": "started a process",
    "os.spawn": "started a process",
    "os.system": "started a process",
    "subprocess.Popen": "started a process",
    "socket.connect": "opened a connection",
    "socket.getaddrinfo": "looked up a host name",
    "socket.bind": "opened a port",
    "os.mkdir": "made a directory",
    "os.remove": "removed a file",
    "os.rename": "renamed a file",
    "os.rmdir": "removed a directory",
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class EffectLog:
    """Context manager that records side effects. Use it in short-lived processes: audit hooks cannot be removed."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self._on = False
        sys.addaudithook(self._record)

    def __enter__(self) -> Self:
        self._on = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._on = False

    def _record(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._on:
            return
        effect = _EFFECT_OF_EVENT.get(event)
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING and path != os.devnull:
                effect = f"wrote {path}"
        if effect and effect not in self.effects:
            self.effects.append(effect)


def main() -> None:
    """Import the given modules and print their side effects as JSON."""
    keep_descendants()
    encode = json.JSONEncoder().encode  # a reference from now, since a plugin may patch json.dumps
    log, before = EffectLog(), shared_state()
    cwd, variables, threads = os.getcwd(), dict(os.environ), threading.active_count()  # noqa: PTH109  # to compare
    handlers = _handlers()
    started, error = time.process_time(), ""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), log:
        try:
            for name in sys.argv[1:]:
                _collect_choices(import_project_module(name))
        except (Exception, SystemExit) as raised:
            error = f"{type(raised).__name__}: {raised}"
    cpu_s = time.process_time() - started
    changes = {
        "changed the working directory": os.getcwd() != cwd,  # noqa: PTH109
        "changed the environment": dict(os.environ) != variables,
        "left threads running": threading.active_count() > threads,
        "installed a signal handler": _handlers() != handlers,
    }
    state = changed_state(before)
    found = {
        "heavy": sorted(set(HEAVY) & set(sys.modules)),
        "printed": printed.getvalue(),
        "effects": [*log.effects, *(effect for effect, happened in changes.items() if happened), *state],
        "cpu_s": cpu_s,
        "error": error,
    }
    os.write(1, f"{encode(found)}\n".encode())  # read by the parent process
    end_descendants(os.getpid())
    os._exit(0)  # do not wait for threads that still run


def _collect_choices(module: object) -> None:
    for hook in PROVIDER_OF_ROLE.values():
        function: Callable[[], object] | None = getattr(module, hook, None)
        offered = function() if function else ()
        if hasattr(offered, "__iter__"):
            list(offered)


def _handlers() -> Mapping[signal.Signals, object]:
    return {number: signal.getsignal(number) for number in signal.Signals}


if __name__ == "__main__":
    main()
