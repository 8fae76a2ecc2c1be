"""The demo's task learned with every built-in algorithm: training reward of the first and of the last rollouts.

    python benchmarks/estimators.py
    python benchmarks/estimators.py --num-rollout 20 --only gspo --only cispo --seeds 0 1

Each is the demo's run with slime's flags for that algorithm, from the same warm start; finished runs are left as they
are. Prints one line a run, and one JSON object as the last line: by algorithm, its rewards and their ratio to GRPO's.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from slime_core.run.demo import MAX_RESPONSE
from slime_core.telemetry import MetricsLog, names

ENDS = 5
"""Rollouts averaged at either end."""

PER_SAMPLE = ["--no-calculate-per-token-loss"]
ALGORITHMS = {
    "grpo": [],
    "dr_grpo": ["--grpo-std-normalization", "false", "--constant-loss-length", str(MAX_RESPONSE), *PER_SAMPLE],
    "rloo": ["--advantage-estimator", "rloo"],
    "gspo": ["--advantage-estimator", "gspo", *PER_SAMPLE],
    "cispo": ["--advantage-estimator", "cispo"],
    "reinforce_plus_plus": ["--advantage-estimator", "reinforce_plus_plus"],
    "reinforce_plus_plus_baseline": ["--advantage-estimator", "reinforce_plus_plus_baseline"],
    "grpo_icepop": ["--correction", "icepop"],
    "grpo_entropy": ["--entropy-coef", "0.001"],
}


def main() -> None:
    """Run what is not run yet, and print the figures."""
    options = _options()
    slime = [sys.executable, "-m", "slime_core"]
    base = options.root / "demo"
    subprocess.run(
        [*slime, "demo", "--task", "chain", "--num-rollout", "1", "--no-progress", "--save", str(base)], check=True
    )
    found: dict[str, dict[str, float]] = {}
    for name in options.only or ALGORITHMS:
        runs = [_run(slime, base, name, seed, options) for seed in options.seeds]
        first, last = (sum(each[end] for each in runs) / len(runs) for end in (0, 1))
        found[name] = {"first": round(first, 3), "last": round(last, 3)}
    if "grpo" in found:
        for figures in found.values():
            figures["to_grpo"] = round(figures["last"] / found["grpo"]["last"], 3)
    print(json.dumps({"benchmark": "estimators", "rollouts": options.num_rollout, **found}))


def _run(slime: list[str], base: Path, name: str, seed: int, options: argparse.Namespace) -> tuple[float, float]:
    """Mean training reward of the first and of the last rollouts."""
    folder: Path = options.root / f"{name}-{seed}"
    if not (folder / "report").exists():
        keys = ["--save", str(folder), "--seed", str(seed), "--num-rollout", str(options.num_rollout), "--no-progress"]
        subprocess.run([*slime, "train", str(base / "run.toml"), *keys, *ALGORITHMS[name]], check=True)
    rows = [row.metrics for row in MetricsLog.read(folder / "metrics.jsonl")]
    rewards = [row[names.REWARD] for row in rows if names.REWARD in row]
    first, last = sum(rewards[:ENDS]) / ENDS, sum(rewards[-ENDS:]) / ENDS
    print(f"{name} seed {seed}: reward {first:.3f} at first, {last:.3f} at last", flush=True)
    return first, last


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", action="append", choices=ALGORITHMS, help="default: every algorithm")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--num-rollout", type=int, default=40)
    parser.add_argument("--root", type=Path, default=Path("runs/estimators"), help="where runs are kept")
    return parser.parse_args()


if __name__ == "__main__":
    main()
