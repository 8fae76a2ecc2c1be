"""`slime report`: one page, which has the data in it as data, and lets no script run but its own."""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from slime_core.cli import run_cli
from slime_view.report import MODULES, bundle, chosen
from slime_view.runs import OpenRun

MakeRun = Callable[..., "Made"]  # noqa: F821  # of conftest.py


def page_of(*folders: Path) -> str:
    out = folders[0] / "page.html"
    assert run_cli(["report", *map(str, folders), "--html", "--out", str(out), "--samples", "20"]) == 0
    return out.read_text("utf-8")


def held_in(page: str) -> dict[str, list[dict[str, object]]]:
    (data,) = re.findall(r'<script type="application/json" id="held">(.*?)</script>', page, re.DOTALL)
    found: dict[str, list[dict[str, object]]] = json.loads(data)
    return found


def test_scripts_and_styles_are_allowed_by_digest(make_run: MakeRun) -> None:
    page = page_of(make_run().folder)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    inline = re.findall(r"<(?:script|style)(?: type=\"module\")?>(.*?)</(?:script|style)>", page, re.DOTALL)
    assert len(inline) == 3
    for text in inline:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy
    assert "http-equiv" not in page.replace('<meta http-equiv="Content-Security-Policy"', "")
    assert not re.search(r"(?:src|href)=\"?(?:/|http)", page)


def test_texts_cannot_end_the_data(make_run: MakeRun) -> None:
    run = make_run(rollouts=0)
    texts = [f"</script><script>window.owned={number}</script><!--" for number in range(8)]
    run.hostile(0, texts)
    page = page_of(run.folder)
    assert page.count("<script") == 3
    responses = {each["record"]["response"] for each in held_in(page)["runs"][0]["samples"]}
    assert responses == {*texts, "five"}


def test_report_has_whole_groups_of_the_run(make_run: MakeRun) -> None:
    run = make_run(rollouts=30)
    (opened,) = OpenRun.all([run.folder])
    while opened.refresh():
        pass
    places = [(place.path.stem, place.row) for place in chosen(opened, 24)]
    wanted = [(f"rollout_{number:06}", row) for number in (0, 14, 29) for row in range(8)]
    assert places == [*wanted, *(("eval_000000", row) for row in range(4))]


def test_report_compares_two_runs(make_run: MakeRun) -> None:
    held = held_in(page_of(make_run("first").folder, make_run("second", 2).folder))
    assert set(held["comparisons"]) == {"first\nsecond", "second\nfirst"}
    assert [run["state"]["name"] for run in held["runs"]] == ["first", "second"]


def test_empty_run_has_a_report(make_run: MakeRun) -> None:
    run = make_run(rollouts=0)
    for path in (run.folder / "samples").iterdir():
        path.unlink()
    assert held_in(page_of(run.folder))["runs"][0]["samples"] == []


def test_report_without_html_writes_markdown(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run()
    assert run_cli(["report", str(run.folder)]) == 0
    assert capsys.readouterr().out.strip() == str(run.folder / "report" / "report.md")
    assert "rollouts | 3" in (run.folder / "report" / "report.md").read_text("utf-8")


def test_bundle_orders_modules_by_import() -> None:
    static = Path(__file__).resolve().parents[1] / "slime_view" / "static"
    assert sorted(MODULES) == sorted(path.stem for path in static.glob("*.js"))
    for name in MODULES:
        for needed in re.findall(r'from "\./(\w+)\.js"', (static / f"{name}.js").read_text("utf-8")):
            assert MODULES.index(needed) < MODULES.index(name)
    assert not re.search(r"^(?:import|export)\b", bundle(), re.MULTILINE)
