"""Server starts on a CPU, and failed starts that end with one sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

from slime_engine_sglang.server_command import ON_CPU
from tests.tables import table


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with a minimal fake SGLang that can start."""
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (tmp_path / "sglang-0.5.23.dist-info").mkdir()
    (tmp_path / "sglang-0.5.23.dist-info/METADATA").write_text("Name: sglang\nVersion: 0.5.23\n", "utf-8")
    (package / "launch_server.py").write_text("print('the server runs')\n", "utf-8")
    return tmp_path


def start(packages: Path) -> "subprocess.CompletedProcess[str]":
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(packages)}
    return subprocess.run([sys.executable, str(ON_CPU)], env=environment, capture_output=True, text=True, check=False)


@table(
    "stubs, body",
    [
        (
            "_platform_stubs.py",
            "def _patch_non_blocking(): pass\ndef install_platform_stubs(): print('stubs are in')\n",
        ),
        ("_triton_stub.py", "def install(): print('stubs are in')\n"),  # of older releases
    ],
)
def test_cpu_server_starts_behind_stubs(packages: Path, stubs: str, body: str) -> None:
    (packages / "sglang" / stubs).write_text(body, "utf-8")
    ran = start(packages)
    (packages / "sglang" / stubs).unlink()
    assert (ran.returncode, ran.stdout.splitlines()) == (0, ["stubs are in", "the server runs"]), ran.stderr


def test_incompatible_torch_is_named(packages: Path) -> None:
    (packages / "sglang/_platform_stubs.py").write_text("raise AttributeError('torch has no such thing')", "utf-8")
    ran = start(packages)
    assert (ran.returncode, ran.stdout) == (1, "")
    last = ran.stderr.strip().splitlines()[-1]
    assert "SGLang 0.5.23 cannot start on the CPU with torch " in last
    assert "AttributeError: torch has no such thing" in last
    assert "CPU servers need SGLang 0.5.23 with torch 2.13. Run `make servers`" in last
    assert "Traceback" not in ran.stderr


def test_python_without_sglang_is_refused(tmp_path: Path) -> None:
    ran = start(tmp_path)
    assert ran.returncode == 1
    assert "has no sglang. Set [engine.sglang] python" in ran.stderr
