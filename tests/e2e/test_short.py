"""A short run, whole: generate, score, train, evaluate, save; then one more rollout from its checkpoint."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.place import Place

NUM_GPUS = 1


def prepare(place: Place) -> None:
    """A model, prompts and a reward."""
    place.prepare()


def execute(place: Place) -> None:
    """Train, and go on."""
    run = place.train("short", num_rollout=3, save_interval=1)
    rewards = run.metrics("rollout/raw_reward")
    assert len(rewards) == 3
    assert all(0.0 < reward < 1.0 for reward in rewards)
    assert all(math.isfinite(loss) for loss in run.metrics("train/loss"))
    assert max(run.metrics("train/train_rollout_logprob_abs_diff")) < 1e-4
    place.slime("resume", "short", "--num-rollout", "4", "--no-progress")
    assert len(run.metrics("rollout/raw_reward")) == 4


@pytest.mark.e2e
def test_short(tmp_path: Path) -> None:
    place = Place(tmp_path)
    prepare(place)
    execute(place)


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
