"""The demo's sums learned with every built-in algorithm, and with every way to schedule: curves of several seeds.

    python benchmarks/estimators.py                             # three seeds each, and both pictures
    python benchmarks/estimators.py --only gspo --only cispo --seeds 0 --num-rollout 20

Each is the demo's run with slime's flags for that algorithm, or the demo's GRPO on groups that were generated while the
trainer worked, at most so many weight versions old, with and without truncated importance weights. All begin at the
same warm start; finished runs are left as they are. Writes docs/assets/algorithms.png and schedules.png, prints a line
a run and one JSON object as the last line: the reward of the first and of the last five rollouts, by variant.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slime_core.telemetry import MetricsLog, names
from slime_local.demo.recipe import MAX_RESPONSE
from slime_view.plots import COLORS, PLOT_STYLE

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
    "ppo": ["--advantage-estimator", "ppo", "--lambd", "0.95", "--critic-lr", "1e-3"],
}


def _schedules() -> dict[str, list[str]]:
    ways = {"async": ["--rollout-policy", "async"]}
    for staleness in (1, 2, 4):
        ways[f"continuous_{staleness}"] = ["--rollout-policy", "continuous", "--max-staleness", str(staleness)]
    corrected = {f"{name}_tis": [*flags, "--correction", "tis"] for name, flags in ways.items()}
    return dict(sorted((ways | corrected).items()))


REFERENCE = "grpo"
SCHEDULES = _schedules()
VARIANTS = ALGORITHMS | SCHEDULES


def main() -> None:
    """Run what is not run yet, draw, and print the figures."""
    options = _options()
    slime = [sys.executable, "-m", "slime_core"]
    base = options.root / "demo"
    subprocess.run(
        [*slime, "demo", "--task", "chain", "--num-rollout", "1", "--no-progress", "--save", str(base)], check=True
    )
    curves = {
        name: [_run(slime, base, name, seed, options) for seed in options.seeds] for name in options.only or VARIANTS
    }
    for picture, variants in (("algorithms", ALGORITHMS), ("schedules", SCHEDULES)):
        if drawn := {name: curves[name] for name in variants if name in curves}:
            _draw(drawn, curves.get(REFERENCE, next(iter(drawn.values()))), options.out / f"{picture}.png")
    found: dict[str, dict[str, object]] = {}
    for name, runs in curves.items():
        last = [_mean(run[-ENDS:]) for run in runs]
        found[name] = {
            "first": round(_mean([_mean(run[:ENDS]) for run in runs]), 3),
            "last": round(_mean(last), 3),
            "seeds": [round(each, 3) for each in last],
        }
    print(json.dumps({"benchmark": "estimators", "rollouts": options.num_rollout, **found}))


def _run(slime: list[str], base: Path, name: str, seed: int, options: argparse.Namespace) -> list[float]:
    """Training rewards, in order."""
    folder: Path = options.root / f"{name}-{seed}"
    if not (folder / "report").exists():
        keys = ["--save", str(folder), "--seed", str(seed), "--num-rollout", str(options.num_rollout), "--no-progress"]
        with (options.root / f"{name}-{seed}.log").open("w") as log:
            subprocess.run([*slime, "train", str(base / "run.toml"), *keys, *VARIANTS[name]], check=True, stdout=log)
    rows = [row.metrics for row in MetricsLog.read(folder / "metrics.jsonl")]
    rewards = [row[names.REWARD] for row in rows if names.REWARD in row]
    ends = _mean(rewards[:ENDS]), _mean(rewards[-ENDS:])
    print(f"{name} seed {seed}: reward {ends[0]:.3f} at first, {ends[1]:.3f} at last", flush=True)
    return rewards


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def _draw(curves: Mapping[str, Sequence[Sequence[float]]], behind: Sequence[Sequence[float]], path: Path) -> None:
    """A panel for each variant: every seed's curve, and the mean of others behind it."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    reference = [_mean(step) for step in zip(*behind, strict=True)]
    columns = 4
    style: Any = {**PLOT_STYLE, "axes.titlesize": 10}
    with plt.rc_context(style):
        figure, axes = plt.subplots(
            -(-len(curves) // columns), columns, figsize=(12, 5.6), sharex=True, sharey=True, squeeze=False
        )
        for panel, (name, runs) in zip(axes.flat, curves.items(), strict=False):
            panel.plot(reference, color="#c3cad0", linewidth=4)
            for seed, run in enumerate(runs):
                panel.plot(run, color=COLORS[seed % len(COLORS)], linewidth=1.2)
            panel.set_title(name)
            panel.set_ylim(0, 1)
        for panel in axes.flat[len(curves) :]:
            panel.set_visible(False)
        figure.supxlabel(f"rollouts; grey: mean of {REFERENCE}", fontsize=10)
        figure.supylabel("training reward", fontsize=10)
        figure.tight_layout()
        figure.savefig(path, metadata={"Software": None})
        plt.close(figure)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", action="append", choices=VARIANTS, help="default: every variant")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--num-rollout", type=int, default=40)
    parser.add_argument("--root", type=Path, default=Path("runs/estimators"), help="where runs are kept")
    parser.add_argument("--out", type=Path, default=Path("docs/assets"), help="where pictures are written")
    return parser.parse_args()


if __name__ == "__main__":
    main()
