"""Work that may hang or end its process for good, tried in a fork of this one first.

Example:

    why = fails_in_a_fork(lambda: answer(sample), limit_s=6)        # "it did not come back in 6 s", or nothing

A thread that computes in C, as `eval("9**9**9**9")` does, holds the interpreter: nothing in its process can end it, and
no other thread has a turn. From outside it is one signal.
"""

import contextlib
import os
import select
import signal
import warnings
from collections.abc import Callable

DONE = b"."


def fails_in_a_fork(work: Callable[[], object], limit_s: float) -> str:
    """How a fork of this process failed to come back from the work; what the work raises is not a failure."""
    told, tell = os.pipe()
    with warnings.catch_warnings():  # of threads, which a fork does not have: none of them is needed
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            with contextlib.suppress(BaseException):
                work()
            os.write(tell, DONE)
        finally:
            os._exit(0)
    os.close(tell)
    try:
        ready = bool(select.select([told], [], [], limit_s)[0])
        done = ready and os.read(told, 1) == DONE
    finally:
        os.close(told)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if done:
        return ""
    return f"it ended the process ({_ended(status)})" if ready else f"it did not come back in {limit_s:g} s"


def _ended(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"exit status {code}" if code >= 0 else f"signal {-code}"
