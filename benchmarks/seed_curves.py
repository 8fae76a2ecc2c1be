"""The demo's reward curves for several seeds, one picture a task, as the documentation shows them.

    python benchmarks/seed_curves.py
    python benchmarks/seed_curves.py --task chain --seeds 3 4

Writes docs/assets/seeds-TASK.png with all of them and demo-TASK.png with the first one's report, and
prints one line a run: its seed, its mean training reward over the last ten rollouts, its last held-out evaluation.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from slime_core.telemetry import MetricsLog, names
from slime_local.demo.recipe import SIZES
from slime_view.plots import overlay

LAST = 10


def main() -> None:
    """Run what is not run yet, and draw."""
    options = _options()
    for task in options.task or sorted(SIZES):
        curves = {f"seed {seed}": _run(task, seed, options.root) for seed in options.seeds}
        for label, run_dir in curves.items():
            rewards, evaluations = _figures(run_dir)
            print(f"{task} {label}: reward {sum(rewards[-LAST:]) / LAST:.3f}, held-out {evaluations[-1]:.3f}")
        size = SIZES[task]
        shape = f"{size.num_rollout} rollouts of {size.rollout_batch_size} × 8 samples"
        overlay(curves, options.out / f"seeds-{task}.png", f"slime demo --task {task}: training reward, {shape}")
        first = options.seeds[0]
        shutil.copyfile(curves[f"seed {first}"] / "report" / "reward.png", options.out / f"demo-{task}.png")


def _run(task: str, seed: int, root: Path) -> Path:
    """Run the demo, or continue it; a finished run is left as it is."""
    run_dir = root / f"demo-{task}-{seed}"
    demo = [sys.executable, "-m", "slime_core", "demo", "--task", task, "--seed", str(seed), "--no-progress"]
    subprocess.run([*demo, "--save", str(run_dir)], check=True)
    return run_dir


def _figures(run_dir: Path) -> tuple[list[float], list[float]]:
    """Training rewards and held-out evaluations, in order."""
    rows = [row.metrics for row in MetricsLog.read(run_dir / "metrics.jsonl")]
    held_out = names.eval_reward("heldout")
    return (
        [row[names.REWARD] for row in rows if names.REWARD in row],
        [row[held_out] for row in rows if held_out in row],
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--task", action="append", choices=sorted(SIZES), help="default: every task")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--root", type=Path, default=Path("runs/seeds"), help="where runs are kept")
    parser.add_argument("--out", type=Path, default=Path("docs/assets"), help="where pictures are written")
    return parser.parse_args()


if __name__ == "__main__":
    main()
