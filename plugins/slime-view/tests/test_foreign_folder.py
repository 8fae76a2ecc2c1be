"""A run folder of a stranger in a browser: links in it lead to no file outside of it, what is damaged is a problem."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from slime_core.cli import run_cli
from slime_core.errors import RunFolderError
from slime_view.app import make_app
from slime_view.runs import OpenRun

MakeRun = Callable[..., Any]
HEADERS = {"authorization": "Bearer a-token"}


def planted(folder: Path, name: str, kind: str) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (folder / name).rename(outside / "kept")
    if kind == "link":
        (folder / name).symlink_to(outside / "kept")
    else:
        os.mkfifo(folder / name)


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("name", ["metrics.jsonl", "ledger.jsonl", "samples/rollout_000001.parquet", "samples"])
def test_links_out_of_the_folder_are_not_followed(make_run: MakeRun, name: str, kind: str) -> None:
    made = make_run()
    planted(made.folder, name, kind)
    (run,) = OpenRun.all([made.folder])
    while run.refresh():
        pass
    app = make_app([run], "a-token", ["127.0.0.1"])
    with TestClient(app, "http://127.0.0.1", headers=HEADERS, raise_server_exceptions=True) as client:
        state = client.get("/api/runs").json()[0]
        read = {
            "metrics.jsonl": not state["rows"],
            "ledger.jsonl": client.get("/api/life?group=train:e0:r2:d2").status_code == 404,
            "samples/rollout_000001.parquet": client.get("/api/sample?file=rollout_000001&row=0").status_code >= 400,
            "samples": not json.loads(client.get("/api/samples").text)["count"],
        }
        assert read[name]
        if name != "ledger.jsonl" and (name, kind) != ("samples", "pipe"):
            assert name in state["problem"]


def test_run_file_and_report_must_not_be_links(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_run()
    (made.folder / "report").mkdir()
    mine = made.folder.parent / "mine.html"
    mine.write_text("mine")
    (made.folder / "report" / "view.html").symlink_to(mine)
    assert run_cli(["report", str(made.folder), "--html"]) == 2
    assert "view.html is a link" in capsys.readouterr().err
    assert mine.read_text() == "mine"
    planted(made.folder, "run.toml", "link")
    with pytest.raises(RunFolderError, match=r"run\.toml is a link"):
        OpenRun.all([made.folder])
