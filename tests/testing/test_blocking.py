import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime_testing.blocking import BLOCK_S, blocks


@pytest.fixture
def busy() -> Iterator[None]:
    """One processor, and eight others that want it."""
    if not Path("/proc/thread-self/schedstat").exists():
        pytest.skip("nobody says here what a thread waited for a processor")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    try:
        yield
    finally:
        for each in spinning:
            each.kill()
            each.wait()
        os.sched_setaffinity(0, before)


async def computes() -> None:
    end = time.thread_time() + BLOCK_S / 2
    while time.thread_time() < end:
        pass


async def sleeps() -> None:
    time.sleep(2 * BLOCK_S)  # noqa: ASYNC251  # what is to be found


def test_a_step_that_waits_for_a_processor_is_not_blamed(busy: None) -> None:
    assert blocks(computes, BLOCK_S) == ""


def test_one_that_blocks_is_found_on_a_busy_machine_as_well(busy: None) -> None:
    assert blocks(sleeps, BLOCK_S).startswith("the event loop stood still for 0.0")
