"""Run as a script in a fresh process: imports a plugin, asks it for its choices, and says what that did besides.

python -W error -B -m slime_testing._probe slime_reward_math.plugin      # {"heavy": [], "printed": "", ...}

With `--blame` before the modules it also says which import did what, and takes longer.
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

from slime_core.catalog import import_project_module
from slime_core.hookspecs import PROVIDER_OF_ROLE
from slime_core.processes.limits import end_descendants, keep_descendants
from slime_testing._blame import Blame
from slime_testing._effects import HEAVY, EffectLog
from slime_testing._state import changed_state, shared_state

BLAME = "--blame"


def main() -> None:
    """Import the modules that are named, and print what happened as JSON."""
    keep_descendants()
    encode = json.JSONEncoder().encode  # not what a plugin may make of json.dumps
    modules = [each for each in sys.argv[1:] if each != BLAME]
    blame = Blame()
    log, before = EffectLog(blame.note), shared_state()
    here, variables, threads = os.getcwd(), dict(os.environ), threading.active_count()  # noqa: PTH109  # compared
    handlers = _handlers()
    started, error = time.process_time(), ""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), log:
        try:
            if BLAME in sys.argv:
                blame.__enter__()
            for name in modules:
                _offers(import_project_module(name))
        except (Exception, SystemExit) as raised:
            error = f"{type(raised).__name__}: {raised}"
    blame.__exit__(None, None, None)
    cpu_s = time.process_time() - started
    changes = {
        "changed the working directory": os.getcwd() != here,  # noqa: PTH109
        "changed the environment": dict(os.environ) != variables,
        "left threads running": threading.active_count() > threads,
        "installed a signal handler": _handlers() != handlers,
    }
    state = changed_state(before)
    found = {
        "heavy": sorted(set(HEAVY) & set(sys.modules)),
        "printed": printed.getvalue(),
        "effects": [*log.effects, *(what for what, happened in changes.items() if happened), *state],
        "culprits": blame.culprits,
        "cpu_s": cpu_s,
        "error": error,
    }
    os.write(1, f"{encode(found)}\n".encode())  # for the process that asked
    end_descendants(os.getpid())
    os._exit(0)  # whatever threads were left running


def _offers(module: object) -> None:
    for hook in PROVIDER_OF_ROLE.values():
        function: Callable[[], object] | None = getattr(module, hook, None)
        offered = function() if function else ()
        if hasattr(offered, "__iter__"):
            list(offered)


def _handlers() -> Mapping[signal.Signals, object]:
    return {number: signal.getsignal(number) for number in signal.Signals}


if __name__ == "__main__":
    main()
