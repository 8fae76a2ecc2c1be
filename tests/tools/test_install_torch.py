"""Which torch is good enough, and which build is recognised as one for CUDA."""

import importlib.metadata
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "install_torch.py"
TORCH = runpy.run_path(str(TOOL))


def test_an_installed_torch_is_left_alone() -> None:
    before = importlib.metadata.version("torch")
    result = subprocess.run([sys.executable, TOOL], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith(f"torch {before} is installed")


def test_versions_compare_by_number() -> None:
    assert TORCH["release"]("2.13.0+cpu") == (2, 13, 0)
    assert TORCH["release"]("2.13") > TORCH["release"]("2.9.1")
    assert TORCH["release"]("2.14.0a0+git123") > TORCH["release"](TORCH["required_minimum"]())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux wheels come in two kinds under one name")
def test_a_cuda_build_is_known_by_its_requirements() -> None:
    plain = ["filelock", "sympy>=1.13.3", 'pyyaml; extra == "pyyaml"']
    assert not TORCH["needs_cuda"](plain)
    assert TORCH["needs_cuda"]([*plain, 'nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"'])
    assert TORCH["needs_cuda"]([*plain, 'cuda-bindings<14,>=13.0.3; platform_system == "Linux"'])
