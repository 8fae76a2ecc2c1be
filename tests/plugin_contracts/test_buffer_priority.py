"""The priority buffer against the contract kit, in each of its orders: `python test_buffer_priority.py`."""

import subprocess
import sys
from collections.abc import Mapping
from typing import ClassVar

from slime_testing import BufferContract, PluginPackageContract

NUM_GPUS = 0
SMALL = {"capacity": 5, "max_uses": 3, "max_staleness": 2, "replay_ratio": 1.5}


class TestPackage(PluginPackageContract):
    dist = "slime-buffer-priority"


class TestDefaults(BufferContract):
    choice = "slime-buffer-priority/priority"


class TestOnce(BufferContract):
    choice = "slime-buffer-priority/priority"
    settings: ClassVar[Mapping[str, object]] = {"max_uses": 1, "replay_ratio": 1.0}


class TestProportional(BufferContract):
    choice = "slime-buffer-priority/priority"
    settings: ClassVar[Mapping[str, object]] = {
        **SMALL,
        "scores": {"advantage": 1.0, "difficulty": 0.5, "recency": 1.0, "staleness": 0.5},
    }


class TestRank(BufferContract):
    choice = "slime-buffer-priority/priority"
    settings: ClassVar[Mapping[str, object]] = {**SMALL, "order": "rank", "keep": "highest", "alpha": 0.7}


class TestReservoir(BufferContract):
    choice = "slime-buffer-priority/priority"
    settings: ClassVar[Mapping[str, object]] = {**SMALL, "keep": "reservoir", "quotas": {"kit": 0.5}}


class TestFifo(BufferContract):
    choice = "slime-buffer-priority/priority"
    settings: ClassVar[Mapping[str, object]] = {**SMALL, "order": "fifo"}


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
