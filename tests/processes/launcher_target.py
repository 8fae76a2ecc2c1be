"""Targets of worker groups for test_launcher.py; a worker process imports this module by its name."""

import multiprocessing
import os
import subprocess
import sys
import time

from slime_core.errors import ModelError, NonFiniteError


class Target:
    """Answers calls in the ways that a worker can."""

    def __init__(self, rank: int, size: int, *, word: str = "hello") -> None:
        self.rank, self.size, self.word = rank, size, word

    def run(self, expression: str) -> object:
        """Evaluate Python."""
        return eval(expression)  # noqa: S307  # of the tests

    def double(self, number: int) -> int:
        return 2 * number

    def explode(self) -> None:
        raise NonFiniteError("the loss is nan")

    def spawn(self) -> list[int]:
        """Processes of this worker's: a child, one in a session of its own, and one whose parent is gone."""
        orphan = "import os, subprocess; print(subprocess.Popen(['sleep', '600'], stdout=2).pid, flush=True)"
        shell = subprocess.run([sys.executable, "-c", orphan], stdout=subprocess.PIPE, text=True, check=True)
        child = subprocess.Popen(["sleep", "600"])
        session = subprocess.Popen(["sleep", "600"], start_new_session=True)
        return [child.pid, session.pid, int(shell.stdout)]

    def fork_a_process(self) -> int:
        """With multiprocessing, which refuses it to daemons."""
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        child.start()
        assert child.pid is not None
        return child.pid


class Refuses:
    """Cannot be built."""

    def __init__(self, rank: int, size: int) -> None:
        raise ModelError("no such model")


class Breaks:
    """Cannot be built on its second rank."""

    def __init__(self, rank: int, size: int) -> None:
        if rank == 1:
            raise RuntimeError("out of luck")


class CannotClose:
    """Raises when it is closed."""

    def __init__(self, rank: int, size: int) -> None: ...

    def pid(self) -> int:
        return os.getpid()

    def close(self) -> None:
        raise OSError("it is stuck")


class Dawdles:
    """Its second rank is not built for a minute."""

    def __init__(self, rank: int, size: int) -> None:
        if rank == 1:
            print("loading the model", flush=True)
            time.sleep(60)
