"""Checkpoints: a run that is killed and resumed ends with the weights of one that was left alone, bit for bit."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.place import SLOWEST_S, Place

NUM_GPUS = 1
ROLLOUTS = 6


def prepare(place: Place) -> None:
    """A model, prompts and a reward."""
    place.prepare()


def execute(place: Place) -> None:
    """Train undisturbed; train anew, kill it after a checkpoint, resume it; compare."""
    undisturbed = place.train("undisturbed", num_rollout=ROLLOUTS, save_interval=1)
    text = (place.folder / "undisturbed.toml").read_text("utf-8")
    (place.folder / "killed.toml").write_text(text.replace('save = "undisturbed"', 'save = "killed"'), "utf-8")
    process = place.start(["train", "killed.toml", "--no-progress"])
    ends_at = time.monotonic() + SLOWEST_S
    while not list((place.folder / "killed/checkpoints").glob("rollout_000002")):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < ends_at
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    place.slime("resume", "killed", "--no-progress")
    killed = type(undisturbed)(place.folder / "killed")
    assert killed.weights() == undisturbed.weights()


@pytest.mark.e2e
def test_ckpt(tmp_path: Path) -> None:
    place = Place(tmp_path)
    prepare(place)
    execute(place)


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
