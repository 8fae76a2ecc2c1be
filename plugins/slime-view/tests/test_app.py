"""What the server answers, and to whom."""

from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from slime_core.errors import RunFolderError
from slime_view.guard import POLICY
from slime_view.runs import OpenRun
from tests.tables import table

MakeRun = Callable[..., "Made"]  # noqa: F821  # of conftest.py
STATIC = Path(__file__).resolve().parents[1] / "slime_view" / "static"


@pytest.fixture
def stranger(client: TestClient) -> TestClient:
    """Who has no token yet."""
    del client.headers["authorization"]
    client.follow_redirects = False
    return client


def test_request_without_a_token_gets_a_login_page(stranger: TestClient) -> None:
    page = stranger.get("/sample", params={"run": '"><script>alert(1)</script>', "row": "3"})
    assert page.status_code == 401
    assert "first" not in page.text
    assert "<script" not in page.text
    assert 'name="row" value="3"' in page.text
    for path in ("/api/runs", "/static/view.js", "/none"):
        assert stranger.get(path).status_code == 401
    assert stranger.get("/", params={"token": "another"}).status_code == 401


def test_token_link_sets_a_cookie_and_redirects(stranger: TestClient) -> None:
    answer = stranger.get("/sample", params={"run": "first", "token": "a-token", "row": "3"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/sample?run=first&row=3")
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert stranger.get("/api/runs").status_code == 200


def test_token_link_redirects_within_the_server(stranger: TestClient) -> None:
    answer = stranger.get("http://127.0.0.1//other.example/", params={"token": "a-token"})
    assert answer.headers["location"] == "/other.example/"


def test_unknown_host_is_refused(client: TestClient) -> None:
    assert client.get("/api/runs", headers={"host": "other.example"}).status_code == 400


@table("path", ["/", "/api/runs", "/static/view.js", "/none", "/api/sample"])
def test_every_response_has_the_policy(client: TestClient, path: str) -> None:
    assert client.get(path).headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY


def test_scripts_use_no_unsafe_markup() -> None:
    scripts = sorted(STATIC.glob("*.js"))
    assert len(scripts) > 5
    for path in scripts:
        for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
            assert unsafe not in path.read_text("utf-8"), path
    page = (STATIC / "index.html").read_text("utf-8")
    assert "style=" not in page
    assert "<script>" not in page


def test_the_state_of_the_runs(client: TestClient) -> None:
    first, second = client.get("/api/runs").json()
    assert (first["name"], first["rollout"], first["rows"], first["samples"]) == ("first", 2, 4, 28)
    assert (second["name"], second["resumed"], second["waiting"], second["problem"]) == ("second", [], 0, "")
    assert second["alarms"] == []


def test_curves_after_a_row(client: TestClient) -> None:
    found = client.get(
        "/api/curves", params={"run": "first", "after": 2, "name": ["rollout/raw_reward", "none"]}
    ).json()
    assert found == {"generation": 0, "rows": 4, "metrics": {"rollout/raw_reward": {"x": [1, 2], "y": [0.1, 0.2]}}}


def test_a_page_of_samples(client: TestClient) -> None:
    found = client.get("/api/samples", params={"run": "first", "reason": "reward_timeout", "kind": "rollout"}).json()
    assert (found["count"], found["offset"]) == (6, 0)
    row = found["rows"][0]
    assert (row["file"], row["row"], row["group"], row["status"]) == ("rollout_000002", 3, "train:e0:r4:d4", "failed")
    assert client.get("/api/choices", params={"run": "first"}).json() == {
        "source": ["held out", "train"],
        "status": ["completed", "failed"],
        "reason": ["reward_timeout", "zero_std_1.0"],
    }


def test_a_sample_token_by_token(client: TestClient) -> None:
    found = client.get("/api/sample", params={"run": "first", "file": "rollout_000001", "row": 1}).json()
    assert (found["group"], found["record"]["response"], found["drop_reason"]) == ("train:e0:r2:d2", "5", None)
    found = client.get("/api/sample", params={"run": "first", "file": "rollout_000001", "row": 2}).json()
    tokens = found["tokens"]
    assert tokens["pieces"] == [["f", 1], ["o", 1], ["u", 1], ["r", 1]]
    assert (tokens["prompt"], tokens["log_prob"]) == ("What is 2+3?", [-0.5, -1.0, -1.5, -2.0])
    assert (tokens["mask"], tokens["version"]) == ([0, 1, 1, 1], ["2"] * 4)
    assert "advantage" not in tokens


def test_a_group_and_its_life(client: TestClient) -> None:
    samples = client.get("/api/group", params={"run": "first", "group": "train:e0:r3:d3"}).json()
    assert [(each["index"], each["reward"]) for each in samples] == [(0, 0.0), (1, 1.0), (2, 0.0), (3, None)]
    assert {each["drop_reason"] for each in samples} == {"zero_std_1.0"}
    moves = client.get("/api/life", params={"run": "first", "group": "train:e0:r2:d2"}).json()
    assert [move["state"] for move in moves] == ["drawn", "finished", "buffered", "trained"]
    assert (moves[-1]["use"], moves[-1]["weight"], moves[-1]["step"]) == (1, 1.0, 2)


def test_conversations_page_runs_no_script(client: TestClient) -> None:
    pytest.importorskip("slime_agent_openai")
    page = client.get("/conversations", params={"run": "first", "group": "train:e0:r3:d3"})
    assert page.text.count('<details class="execution">') == 4
    assert "zero_std_1.0" in page.text
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script" not in policy
    gone = client.get("/conversations", params={"run": "first", "group": "train:e0:r99:d99"})
    assert (gone.status_code, "keeps no samples" in gone.text) == (404, True)


def test_two_runs_compared(client: TestClient) -> None:
    found = client.get("/api/compare", params={"run": "first", "with": "second"}).json()
    assert (found["rollouts"], found["same_until"], found["of_prompts"]) == ([3, 2], None, 4)
    assert found["prompts"][0]["rewards"] == [1 / 3, 1 / 3]


@table(
    "path, parameters, status, told",
    [
        ("samples", {"run": "third"}, 400, "no run 'third' is open; open runs are first, second"),
        ("samples", {"limit": "3"}, 400, "unknown condition 'limit'"),
        ("curves", {"after": "-1"}, 400, "is not the number of a row"),
        ("sample", {"file": "rollout_000000"}, 400, "needs the parameter row="),
        ("sample", {"file": "../run", "row": "0"}, 400, "has no sample ../run:0"),
        ("sample", {"file": "rollout_000000", "row": "99"}, 404, "has no row 99"),
        ("life", {"group": "train:e0:r99:d99"}, 400, "has no group"),
    ],
)
def test_invalid_api_request_is_refused(
    client: TestClient, path: str, parameters: dict[str, str], status: int, told: str
) -> None:
    answer = client.get(f"/api/{path}", params=parameters)
    assert (answer.status_code, told in answer.json()["error"]) == (status, True), answer.text


def test_lone_surrogate_is_kept(make_run: MakeRun, client: TestClient) -> None:
    run = make_run("third", 0)
    run.rollout(0, ["half \ud83d of it"])
    run.folder.joinpath("samples", "rollout_000000.parquet").rename(
        Path(client.get("/api/runs").json()[0]["folder"]) / "samples" / "rollout_000000.parquet"
    )
    found = client.get("/api/sample", params={"file": "rollout_000000", "row": 0})
    assert found.json()["record"]["response"] == "half \ud83d of it"


def test_runs_of_one_name_are_named_by_folder(make_run: MakeRun) -> None:
    folders = [make_run(name, 0).folder for name in ("a/run", "b/run", "c/b/run", "a/other")]
    assert [run.name for run in OpenRun.all([*folders, folders[0]])] == [
        "a/run",
        f"{folders[0].parents[1].name}/b/run",
        "c/b/run",
        "other",
    ]


def test_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"has no run.toml. Give the folder named by --save"):
        OpenRun.all([tmp_path])


def test_damaged_file_is_reported(make_run: MakeRun) -> None:
    run = make_run()
    (run.folder / "samples" / "rollout_000001.parquet").write_bytes(b"PAR1")
    (opened,) = OpenRun.all([run.folder])
    opened.refresh()
    assert "rollout_000001.parquet is not a samples file" in opened.state()["problem"]
    assert (opened.state()["rows"], opened.state()["samples"]) == (4, 20)
    run.rollout(1)
    opened.refresh()
    assert (opened.state()["problem"], opened.state()["samples"]) == ("", 28)
