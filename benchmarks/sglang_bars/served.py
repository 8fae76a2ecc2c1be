"""The kit's fake engine in a process of its own: what a client costs is then not mixed up with what its server does.

with served() as url: ...
"""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from slime_testing.fake_engine import FakeEngine

LONGEST = 16_384
"""Tokens that prompt and response may have."""


@contextmanager
def served() -> Iterator[str]:
    """Its address."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,), daemon=True)
    process.start()
    there.close()  # so that the end of the other process is known
    try:
        yield here.recv()
    finally:
        here.send(None)
        process.join()


def _serve(told: Connection) -> None:
    with FakeEngine(context_length=LONGEST) as engine:
        told.send(engine.url)
        told.recv()
