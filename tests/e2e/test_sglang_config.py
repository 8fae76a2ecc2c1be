"""SGLang as the engine, configured by the run file: a server that slime starts, with arguments of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.place import ROOT, Place

NUM_GPUS = 1
PYTHON = os.environ.get("SLIME_E2E_SGLANG", str(ROOT / ".venv-sglang/bin/python"))
"""Where SGLang is installed."""


def prepare(place: Place) -> None:
    """A model, prompts and a reward; and SGLang must be there."""
    if not Path(PYTHON).exists():
        pytest.skip(f"there is no {PYTHON}: make sglang, or SLIME_E2E_SGLANG")
    place.prepare()


def execute(place: Place) -> None:
    """Train on what a server generates; another number of tokens that it may hold is what it then has."""
    server = {"python": PYTHON, "deterministic": True}
    tables = {
        "engine": {"use": "sglang"},
        "engine.local": {},
        "engine.sglang": server,
        "engine.sglang.server": {"max_total_tokens": 4096},
    }
    run = place.train("sglang", tables)
    assert len(run.metrics("rollout/raw_reward")) == 2
    assert max(run.metrics("train/train_rollout_logprob_abs_diff")) < 1e-3


@pytest.mark.e2e
def test_sglang_config(tmp_path: Path) -> None:
    place = Place(tmp_path)
    prepare(place)
    execute(place)


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
