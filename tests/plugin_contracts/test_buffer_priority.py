"""The priority buffer against the contract kit, in each of its orders: `python test_buffer_priority.py`."""

import subprocess
import sys
from collections.abc import Mapping

from slime_testing import BufferContract, PluginPackageContract
from tests.plugin_contracts.kept import require_kept
from tests.tables import table

NUM_GPUS = 0
SMALL = {"capacity": 5, "max_uses": 3, "max_staleness": 2, "replay_ratio": 1.5}
SCORES = {"advantage": 1.0, "difficulty": 0.5, "recency": 1.0, "staleness": 0.5}


class TestPackage(PluginPackageContract):
    dist = "slime-buffer-priority"


@table(
    "settings",
    [
        {},
        {"max_uses": 1, "replay_ratio": 1.0},
        {**SMALL, "scores": SCORES},
        {**SMALL, "quotas": {"kit": 0.5}},
        {**SMALL, "order": "fifo"},
    ],
)
def test_it_keeps_its_contract(settings: Mapping[str, object]) -> None:
    require_kept(BufferContract, choice="slime-buffer-priority/priority", settings=settings)


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
