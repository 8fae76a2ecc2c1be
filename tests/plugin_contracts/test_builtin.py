"""The core's own choices against the contract kit: they are a plugin's like any other."""

import atexit
import functools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from slime_core.catalog import Catalog
from slime_testing import (
    BufferContract,
    BufferFilterContract,
    CheckContract,
    CheckStatus,
    DataSourceContract,
    GeneratorContract,
    GroupFilterContract,
    PluginPackageContract,
    RewardShaperContract,
    SampleFilterContract,
    TrackerContract,
)
from tests.tables import table

NUM_GPUS = 0


class TestPackage(PluginPackageContract):
    dist = "slime-core"


class TestPrompts(DataSourceContract):
    choice = "slime-core/prompts"


@functools.cache
def members() -> dict[str, object]:
    """Two files, until the process ends."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made: dict[str, object] = {}
    for name, count in (("few", 2), ("many", 5)):
        path = Path(folder) / f"{name}.jsonl"
        path.write_text("".join(f'{{"input": "{name} {row}?", "label": "{row}"}}\n' for row in range(count)))
        made[name] = {"path": str(path), "weight": len(name)}
    return made


class TestMixture(DataSourceContract):
    choice = "slime-core/mixture"

    @property
    def settings(self) -> Mapping[str, object]:  # type: ignore[override]
        return {"sources": members()}


class TestSingleTurn(GeneratorContract):
    choice = "slime-core/single_turn"


class TestNonzeroStd(GroupFilterContract):
    choice = "slime-core/nonzero_std"


class TestNonzeroStdWithFallback(GroupFilterContract):
    choice = "slime-core/nonzero_std_with_fallback"


class TestTruncated(SampleFilterContract):
    choice = "slime-core/truncated"


class TestOverlong(RewardShaperContract):
    choice = "slime-core/overlong"
    settings: ClassVar[Mapping[str, object]] = {"max_response_len": 8, "overlong_buffer_len": 4}


class TestFifoBuffer(BufferContract):
    choice = "slime-core/fifo"


class TestFifoFilter(BufferFilterContract):
    choice = "slime-core/fifo"


class TestTensorboard(TrackerContract):
    choice = "slime-trackers/tensorboard"


DOCTOR = sorted(Catalog.discover(strict=False).choices("check"))


@table("name", DOCTOR)
def test_a_check_of_the_doctor_keeps_its_contract(name: str) -> None:
    contract = type("Subject", (CheckContract,), {"choice": name})
    assert [each for each in contract.report() if each.status is CheckStatus.FAILED] == []


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
