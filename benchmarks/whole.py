"""What changes when nothing of a run file does but [trainer], [engine] and [launcher]: examples/whole and its twin.

Said by phase as well (`spans.jsonl` of each run, after its first rollout): seconds that the loop was at something, and
what samples waited for while they were in flight. `generator` is an agent, its client and the gateway.

`make whole` makes what both need. Each runs once, whole, one after the other, in a folder that is thrown away. Memory
is the proportional share (PSS) of all processes of a run, looked at every two seconds. The last line is a JSON object.

    .venv/bin/python benchmarks/whole.py
    .venv/bin/python benchmarks/whole.py --example whole-agent --num-rollout 10
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MARK = "SLIME_BENCHMARK_WHOLE"
LOOK_S = 2.0
SHOWN = {
    "reward, first three rollouts": "first",
    "reward, last three": "last",
    "held out, before and after": "held_out",
    "trainer against sampler, log-probs of the first rollout, mean": "off_mean",
    "the same, most": "off_most",
    "seconds until the first rollout is trained": "begin_s",
    "seconds of a rollout, median": "rollout_s",
    "seconds in all": "whole_s",
    "seconds of a rollout's phases": "phases",
    "shares of samples' time in flight": "waits",
    "processes, most": "processes",
    "MiB, most": "mib",
}


class Row(TypedDict):
    """What is read of a line of metrics.jsonl."""

    time: float
    metrics: dict[str, float]


def main() -> None:
    """Run both, and say what differs."""
    parser = argparse.ArgumentParser(description="examples/whole against its local twin")
    parser.add_argument("--example", default="whole", choices=["whole", "whole-agent"])
    parser.add_argument("--num-rollout", type=int, help="instead of the run file's")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {each: measured(options.example, each, folder, options.num_rollout) for each in ("run", "local")}
        differing = {"metrics": apart(folder, metric_names), "files": apart(folder, file_names)}
    print("\n| | all of it | local parts |\n|---|---|---|")
    for words, key in SHOWN.items():
        print(f"| {words} | {found['run'][key]} | {found['local'][key]} |")
    for what, (run, local) in differing.items():
        print(f"| {what} of it alone | {', '.join(run) or 'none'} | {', '.join(local) or 'none'} |")
    print(json.dumps({"example": options.example, **found, **differing}))


def measured(example: str, name: str, folder: Path, rollouts: int | None) -> dict[str, object]:
    """A run, and what it took."""
    command = [sys.executable, "-m", "slime_core", "train", str(EXAMPLES / example / f"{name}.toml"), "--no-progress"]
    given = ["--save", str(folder / name), *([] if rollouts is None else ["--num-rollout", str(rollouts)])]
    begin = time.time()
    usage = Usage(f"{MARK}={folder.name}-{name}")
    with subprocess.Popen([*command, *given], env={**os.environ, MARK: f"{folder.name}-{name}"}) as process, usage:
        if process.wait():
            sys.exit(f"{example}/{name}.toml ended with {process.returncode}")
    whole = time.time() - begin
    rows = rows_of(folder / name)
    trained = [row for row in rows if "rollout/raw_reward" in row["metrics"]]
    rewards = [row["metrics"]["rollout/raw_reward"] for row in trained]
    held_out = [value for row in rows if (value := row["metrics"].get("eval/heldout")) is not None]
    new = trained[0]["metrics"]  # later ones train on groups of older weights, too
    return {
        "first": round(statistics.mean(rewards[:3]), 3),
        "last": round(statistics.mean(rewards[-3:]), 3),
        "held_out": f"{held_out[0]:.3f}, {held_out[-1]:.3f}",
        "off_mean": float(f"{new['train/train_rollout_logprob_abs_diff']:.1e}"),
        "off_most": float(f"{new['train/train_rollout_logprob_abs_diff_max']:.1e}"),
        "begin_s": round(trained[0]["time"] - begin, 1),
        "rollout_s": round(statistics.median(row["metrics"]["perf/step_time"] for row in trained), 2),
        "whole_s": round(whole, 1),
        **by_phase(folder / name),
        "processes": usage.processes,
        "mib": usage.mib,
    }


def by_phase(run: Path) -> dict[str, str]:
    """Mean seconds of each phase of a rollout, and shares of what its samples waited for."""
    phases, waits, rollouts = defaultdict[str, float](float), defaultdict[str, float](float), set[int]()
    for line in map(json.loads, (run / "spans.jsonl").read_text("utf-8").splitlines()):
        if line["rollout_id"] < 1:
            continue  # processes start meanwhile
        for name, _, began, ended in line["phases"]:
            phases[name] += (ended - began) / 1e6
        rollouts.add(line["rollout_id"])
        for _, _, is_evaluation, marks, ended in line["samples"]:
            begun = [*marks[1::2], ended]
            for name, since, until in zip(marks[::2], begun, begun[1:], strict=False):
                waits[name.split()[0] if name.startswith(("engine", "reward")) else name] += (
                    0 if is_evaluation else until - since
                )
    count, whole = max(1, len(rollouts)), sum(waits.values()) or 1.0
    return {
        "phases": ", ".join(f"{name} {spent / count:.2f}" for name, spent in sorted(phases.items())),
        "waits": ", ".join(f"{name} {spent / whole:.3f}" for name, spent in sorted(waits.items())),
    }


class Usage(threading.Thread):
    """Processes that have a mark in their environment, and their memory, while a `with` lasts."""

    def __init__(self, mark: str) -> None:
        super().__init__(daemon=True)
        self.mark, self.ended = mark.encode(), threading.Event()
        self.processes = self.mib = 0

    def __enter__(self) -> "Usage":
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.ended.set()
        self.join()

    def run(self) -> None:
        """Look now and then."""
        while not self.ended.wait(LOOK_S):
            shares = [share for each in Path("/proc").glob("[0-9]*") if (share := self.share(each)) is not None]
            self.processes, self.mib = max(self.processes, len(shares)), max(self.mib, sum(shares) // 1024)

    def share(self, process: Path) -> int | None:
        """Its KiB; None where it is not of the run."""
        try:
            if self.mark not in (process / "environ").read_bytes():
                return None
            found = re.search(r"^Pss:\s+(\d+)", (process / "smaps_rollup").read_text(), re.MULTILINE)
        except OSError:  # it has ended
            return None
        return int(found[1]) if found else None


def apart(folder: Path, names: Callable[[Path], set[str]]) -> tuple[list[str], list[str]]:
    """What one run has and the other has not."""
    run, local = (names(folder / name) for name in ("run", "local"))
    return sorted(run - local), sorted(local - run)


def rows_of(run: Path) -> list[Row]:
    """Its metrics."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]


def metric_names(run: Path) -> set[str]:
    """Without numbers of engines."""
    return {re.sub(r"/\d+(/|$)", r"/N\1", name) for row in rows_of(run) for name in row["metrics"]}


def file_names(run: Path) -> set[str]:
    """Without numbers of rollouts, ranks and engines."""
    return {re.sub(r"\d+", "N", str(path.relative_to(run))) for path in run.rglob("*") if path.is_file()}


if __name__ == "__main__":
    main()
