"""The core's own engine against the contract kit, with the demo's model: `python test_engine_contract.py`."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, cast

import pytest

from slime_core.roles import Engine, EngineSetup, WeightChannel
from slime_local.engine import LocalEngine
from slime_testing import EngineContract, make_launcher
from tests.channels import published

NUM_GPUS = 0


class TestLocalEngine(EngineContract):
    choice = "slime-local/local"
    settings: ClassVar[Mapping[str, object]] = {"workers": 2}
    too_long = 256
    fresh = False
    model: ClassVar[Path]

    @pytest.fixture(autouse=True)
    def _use_the_tiny_model(self, tiny_model: Path) -> None:
        type(self).model = tiny_model

    def make_setup(self, scratch: Path) -> EngineSetup:
        ends, launcher = frozenset({2}), make_launcher(scratch)
        return EngineSetup(
            self.make, 1, hf_checkpoint=self.model, eos_token_ids=ends, launcher=launcher, scratch=scratch
        )

    def publish(self, setup: EngineSetup, version: int) -> WeightChannel:
        return published(setup, version)

    def running(self, engine: Engine) -> int:
        return cast(LocalEngine, engine).running


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", __file__]))
