"""The pages that tools make are what they make now."""

import runpy

import pytest

from slime_testing import ALL_CHECKS
from tests.tools.repository import ROOT, run_tool


def test_the_page_of_checks_is_up_to_date_and_has_every_check() -> None:
    path = ROOT / "docs" / "reference" / "checks.md"
    page = runpy.run_path(str(ROOT / "tools" / "reference.py"))["page"]()
    compared = runpy.run_path(str(ROOT / "tools" / "pages.py"))["compared"]
    assert not compared(path, page, "tools/reference.py")
    for info in ALL_CHECKS.values():
        assert f"### {info.identity}: {info.title}\n" in page
        assert info.advice in page


def test_the_page_of_sglangs_arguments_is_up_to_date() -> None:
    pytest.importorskip("slime_engine_sglang.arguments")
    done = run_tool("sglang_arguments.py")
    assert done.returncode == 0, done.stdout + done.stderr
