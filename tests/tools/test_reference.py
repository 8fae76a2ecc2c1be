"""The page of the contract kit's checks is what the contracts say."""

import runpy
from pathlib import Path

from slime_testing import ALL_CHECKS
from slime_testing.contract import CheckInfo
from tests.tables import table

ROOT = Path(__file__).resolve().parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "reference.py"))
COMPARED = runpy.run_path(str(ROOT / "tools" / "pages.py"))["compared"]
PATH = ROOT / "docs" / "reference" / "checks.md"
PAGE = PATH.read_text("utf-8")


def test_the_page_is_up_to_date() -> None:
    assert not COMPARED(PATH, TOOL["page"](), "tools/reference.py")


@table("info", ALL_CHECKS.values())
def test_every_check_has_a_heading_its_method_and_its_advice(info: CheckInfo) -> None:
    _, _, section = PAGE.partition(f"### {info.identity}: {info.title}\n")
    assert section.strip().startswith(f"`{info.method}` · since {info.since}")
    assert info.advice in section.partition("\n##")[0]


def test_a_stale_page_is_shown_with_the_command_that_mends_it(tmp_path: Path) -> None:
    stale = tmp_path / "checks.md"
    stale.write_text(PAGE.replace("REW-003", "REW-300"), "utf-8")
    printed = COMPARED(stale, PAGE, "tools/reference.py")
    assert "-### REW-300: " in printed
    assert "tools/reference.py --write" in printed
