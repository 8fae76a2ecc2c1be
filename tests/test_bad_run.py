"""docs/bad-run.md, from top to bottom: its files are written, its commands run, and what it says of the runs is so."""

import importlib.util
import sys
from pathlib import Path

import pytest

from slime_core.telemetry import MetricsLog
from slime_view.run_reader import read_alarms
from slime_view.samples.shard import Shard, list_shards

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "bad-run.md"
_spec = importlib.util.spec_from_file_location("transcripts", ROOT / "tools" / "transcripts.py")
assert _spec is not None
assert _spec.loader is not None
transcripts = importlib.util.module_from_spec(_spec)
sys.modules["transcripts"] = transcripts
_spec.loader.exec_module(transcripts)


def column(run: Path, name: str) -> list[float]:
    return [row.metrics[name] for row in MetricsLog.read(run / "metrics.jsonl") if name in row.metrics]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_both_runs_are_as_bad_as_the_page_says(tmp_path: Path) -> None:
    pytest.importorskip("slime_local", reason="the demo trains with slime-local")
    project = tmp_path / "project"
    project.mkdir()
    printed = ""
    for block in transcripts.blocks(PAGE.read_text("utf-8")):
        if block.title:
            (project / block.title).write_text(block.body, "utf-8")
        if block.kind == "console":
            printed += transcripts.run(block.body, project)
    silence, masked = project / "runs" / "silence", project / "runs" / "masked"
    alarms = {each.name for each in read_alarms(silence)}
    assert "hacking" in alarms, printed
    assert "alarm hacking" in printed
    rewards, heldout = column(silence, "rollout/raw_reward"), column(silence, "eval/heldout")
    assert min(rewards[-5:]) > 0.9
    assert heldout[-1] < 0.75 * max(heldout)
    last = [row.to_dict() for row in Shard(list_shards(silence / "samples")[-1]).rows()]
    unpaid = [row for row in last if row["reward"] == 0.0]
    assert len(unpaid) < len(last) / 10
    assert max(column(masked, "rollout/raw_reward")) < 0.3
    # Where nothing is learned, an evaluation may fall by a fifth by chance, and the reward rise by as little.
    assert {each.name for each in read_alarms(masked)} <= {"hacking"}
    assert column(project / "runs" / "good", "eval/heldout")[-1] > 0.8
    assert "mask       0 of " in printed
    assert "trace.json: open it in" in printed
