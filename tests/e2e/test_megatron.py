"""Megatron as the trainer, its tensors cut over two ranks, with the local engine."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.place import Place

NUM_GPUS = 2


def prepare(place: Place) -> None:
    """A model, prompts and a reward."""
    place.prepare()


def execute(place: Place) -> None:
    """Train with Megatron, and with the local trainer on what both were told alike."""
    layout = {"use": "megatron", "megatron": {"num_gpus": 2, "tensor_model_parallel_size": 2}}
    tables = {"trainer": {"use": layout["use"]}, "trainer.megatron": layout["megatron"], "trainer.local": {}}
    cut = place.train("megatron", tables)
    assert all(math.isfinite(loss) for loss in cut.metrics("train/loss"))
    assert max(cut.metrics("train/train_rollout_logprob_abs_diff")) < 1e-4
    local = place.train("local")
    assert cut.metrics("rollout/raw_reward")[0] == local.metrics("rollout/raw_reward")[0], "the same first rollout"
    assert cut.metrics("train/grad_norm")[0] == pytest.approx(local.metrics("train/grad_norm")[0], rel=1e-3)


@pytest.mark.e2e
def test_megatron(tmp_path: Path) -> None:
    place = Place(tmp_path)
    prepare(place)
    execute(place)


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
