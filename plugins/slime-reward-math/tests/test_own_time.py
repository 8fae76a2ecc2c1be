"""Time of a thread's own: what the collector takes does not count."""

import gc
import time

from slime_reward_math.own_time import own_time


def test_a_collection_of_many_objects_takes_none_of_it() -> None:
    kept = [[number] for number in range(300_000)]
    all_before, own_before = time.thread_time(), own_time()
    gc.collect()
    took, own = time.thread_time() - all_before, own_time() - own_before
    assert len(kept) == 300_000
    assert own < took / 2


def test_work_counts() -> None:
    before = own_time()
    assert sum(number * number for number in range(200_000)) > 0
    assert own_time() > before
