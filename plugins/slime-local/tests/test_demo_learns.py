"""The README's first command, until the reward has risen: for that all between a prompt and a gradient has to be right,
and what rewards it as well.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from slime_core.telemetry import MetricsLog

pytestmark = pytest.mark.long  # minutes; `slime demo` shortened is in test_demo.py
PAGE = Path(__file__).resolve().parents[3] / "docs" / "runner.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demo has run."""
    made = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "slime_core", "demo", "--num-rollout", "12", "--no-progress"]
    ran = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return made


def test_the_demo_learns(folder: Path) -> None:
    rows = MetricsLog.read(folder / "runs" / "demo-word-0" / "metrics.jsonl")
    rewards = [row.metrics["rollout/raw_reward"] for row in rows if "rollout/raw_reward" in row.metrics]
    heldout = [row.metrics["eval/heldout"] for row in rows if "eval/heldout" in row.metrics]
    assert rewards[0] < 0.3 < 0.6 < rewards[-1]
    assert heldout[-1] > heldout[0] + 0.4


def test_runner_page_example_learns(folder: Path) -> None:
    pytest.importorskip("slime_compat")
    (program,) = re.findall(
        r'^```python title="first_run.py"\n(.*?)^```', PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    first, last, model = re.findall(r"^reward (\S+) -> (\S+), model in (\S+)$", ran.stdout, re.MULTILINE)[0]
    assert float(first) < 0.3 < 0.6 < float(last)
    assert (folder / model / "config.json").is_file()
