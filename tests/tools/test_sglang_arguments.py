"""The page of SGLang's arguments is what slime-engine-sglang lists."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
arguments = pytest.importorskip("slime_engine_sglang.arguments")
PAGE = ROOT / "docs" / "reference" / "sglang-arguments.md"


def test_the_page_is_the_committed_one() -> None:
    command = [sys.executable, "tools/sglang_arguments.py"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_argument_of_a_server_and_of_both_routers_has_its_row() -> None:
    page = PAGE.read_text("utf-8")
    names = [each["name"] for each in json.loads(arguments.SHIPPED.read_text("utf-8"))]
    assert all(f"| `--sglang-{name.replace('_', '-')}` |" in page for name in names)
    for program, version in (("smg", "1.13.0"), ("sglang-router", "0.3.2")):
        assert f"## {program} {version}" in page
        listed = json.loads(arguments.listed_router(program, version).read_text("utf-8"))
        assert all(f"| `--router-{each['name'].replace('_', '-')}` |" in page for each in listed)
    assert "| `--sglang-model-path` | nothing: it follows from hf_checkpoint | |" in page
