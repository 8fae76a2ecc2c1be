"""Says how the reward of runs has gone, and exits with 1 where it has not risen.

python examples/whole/rose.py runs/whole runs/whole-agent
"""

import json
import statistics
import sys
from pathlib import Path

ENDS = 3
"""Rollouts at the beginning and at the end that are compared."""


def main(folders: list[str]) -> int:
    """Look at each run."""
    have_risen = True
    for folder in folders:
        lines = Path(folder, "metrics.jsonl").read_text("utf-8").splitlines()
        rewards = [
            reward for line in lines if (reward := json.loads(line)["metrics"].get("rollout/raw_reward")) is not None
        ]
        first, last = (statistics.mean(part) for part in (rewards[:ENDS], rewards[-ENDS:]))
        have_risen = have_risen and last > first
        print(f"{folder}: reward {first:.3f} -> {last:.3f} in {len(rewards)} rollouts")
    return 0 if have_risen else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
