"""`--max-restarts`: a run that loses a rank continues by itself, to what it had been without the loss."""

import sys

import pytest

from slime_core.run import newest_checkpoint
from slime_core.telemetry import MetricsLog, strip_timing
from tests.conftest import Project, Slime

KILLING = '''
import os
import signal
from pathlib import Path

from slime_core import RewardContext, Sample, Score


async def digits(sample: Sample, ctx: RewardContext) -> Score:
    """As the project's own; and once, when a checkpoint is there, the rank is killed."""
    kill = Path("kill")
    if kill.exists() and any(Path("runs").glob("*/checkpoints/rollout_000001")):
        kill.unlink()
        for each in Path("/proc").glob("[0-9]*"):
            ours = {str(os.getpid()), *_children(os.getpid())}
            if _read(each / "comm") == "trainer 0\\n" and _parent(each) in ours:
                os.kill(int(each.name), signal.SIGKILL)
    return Score(sum(letter.isdigit() for letter in sample.response) / max(1, len(sample.response)))


def _children(pid: int) -> set[str]:
    return {each.name for each in Path("/proc").glob("[0-9]*") if _parent(each) == str(pid)}


def _parent(folder: Path) -> str:
    return (_read(folder / "stat").rpartition(")")[2].split() or ["", ""])[1]


def _read(file: Path) -> str:
    """A file of /proc; empty once its process is gone."""
    try:
        return file.read_text()
    except OSError:
        return ""
'''


@pytest.mark.skipif(sys.platform != "linux", reason="finds the rank in /proc")
def test_a_run_that_loses_a_rank_continues_by_itself(project: Project, slime: Slime) -> None:
    (project.root / "rewards.py").write_text(KILLING)
    for name in ("whole", "hurt"):
        ran = slime.ok("train", "run.toml", "--save", f"runs/{name}", "--save-interval", 1, "--max-restarts", 1)
        assert ("restart 1 of 1" in ran.err) == (name == "hurt")
        (project.root / "kill").touch()
    whole, hurt = (project.root / "runs" / name for name in ("whole", "hurt"))
    assert [*map(strip_timing, MetricsLog.read(hurt / "metrics.jsonl"))] == [
        *map(strip_timing, MetricsLog.read(whole / "metrics.jsonl"))
    ]
    ours, theirs = (newest_checkpoint(run / "checkpoints", pytest.fail) for run in (hurt, whole))
    assert ours is not None
    assert theirs is not None
    assert (ours.path / "hf/model.safetensors").read_bytes() == (theirs.path / "hf/model.safetensors").read_bytes()
