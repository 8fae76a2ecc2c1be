"""Workers: a few persistent child processes for algebra, each with a cap on its memory and a limit on its time.

Example:

    with Workers(timeout_s=2.0) as workers:
        workers.equal(left, right)      # True, False, or None where the time did not suffice

A worker that does not answer in time is killed and another takes its place. Nothing here uses a signal handler or asks
for the main thread; whoever waits, waits in the thread that asked. Trees go to a child as nested JSON lists.
"""

import json
import os
import queue
import resource
import select
import subprocess
import sys
import time
import weakref
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import TypeAlias, cast

from slime_reward_math.tree import Node, Num, Rel, Sym, Tree, Words, walk

MAX_NODES = 300
"""Of one tree; larger ones are not sent."""
MAX_BITS = 4_000
"""Of one number."""
Packed: TypeAlias = list["str | Packed"]
"""A kind, then what it is made of."""


def packed(tree: Tree) -> Packed | None:
    """The tree as lists; None for one that is too large."""
    for place, each in enumerate(walk(tree)):
        sizes = each.value.as_integer_ratio() if isinstance(each, Num) else ()
        if place >= MAX_NODES or any(size.bit_length() > MAX_BITS for size in sizes):
            return None
    return _packed(tree)


def _packed(tree: Tree) -> Packed:
    if isinstance(tree, Num):
        return ["num", f"{tree.value.numerator:x}", f"{tree.value.denominator:x}"]
    if isinstance(tree, Sym):
        return ["sym", tree.name]
    if isinstance(tree, Words):
        return ["words", tree.text]
    if isinstance(tree, Rel):
        return ["rel", list(tree.ops), *map(_packed, tree.terms)]
    return ["node", tree.head, *map(_packed, tree.args)]


def unpacked(found: Packed) -> Tree:
    """The tree that lists hold.

    Raises:
        ValueError: they hold none.
    """
    kind, first, *rest = found
    parts = tuple(unpacked(each) for each in rest if isinstance(each, list)) if kind in ("rel", "node") else ()
    if kind == "num" and isinstance(first, str) and isinstance(rest[0], str):
        return Num(Fraction(int(first, 16), int(rest[0], 16)))
    if kind == "rel" and isinstance(first, list):
        return Rel(tuple(map(str, first)), parts)
    if kind in ("sym", "words", "node") and isinstance(first, str):
        return Node(first, parts) if kind == "node" else Sym(first) if kind == "sym" else Words(first)
    raise ValueError("no tree")


START_S = 30.0
"""Seconds that a worker has to import sympy."""
MAX_QUESTIONS = 500
"""Pairs after which a worker is replaced: sympy's caches grow."""
_MAIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from slime_reward_math.symbolic.workers import serve; serve(int(sys.argv[2]))"
)


class Workers(AbstractContextManager["Workers"]):
    """The processes; they start when they are first asked and end with this object. Threads may share it."""

    def __init__(self, *, count: int = 2, timeout_s: float = 2.0, memory_mb: int = 1024) -> None:
        """Args are the number of processes, the seconds one pair may take, and the memory of each process."""
        self._timeout_s, self._memory_mb, self._count = timeout_s, memory_mb, count
        self._owner, self._idle = os.getpid(), _nobody(count)
        self.killed = 0
        """Workers that were killed because they did not answer in time, or ended by themselves."""

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the idle processes; one that is asked for later is started anew."""
        for _ in range(self._count):
            worker = self._idle.get()
            if worker is not None:
                worker.kill()
            self._idle.put(None)

    def equal(self, left: Tree, right: Tree) -> bool | None:
        """Whether two expressions are equal; None if they are too large, or not even algebra could tell in time."""
        pair = packed(left), packed(right)
        if None in pair:
            return None
        if os.getpid() != self._owner:
            # After a fork the pipes are the parent's: this process starts its own.
            self._owner, self._idle = os.getpid(), _nobody(self._count)
        worker = self._idle.get()
        answered = False
        try:
            if worker is None:
                worker = _Worker(self._memory_mb)
            found = worker.ask(json.dumps(pair), self._timeout_s)
            answered = True
            return found
        except (TimeoutError, EOFError, OSError):
            return None
        finally:
            if worker is not None and (not answered or worker.asked >= MAX_QUESTIONS):
                self.killed += not answered
                worker.kill()
                worker = None
            self._idle.put(worker)


def _nobody(count: int) -> "queue.LifoQueue[_Worker | None]":
    places: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
    for _ in range(count):
        places.put(None)
    return places


class _Worker:
    """One process."""

    def __init__(self, memory_mb: int) -> None:
        self.asked = 0
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _MAIN, json.dumps(sys.path), str(memory_mb)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        # Also where nobody closes the workers, at the end of the interpreter.
        self._end = weakref.finalize(self, _kill, self._process)
        self._ready = False

    def ask(self, line: str, timeout_s: float) -> bool | None:
        """The answer to one line.

        Raises:
            TimeoutError: it did not come in time.
            EOFError: the process ended.
        """
        if not self._ready:
            self._line(time.monotonic() + START_S)
            self._ready = True
        self.asked += 1
        assert self._process.stdin is not None, "it was opened with a pipe"
        self._process.stdin.write(line.encode() + b"\n")
        found = json.loads(self._line(time.monotonic() + timeout_s))
        return found if isinstance(found, bool) else None

    def _line(self, deadline: float) -> bytes:
        assert self._process.stdout is not None, "it was opened with a pipe"
        descriptor, line = self._process.stdout.fileno(), b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise TimeoutError
            part = os.read(descriptor, 4096)
            if not part:
                raise EOFError
            line += part
        return line

    def kill(self) -> None:
        self._end()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def serve(memory_mb: int) -> None:
    """Answer `true`, `false` or `null` for each pair on the standard input."""
    size = memory_mb * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    # What sympy prints is not an answer.
    os.dup2(2, 1)
    from slime_reward_math.symbolic.algebra import equal

    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        left, right = (unpacked(each) for each in cast(list[Packed], json.loads(line)))
        try:
            found = equal(left, right)
        except MemoryError:
            # What is left of the heap is not to be trusted with another pair.
            os._exit(1)
        except Exception:
            found = None
        print(json.dumps(found), file=answers, flush=True)
