"""What a whole run costs under Ray: the demo's model and batches, untrained, under either launcher by turns."""

import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from slime_core.config import write_toml
from slime_core.telemetry import MetricsLog
from slime_local.demo.tasks import problems
from slime_local.demo.tiny import write_tiny_model

LAUNCHERS = ("local", "ray")
ROLLOUTS = 30
LEFT_OUT = 3
"""Steps, the first ones of each run: they import and allocate."""
LOOK_S = 0.1
"""Seconds between two looks at the driver's memory."""


def runs(folder: Path, rounds: int) -> dict[str, float]:
    """Print it; returns ratios and differences."""
    run_file = _run_file(folder)
    steps: dict[str, list[float]] = {each: [] for each in LAUNCHERS}
    others: dict[str, list[dict[str, float]]] = {each: [] for each in LAUNCHERS}
    digests: set[str] = set()
    for number in range(rounds):
        for launcher in LAUNCHERS:
            run = folder / f"{launcher}-{number}"
            took, told = _trained(run_file, run, launcher)
            steps[launcher] += took
            others[launcher].append(told)
            digests.add(_digest(run))
    step = {each: statistics.median(steps[each]) for each in LAUNCHERS}
    found = {"step/local": step["ray"] / step["local"], "digests": float(len(digests))}
    print(f"a step, median of {len(steps['ray'])}")
    for each in LAUNCHERS:
        print(f"  {each:<6} {step[each]:7.3f} s, {step[each] / step['local']:5.2f} times local")
    for what, unit in (("start", "s"), ("end", "s"), ("driver", "MiB")):
        medians = {each: statistics.median(told[what] for told in others[each]) for each in LAUNCHERS}
        more = medians["ray"] - medians["local"]
        print(f"{what:<8} local {medians['local']:7.1f} {unit}, ray {medians['ray']:7.1f} {unit}, {more:+.1f}")
        found[f"{what}_more"] = more
    print(
        f"digests of ledger, samples and newest checkpoint: {len(digests)} of {rounds * len(LAUNCHERS)} runs differ"
        if len(digests) > 1
        else "digests of ledger, samples and newest checkpoint: all the same"
    )
    return found


def _trained(run_file: Path, run: Path, launcher: str) -> tuple[list[float], dict[str, float]]:
    """Seconds of each step; and until the first began, after the last ended, and the driver's peak in MiB."""
    command = [sys.executable, "-m", "slime_core", "train", str(run_file), "--save", str(run), "--no-progress"]
    began = time.time()
    driver, peak = subprocess.Popen([*command, "--launcher", launcher], stdout=subprocess.DEVNULL), 0.0
    while driver.poll() is None:
        peak = max(peak, _peak_mib(driver.pid))
        time.sleep(LOOK_S)
    assert driver.returncode == 0, f"the run under {launcher} ended with {driver.returncode}"
    ended = time.time()
    rows = MetricsLog.read(run / "metrics.jsonl")
    spent = [float(row.metrics["perf/step_time"]) for row in rows]
    told = {
        "start": rows[0].time - spent[0] - began,
        "end": ended - rows[-1].time,
        "driver": peak,
    }
    return spent[LEFT_OUT:], told


def _peak_mib(pid: int) -> float:
    """Most memory that a process has had until now; 0 of one that is over."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def _digest(run: Path) -> str:
    newest = max((run / "checkpoints").iterdir())
    total = hashlib.sha256()
    for file in sorted([run / "ledger.jsonl", *run.glob("samples/*"), *newest.glob("*/*")]):
        total.update(file.relative_to(run).as_posix().encode())
        total.update(file.read_bytes())
    return total.hexdigest()


def _run_file(folder: Path) -> Path:
    write_tiny_model(folder / "model", "word", 0)
    rows = [{"question": each.question, "answer": str(each.answer)} for each in problems("word", 0, 256, "train")]
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    run_file = folder / "run.toml"
    run_file.write_text(
        write_toml(
            {
                "hf_checkpoint": str(folder / "model"),
                "prompt_data": str(folder / "train.jsonl"),
                "input_key": "question",
                "label_key": "answer",
                "apply_chat_template": True,
                "num_rollout": ROLLOUTS,
                "rollout_batch_size": 32,
                "n_samples_per_prompt": 8,
                "rollout_max_response_len": 48,
                "lr": 4e-4,
                "save_interval": ROLLOUTS,
                "reward": {"use": "math"},
                "engine": {"local": {"workers": min(2, os.cpu_count() or 1)}},
                "trainer": {"local": {"ranks": min(2, os.cpu_count() or 1)}},
            }
        )
    )
    return run_file
