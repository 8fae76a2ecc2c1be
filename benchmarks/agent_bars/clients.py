"""Clients of the bars: a process of their own, so that what is measured is who answers them.

Example:

    spent = await talked("agent_bars.overhead", [12, False, *urls])      # in the process that answers

    if __name__ == "__main__":                                           # in that module
        talk(lambda turns, stream, *urls: ...)
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Spent:
    """What it took while clients talked."""

    wall_s: float
    """Seconds."""
    cpu_s: float
    """CPU seconds of this process."""


async def talked(module: str, arguments: Sequence[object], python: str = sys.executable) -> Spent:
    """Let a module's clients talk, and say what that took here."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    client = await asyncio.create_subprocess_exec(
        *(python, "-m", module, json.dumps(arguments)), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert client.stdout is not None
    assert client.stdin is not None
    await client.stdout.readline()  # it has imported all it needs
    wall, cpu = time.perf_counter(), time.process_time()
    client.stdin.write(b"go\n")
    await client.stdout.readline()
    spent = Spent(time.perf_counter() - wall, time.process_time() - cpu)
    await client.communicate()
    if client.returncode:
        raise SystemExit(f"the clients of {module} failed with status {client.returncode}")
    return spent


def talk(main: Callable[..., Coroutine[Any, Any, None]]) -> None:
    """The clients' side: `main` is given the arguments."""
    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(main(*json.loads(sys.argv[1])))
    print("done", flush=True)
