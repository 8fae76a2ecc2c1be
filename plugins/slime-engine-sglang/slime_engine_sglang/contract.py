"""The engine contract on a real server with the kit's tiny model, for `slime plugins check` and for tests.

Example:

    SLIME_SGLANG_PYTHON=.venv-sglang/bin/python slime plugins check slime-engine-sglang
"""

import json
import os
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, cast
from unittest import SkipTest

from slime_core.roles import Engine, EngineSetup, Settings, WeightChannel
from slime_engine_sglang.arguments import installed_version
from slime_engine_sglang.engine import SglangEngine
from slime_engine_sglang.server_command import HOW_TO_INSTALL
from slime_testing import EngineContract, make_launcher, publish_model, write_tiny_model

VARIABLE = "SLIME_SGLANG_PYTHON"  # Path of the Python that has SGLang
DEFAULT_PYTHON = Path(".venv-sglang/bin/python")  # The Python that `make servers` installs


def python_of_servers() -> Path | None:
    """The Python that has SGLang; None: this one. Raises SkipTest: SGLang is not installed."""
    named = os.environ.get(VARIABLE)
    python = Path(named) if named else None if installed_version(None) else DEFAULT_PYTHON
    try:
        found = (python is None or python.exists()) and installed_version(python)
    except ValueError as error:
        raise SkipTest(f"needs SGLang: {error}") from None
    if not found:
        tried = (
            f"{named} ({VARIABLE}) does not have it" if named else f"neither this Python nor {DEFAULT_PYTHON} has it"
        )
        raise SkipTest(f"needs SGLang: {tried}. {HOW_TO_INSTALL}; for these checks set {VARIABLE} instead")
    return python.absolute() if python else None


class SglangContract(EngineContract):
    """Engine contract on one CPU server, shared by all checks except the ones that close it."""

    choice = "slime-engine-sglang/sglang"
    settings: ClassVar[Mapping[str, object]] = {"deterministic": True}
    otherwise: ClassVar[Mapping[str, object]] = {"deterministic": False}
    too_long = 300
    limit_s = 400.0
    fresh = False
    patience = 6.0

    def make_settings(self, **settings: object) -> Settings:
        return super().make_settings(**{"python": python_of_servers(), **settings})

    def make_setup(self, scratch: Path) -> EngineSetup:
        """The setup with the tiny model, whose end token is 2. Skips the check if SGLang is not installed."""
        python_of_servers()
        model, launcher = write_tiny_model(scratch / "model"), make_launcher(scratch)
        return EngineSetup(
            self.make, 1, hf_checkpoint=model, eos_token_ids=frozenset({2}), launcher=launcher, scratch=scratch
        )

    def publish(self, setup: EngineSetup, version: int) -> WeightChannel:
        return publish_model(setup.hf_checkpoint, setup.scratch, version)

    def running(self, engine: Engine) -> int:
        url = cast(SglangEngine, engine).url
        with urllib.request.urlopen(f"{url}/v1/loads", timeout=30) as reply:
            loads = json.load(reply)["loads"]
        return sum(each["num_running_reqs"] + each["num_waiting_reqs"] for each in loads)
