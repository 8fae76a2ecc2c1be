"""A plugin that makes every command slow is named: by any command while it loads, and by `slime doctor`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slime_testing import write_distribution

API = 'SLIME_API = "1"\n'


def slime(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command of a process of its own, where nothing is imported yet."""
    return subprocess.run(
        [sys.executable, "-m", "slime_core", *arguments],
        env={**os.environ, "PYTHONPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_plugin_that_sleeps_or_imports_torch_is_named(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for name, source in (("sleeps", "import time\ntime.sleep(2.2)\n"), ("torches", "import torch\n"), ("quick", "")):
        write_distribution(tmp_path, f"slime-{name}", {f"{name}.py": source + API}, entry_points={name: name})
    ran = slime(tmp_path, "plan", "nowhere.toml")
    assert ran.returncode == 2
    (line,) = [each for each in ran.stderr.splitlines() if "slime-sleeps" in each]
    assert line.startswith("warning: plugin slime-sleeps takes 2.")
    assert "--no-plugin slime-sleeps" in line
    doctor = slime(tmp_path, "doctor", "--json")
    (row,) = [each for each in json.loads(doctor.stdout)["checks"] if each["check"] == "slime-testing/plugin_speed"]
    assert row["health"] == "warning"
    assert "slime-sleeps takes 2." in row["text"]
    assert "imports torch" in row["text"].partition("slime-torches takes ")[2]
    assert "slime-quick" not in row["text"]
    assert "--no-plugin slime-sleeps --no-plugin slime-torches" in row["advice"]
