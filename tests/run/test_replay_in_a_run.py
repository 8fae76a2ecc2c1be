"""A run whose buffer replays: what the ledger counts, what is generated, what reaches the loss, and a resume."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Slime = Callable[..., Any]
Project = Any


def ledger_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]


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
