"""The core's own choices against the contract kit: they are a plugin's like any other."""

import subprocess
import sys

import pytest

from slime_core.catalog import Catalog
from slime_core.testing import (
    BufferContract,
    BufferFilterContract,
    CheckContract,
    CheckStatus,
    DataSourceContract,
    GeneratorContract,
    GroupFilterContract,
    PluginPackageContract,
    TrackerContract,
)

NUM_GPUS = 0


class TestPackage(PluginPackageContract):
    dist = "slime-core"


class TestPrompts(DataSourceContract):
    choice = "slime-core/prompts"


class TestSingleTurn(GeneratorContract):
    choice = "slime-core/single_turn"


class TestNonzeroStd(GroupFilterContract):
    choice = "slime-core/nonzero_std"


class TestNonzeroStdWithFallback(GroupFilterContract):
    choice = "slime-core/nonzero_std_with_fallback"


class TestFifoBuffer(BufferContract):
    choice = "slime-core/fifo"


class TestFifoFilter(BufferFilterContract):
    choice = "slime-core/fifo"


class TestTensorboard(TrackerContract):
    choice = "slime-core/tensorboard"


DOCTOR = sorted(Catalog.discover(strict=False).choices("check"))


@pytest.mark.parametrize("name", DOCTOR)
def test_a_check_of_the_doctor_keeps_its_contract(name: str) -> None:
    contract = type("Subject", (CheckContract,), {"choice": name})
    assert [each for each in contract.report() if each.status is CheckStatus.FAILED] == []


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", __file__]))
