"""examples/sglang.toml with a tiny model: two servers behind a router, and a second run that is the same bit by bit.

examples/sglang-ray.toml is the same with its processes on Ray, and its result is the same, too.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from real_server_engines import FILE
from servers import PYTHON, ROOT, needs_routers, needs_servers

from slime_testing import write_tiny_model

pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]
SMALL = {"num-rollout": 3, "rollout-batch-size": 4, "n-samples-per-prompt": 4, "rollout-max-response-len": 12}


def trained(folder: Path, name: str, example: str = "sglang") -> tuple[bytes, list[object], list[str]]:
    """A run's last weights, its samples, and its metrics except the machine's."""
    run = folder / name
    given = {
        "save": run,
        "hf-checkpoint": folder / "model",
        "prompt-data": folder / "prompts.jsonl",
        "engine.sglang.python": PYTHON,
        "engine.sglang.router.python": needs_routers(),
        "reward": "random",
        **SMALL,
    }
    flags = ["--no-apply-chat-template", *(str(part) for key, value in given.items() for part in (f"--{key}", value))]
    command = [
        sys.executable,
        "-m",
        "slime_core",
        "train",
        str(ROOT / f"examples/{example}.toml"),
        *flags,
        "--no-apply-chat-template",
    ]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    rows = [json.loads(line)["metrics"] for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert all(row[f"perf/engine/{number}/requests"] > 0 for row in rows for number in (0, 1))
    metrics = [{k: v for k, v in row.items() if not k.startswith(("perf/", "plugin/"))} for row in rows]
    command = [sys.executable, "-m", "slime_core", "samples", str(run), "--all", "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return (
        (run / "checkpoints/rollout_000003/hf" / FILE).read_bytes(),
        [json.dumps(each, sort_keys=True) for each in metrics],
        sorted(shown.splitlines()),
    )


def test_runs_with_one_seed_are_bitwise_equal(tmp_path: Path) -> None:
    needs_servers()
    write_tiny_model(tmp_path / "model")
    rows = [{"question": f"t{number} t{number + 1}", "answer": "t5"} for number in range(12)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    first, second = (trained(tmp_path, name) for name in ("first", "second"))
    assert len(first[2]) == 3 * 16
    assert first == second
    assert trained(tmp_path, "on-ray", "sglang-ray") == first
