"""Which torch is good enough, and which build is recognised as one for CUDA."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "install_torch.py"


def test_an_installed_torch_is_left_alone() -> None:
    before = importlib.metadata.version("torch")
    result = subprocess.run([sys.executable, TOOL], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith(f"torch {before} is installed")


PIP = """
import json, sys
arguments = sys.argv[1:]
if "--dry-run" in arguments:
    print(json.dumps({"install": [{"metadata": {"requires_dist": ["nvidia-cudnn-cu13==9"]}}]}))
elif "--index-url" in arguments:
    sys.exit(1)
else:
    print("installed", arguments[-1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux wheels come in two kinds under one name")
def test_where_the_cpu_index_cannot_be_reached_the_ordinary_build_is_taken_and_its_size_said(tmp_path: Path) -> None:
    """A pip of our own, in an environment without torch: the real one would download gigabytes."""
    (tmp_path / "pip.py").write_text(PIP)
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.metadata as m\nfound = m.version\n"
        "def version(name):\n"
        "    if name == 'torch':\n        raise m.PackageNotFoundError(name)\n    return found(name)\n"
        "m.version = version\n"
    )
    done = subprocess.run(
        [sys.executable, TOOL],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "could not be had from https://download.pytorch.org/whl/cpu" in done.stdout
    assert "about 3 GB to download" in done.stdout
    assert "installed torch==" in done.stdout
