"""Two of the core's own engines behind one keep the contract of one: `python test_engine_pool.py`."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from slime_core.catalog.catalog import BuiltChoice
from slime_core.roles import (
    Engine,
    EngineSetup,
    EngineSpec,
    Extra,
    GenerateRequest,
    SamplingParams,
    WeightChannel,
)
from slime_core.rollout import EnginePool, Limits
from slime_local.engine import LocalEngine
from slime_local.settings import LocalEngineSettings
from slime_testing import EngineContract, make_launcher
from tests.channels import published

NUM_GPUS = 0
PROBE = GenerateRequest([2], SamplingParams(1), seed=0)
LIMITS = Limits(silence_s=300.0, restart_s=40.0, probe_s=30.0, load_s=300.0)


def build(settings: LocalEngineSettings, setup: EngineSetup) -> Engine:
    def make(number: int) -> BuiltChoice[Engine]:
        (scratch := setup.scratch / str(number)).mkdir(exist_ok=True)
        own = replace(setup, scratch=scratch, name=f"engine-{number}")
        return BuiltChoice("local", "slime-core", LocalEngine(settings, own))

    return EnginePool(make, 2, LIMITS, probe=PROBE)


class TestEnginePool(EngineContract):
    choice = EngineSpec(
        "pool",
        build,
        LocalEngineSettings,
        transports=("shared-buffer",),
        gives=frozenset({Extra.PROMPT_LOG_PROBS}),
    )
    settings: ClassVar[Mapping[str, object]] = {"workers": 1}
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

    def invalid_weights(self, setup: EngineSetup) -> None:
        """A pool takes an engine that cannot load for a dead one: it serves nothing rather than old weights."""


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
