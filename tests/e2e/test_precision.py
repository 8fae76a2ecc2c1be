"""Precision: how far the trainer's log-probs are from the sampler's, in float32 and in bfloat16."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.place import Place

NUM_GPUS = 1
FAR = {"float32": 1e-4, "bfloat16": 5e-2}
"""Most that the mean over a rollout's tokens may be."""


def prepare(place: Place) -> None:
    """A model, prompts and a reward."""
    place.prepare()


def execute(place: Place) -> None:
    """Train in each, and compare the two."""
    first = {}
    for dtype, most in FAR.items():
        run = place.train(dtype, bf16=dtype == "bfloat16")
        differences = run.metrics("train/train_rollout_logprob_abs_diff")
        assert max(differences) < most, dtype
        first[dtype] = differences[0]
    assert first["bfloat16"] > first["float32"], "bfloat16 rounds: no difference would mean that it was not used"


@pytest.mark.e2e
def test_precision(tmp_path: Path) -> None:
    place = Place(tmp_path)
    prepare(place)
    execute(place)


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
