"""What the driver of a run and its workers take of the processors in a step, on this machine.

    slime demo --num-rollout 1                                          # makes the model
    .venv/bin/python benchmarks/driver_share.py                         # on runs/demo-word-0/run.toml

Trains the run file for 40 steps without evaluations in a folder that is thrown away, and notes the processor time of
every process after the tenth and at the end of the thirty that follow. The last line is one JSON object: seconds a step
by the clock, and processor seconds a step by the log that a worker writes; `driver` is the process of the command, and
`others` are agents (of examples/whole-agent/local.toml, say), rewards in processes, and what workers are forked from.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from slime_core.processes.limits import descendants

WARM, STEPS = 10, 30
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("run_file", type=Path, nargs="?", default=Path("runs/demo-word-0/run.toml"))
    run_file = parser.parse_args().run_file
    with tempfile.TemporaryDirectory() as root:
        save = Path(root) / "run"
        command = [sys.executable, "-m", "slime_core", "train", str(run_file), "--save", str(save), "--no-progress"]
        command += ["--num-rollout", str(WARM + STEPS + 2), "--eval-interval", "1000", "--save-interval", "1000"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        before = _after(WARM, save, process)
        spent = _after(WARM + STEPS, save, process)
        process.wait()
        rows = _steps(save)[WARM : WARM + STEPS]
    clock = {name: statistics.median(row[f"perf/{name}_time"] for row in rows) for name in ("step", "rollout", "train")}
    used = {name: (spent[name] - before[name]) / STEPS for name in sorted(before)}
    print(json.dumps({"clock_s": clock, "processor_s": {name: round(value, 4) for name, value in used.items()}}))


def _after(steps: int, save: Path, process: subprocess.Popen[bytes]) -> dict[str, float]:
    """Processor seconds of every process once so many steps are done."""
    while len(_steps(save)) < steps:
        if process.poll() is not None:
            raise SystemExit(f"the run ended with exit code {process.returncode} after {len(_steps(save))} steps")
        time.sleep(0.05)
    found = {"driver": _processor_s(process.pid)}
    for pid in descendants(process.pid):
        log = Path(f"/proc/{pid}/fd/1").readlink()
        name = log.stem if log.suffix == ".log" else "others"
        found[name] = found.get(name, 0.0) + _processor_s(pid)
    return found


def _steps(save: Path) -> list[dict[str, float]]:
    log = save / "metrics.jsonl"
    rows = [json.loads(line)["metrics"] for line in log.read_text().splitlines()] if log.exists() else []
    return [row for row in rows if "perf/step_time" in row]


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    main()
