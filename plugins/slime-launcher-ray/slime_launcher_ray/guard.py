"""Guard: waits for a process to end, then kills its process group and all processes that carry its mark.

A mark is an environment variable. Child processes inherit it even in another session or with another parent, and Linux
shows it in /proc. A fork without exec is in the process group. Run this file by path; it needs no other package:

    python -I guard.py PID NAME=VALUE
"""

import os
import select
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

END_S = 5.0
"""Seconds within which killed processes must be gone."""
CHECK_S = 0.02
"""Seconds between two checks."""


def marked_processes(mark: str) -> list[int]:
    """Ids of running processes that carry a mark, except this process."""
    wanted, found = mark.encode(), []
    for each in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        with suppress(OSError):
            if not each.name.isdecimal() or int(each.name) == os.getpid():
                continue
            if wanted in (each / "environ").read_bytes().split(b"\0"):  # empty for a process that has ended
                found.append(int(each.name))
    return found


def kill_marked(mark: str) -> list[int]:
    """Kill all marked processes and the children that they start meanwhile; returns the ids of survivors."""
    end = time.monotonic() + END_S
    while (left := marked_processes(mark)) and time.monotonic() < end:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(CHECK_S)
    return left


def remove(folder: str) -> None:
    """Remove a folder that ending processes may still write to."""
    end = time.monotonic() + END_S
    while Path(folder).exists() and time.monotonic() < end:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(CHECK_S)


def main() -> None:
    """Detach from the parent, wait for the watched process, and kill what it left running."""
    pid = int(sys.argv[1])
    watched, is_leader = os.pidfd_open(pid), os.getpgid(pid) == pid
    if os.fork():
        os._exit(0)
    os.setsid()
    select.select([watched], [], [])
    if is_leader:  # a process group outlives its leader; the kernel does not reuse its id until then
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    kill_marked(sys.argv[2])


if __name__ == "__main__":
    main()
