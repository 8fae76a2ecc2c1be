"""What a run folder says of itself, read from its files alone: what is equal in equal runs, and what became of groups.

The trainer's own memory of what its weights have seen (toy.py) is held against the ledger: neither knows of the other.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slime_core.errors import CheckpointError
from slime_core.run import newest_checkpoint, verify
from slime_core.telemetry import MetricsLog, strip_timing

KEPT = 2
"""Checkpoints of a run (toy.py)."""
OWN = ("run.toml", "lock", "resumes.jsonl")
"""What equal runs need not share: the last says how often a run was continued."""
MEASURED = "metrics_position"
"""In state.json: bytes of a file that holds times."""


def contents(run: Path) -> dict[str, object]:
    """Everything that two runs of one seed have in common, by name."""
    found: dict[str, object] = {"metrics": [strip_timing(row) for row in MetricsLog.read(run / "metrics.jsonl")]}
    # One more may be left of a run that was killed when it had ended, before it removed the oldest.
    checkpoints = sorted(run.glob("checkpoints/*"))[-KEPT:]
    found["checkpoints"] = [path.name for path in checkpoints]
    for path in checkpoints:
        state = _state(path)
        found[f"{path.name}/state"] = {**state, MEASURED: None, "config": {**state["config"], "save": None}}
        found |= {f"{path.name}/{file.name}": file.read_bytes() for file in path.glob("*/*")}
    found |= {path.name: path.read_bytes() for path in (run / "ledger.jsonl", *run.glob("samples/*"))}
    found["damaged"] = [path.name for path in run.glob("checkpoints/*") if not _is_whole(path)]
    found["left"] = sorted(path.name for path in run.iterdir() if path.name not in OWN)
    return found


def differences(run: Path, expected: Mapping[str, object]) -> list[str]:
    """Names of what is not as expected."""
    found = contents(run)
    return sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))


@dataclass(frozen=True)
class Accounts:
    """What became of the groups of a finished run."""

    drawn: int
    lost: list[str]
    """Drawn, and neither trained, dropped nor in the checkpoint; or never drawn although a later one was."""
    over_used: list[str]
    """Trained more often than allowed; or the trainer has seen them in another number of steps than the ledger says."""

    @classmethod
    def of(cls, run: Path, max_uses: int) -> "Accounts":
        """Read them."""
        checkpoint = newest_checkpoint(run / "checkpoints", print)
        assert checkpoint is not None
        state = _state(checkpoint.path)
        lines = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
        last = {line["id"]: line["state"] for line in lines}
        uses = Counter(line["id"] for line in lines if line["state"] == "trained")
        held = _named(state["buffer"]) | _named(state["scheduler"]) | _named(state["data_source"])
        ended = {name for name, now in last.items() if now in ("trained", "dropped")}
        draws = {int(name.rpartition(":d")[2]) for name in last}
        lost = sorted(last.keys() - ended - held) + [f"draw {each}" for each in set(range(len(draws))) - draws]
        over = [name for name, count in uses.items() if count > max_uses]
        over += [name for name in held if last[name] == "dropped"]
        return cls(len(last), lost, over + _seen_otherwise(uses, checkpoint.path))


def _is_whole(checkpoint: Path) -> bool:
    try:
        verify(checkpoint)
    except CheckpointError:
        return False
    return True


def _named(state: object) -> set[str]:
    """Identities of all groups in a part's saved state, whichever it is: what looks like one in its text."""
    return set(re.findall(r"prompts\.jsonl:e\d+:r\d+:d\d+", json.dumps(state)))


def _seen_otherwise(uses: Mapping[str, int], checkpoint: Path) -> list[str]:
    """Rows that the trainer saw in more or fewer steps than the ledger says. (Row n is prompt 100+n; see toy.py.)"""
    told: Counter[str] = Counter()
    for name, count in uses.items():
        row = int(name.rpartition(":r")[2].partition(":")[0])
        told[",".join(str(ord(letter) - ord("!")) for letter in str(100 + row))] += count
    seen: dict[str, int] = json.loads((checkpoint / "optim" / "toy.json").read_text())["seen"]
    return [
        f"prompt {each}: {told[each]} -> {seen.get(each)}"
        for each in told.keys() | seen
        if told[each] != seen.get(each)
    ]


def _state(checkpoint: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text())
    return state
