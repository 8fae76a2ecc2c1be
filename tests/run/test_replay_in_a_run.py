"""A run whose buffer replays: what the ledger counts, what is generated, what reaches the loss, and a resume."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_core.telemetry import MetricsLog, strip_timing

Slime = Callable[..., Any]
Project = Any
Install = Callable[..., None]
PLUGIN = """
from slime_core.hookspecs import hookimpl
from slime_core.roles import BufferSpec, Draw, LossOutput, LossSpec, Replay
from slime_core.sample import Group

SLIME_API = "1"


class Thrice:
    def __init__(self, settings, setup):
        self.groups = []

    def add(self, groups):
        self.groups += groups

    def sample(self, want, ctx):
        taken = self.groups[:want]
        for group in taken:
            group.metadata["uses"] = group.metadata.get("uses", 0) + 1
        kept = [group for group in taken if group.metadata["uses"] < 3]
        self.groups = self.groups[want:] + kept
        return Draw(taken, [0.25] * len(taken))

    def update(self, scores):
        pass

    def evict(self, ctx):
        old = [group for group in self.groups if ctx.weight_version - group.oldest_weight_version > 3]
        self.groups = [group for group in self.groups if group not in old]
        return {group.id: "old" for group in old}

    def state_dict(self):
        return {"groups": [group.to_dict() for group in self.groups]}

    def load_state_dict(self, state):
        self.groups = [Group.from_dict(each) for each in state["groups"]]

    def __len__(self):
        return len(self.groups)


@hookimpl
def slime_buffers():
    yield BufferSpec("thrice", Thrice, replay=lambda settings: Replay(max_uses=3, ratio=2.0))
"""


def ledger_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]


def test_groups_are_used_as_often_as_announced_and_as_few_are_generated(
    project: Project, slime: Slime, install_plugin: Install
) -> None:
    install_plugin("slime-buffer-thrice", {"buffer_thrice.py": PLUGIN}, entry_points={"buffer-thrice": "buffer_thrice"})
    whole, parts = project.root / "whole", project.root / "parts"
    flags = ["--buffer", "thrice"]
    ran = slime("train", "run.toml", *flags, "--num-rollout", 6, "--save", whole)
    assert ran.code == 0, ran.err
    ledger = ledger_of(whole)
    drawn = Counter(line["rollout_id"] for line in ledger if line["state"] == "drawn")
    trained = [line for line in ledger if line["state"] == "trained"]
    # Batches of 4, two uses a group: 4 groups, then none, then 2 a rollout.
    assert [drawn[rollout] for rollout in range(6)] == [4, 0, 2, 2, 2, 2]
    assert Counter(line["rollout_id"] for line in trained) == dict.fromkeys(range(6), 4)
    assert max(Counter(line["id"] for line in trained).values()) <= 3
    for group in {line["id"] for line in trained}:
        uses = [line["use"] for line in trained if line["id"] == group]
        assert uses == list(range(1, len(uses) + 1))
    assert slime("train", "run.toml", *flags, "--num-rollout", 3, "--save", parts).code == 0
    assert slime("resume", parts, "--num-rollout", 6).code == 0
    assert ledger_of(parts) == ledger
    rows = [[strip_timing(row) for row in MetricsLog.read(run / "metrics.jsonl")] for run in (whole, parts)]
    assert rows[0] == rows[1]


def test_the_priority_buffer_trains_and_continues(project: Project, slime: Slime) -> None:
    pytest.importorskip("slime_buffer_priority")
    whole, parts = project.root / "whole", project.root / "parts"
    flags = ["--buffer", "priority", "--batch-transform", "replay"]
    ran = slime("train", "run.toml", *flags, "--num-rollout", 5, "--save", whole)
    assert ran.code == 0, ran.err
    assert slime("train", "run.toml", *flags, "--num-rollout", 2, "--save", parts).code == 0
    assert slime("resume", parts, "--num-rollout", 5).code == 0
    assert ledger_of(parts) == ledger_of(whole)
    uses = [line["use"] for line in ledger_of(whole) if line["state"] == "trained"]
    assert len(uses) == 20
    assert max(uses) > 1
