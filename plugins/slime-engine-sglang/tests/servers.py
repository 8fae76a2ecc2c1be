"""The Python that has SGLang, for tests with real servers, and a Python that runs a stub server instead.

from servers import PYTHON, needs_servers, stub_python
"""

import os
import sys
from pathlib import Path

import pytest
from fake_python import python_with

from slime_engine_sglang.contract import VARIABLE

ROOT = Path(__file__).resolve().parents[3]
STUB = Path(__file__).with_name("stub_server.py")
ROUTERS_VARIABLE = "SLIME_ROUTERS_PYTHON"
ROUTERS = Path(os.environ.get(ROUTERS_VARIABLE, ROOT / ".venv-routers/bin/python"))
PYTHON = Path(os.environ.get(VARIABLE, ROOT / ".venv-sglang/bin/python"))


def needs_servers() -> None:
    """Skip the test if SGLang is not installed."""
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} does not exist; run `make servers`, or set {VARIABLE} to a Python with SGLang")


def stub_python(folder: Path) -> Path:
    """A fake Python with SGLang that runs the stub server for any command."""
    python = python_with(folder, "0.5.23")
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {STUB} "$@"\n', "utf-8")
    return python


def needs_routers() -> Path:
    """A Python that has smg and sglang-router; skips the test if there is none."""
    if not ROUTERS.exists():
        pytest.skip(f"{ROUTERS} does not exist; set {ROUTERS_VARIABLE} to a Python with smg and sglang-router")
    return ROUTERS
