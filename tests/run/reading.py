"""What a run folder has, as tests compare it."""

import json
from pathlib import Path
from typing import Any

from slime_core.telemetry import MetricsLog
from slime_view.samples.shard import Shard


def metrics(run: Path) -> list[dict[str, float]]:
    """Metrics of each rollout, without those of evaluations."""
    rows = MetricsLog.read(run / "metrics.jsonl")
    return [dict(row.metrics) for row in rows if any(not name.startswith("eval/") for name in row.metrics)]


def training_metrics(run: Path) -> list[dict[str, float]]:
    """Metrics of each rollout that equal runs share: of training and of the drawn samples."""
    names = ("train/", "rollout/raw_reward", "rollout/response_len", "rollout/zero_std")
    return [{name: row[name] for name in row if name.startswith(names)} for row in metrics(run)]


def ledger(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]


def samples(run: Path, name: str = "rollout_000000") -> list[dict[str, Any]]:
    return [row.to_dict() for row in Shard(run / "samples" / f"{name}.parquet").rows()]


def weights(run: Path) -> dict[str, bytes]:
    """All tensor files of the newest checkpoint, by path in it."""
    newest = max((run / "checkpoints").iterdir())
    return {str(path.relative_to(newest)): path.read_bytes() for path in newest.rglob("*.safetensors")}
