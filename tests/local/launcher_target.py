"""Targets of worker groups for test_launcher.py; a worker process imports this module by its name."""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from slime_core.errors import ModelError, NonFiniteError


class Target:
    """Answers calls in the ways that a worker can."""

    def __init__(self, rank: int, size: int, *, word: str = "hello") -> None:
        self.rank, self.size, self.word = rank, size, word

    def describe(self) -> tuple[int, int, str]:
        return self.rank, self.size, self.word

    def pid(self) -> int:
        return os.getpid()

    def double(self, number: int) -> int:
        return 2 * number

    def length(self, data: bytes) -> int:
        return len(data)

    def threads(self) -> str | None:
        return os.environ.get("OMP_NUM_THREADS")

    def safe_path(self) -> str | None:
        return os.environ.get("PYTHONSAFEPATH")

    def complain(self, on_rank: int) -> int:
        if self.rank == on_rank:
            raise ValueError(f"rank {self.rank} does not like it")
        return self.rank

    def explode(self, on_rank: int) -> int:
        if self.rank == on_rank:
            raise NonFiniteError("the loss is nan")
        return self.rank

    def die(self, on_rank: int) -> int:
        if self.rank == on_rank:
            print("last words", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
        return self.rank

    def leave(self) -> None:
        sys.exit(7)

    def nap(self, seconds: float) -> str:
        time.sleep(seconds)
        return f"slept {seconds:g}"

    def touch_and_nap(self, path: Path) -> None:
        path.touch()
        time.sleep(60)

    def unpicklable(self) -> object:
        return lambda: None

    def compute(self) -> None:
        """Stay inside one C call, as a kernel does, without ever looking at the pipe."""
        ctypes.CDLL(None).sleep(60)


class Refuses:
    """Cannot be built."""

    def __init__(self, rank: int, size: int) -> None:
        raise ModelError("no such model")


class Breaks:
    """Cannot be built on its second rank."""

    def __init__(self, rank: int, size: int) -> None:
        if rank == 1:
            raise RuntimeError("out of luck")
