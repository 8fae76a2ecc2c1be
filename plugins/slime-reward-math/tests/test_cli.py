import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from slime_reward_math.cli import main, reward_names
from tests.tables import table

ROWS = [
    {"id": "a", "gold": "1/2", "response": "0.5", "kind": "equiv"},
    {"id": "b", "gold": "1/2", "response": r"so \boxed{2}"},
    {"id": "c", "gold": None, "response": r"\boxed{2}"},
    {"gold": 4, "response": r"\boxed{4}", "kind": "boxed"},
]


def invoke(*args: object, code: int = 0) -> str:
    done = CliRunner().invoke(main, [str(each) for each in args])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), "utf-8")
    return path


def test_run_writes_a_verdict_for_each_row(answers: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    summary = json.loads(invoke("run", answers, "--out", out, "--json"))
    found = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [each["id"] for each in found] == ["a", "b", "c", "4"]
    assert [each["verdict"] for each in found] == ["correct", "wrong", "undecided", "correct"]
    assert [each["score"] for each in found] == [1.0, 0.0, None, 1.0]
    assert found[1]["extracted"] == "2"
    assert found[2]["reason"] == "no gold answer"
    assert all(each["milliseconds"] >= 0 for each in found)
    assert (summary["answers"], summary["correct"], summary["undecided"]) == (4, 2, 1)


@table("name", reward_names())
def test_every_reward_can_be_run(name: str, answers: Path) -> None:
    assert json.loads(invoke("run", answers, "--reward", name, "--json"))["answers"] == 4


def test_run_prints_a_table(answers: Path) -> None:
    assert "correct" in invoke("run", answers)


def test_run_repeats_slimes_verdicts(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"gold": "1/2", "response": r"\boxed{\frac{2}{4}}"}), "utf-8")
    assert json.loads(invoke("run", path, "--json"))["correct"] == 1
    assert json.loads(invoke("run", path, "--json", "--set", "strict_slime=true"))["correct"] == 0
    assert "no setting strict_slime" in invoke("run", path, "--reward", "random", "--set", "strict_slime=true", code=1)


@table("line, message", [("{", "no JSON"), ("[]", "expected a JSON object"), ('{"gold": 1}', "no response")])
def test_run_says_which_line_is_bad(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(line, "utf-8")
    output = invoke("run", path, code=1)
    assert "in.jsonl:1" in output
    assert message in output


def test_explain_goes_step_by_step() -> None:
    steps = json.loads(invoke("explain", "x+1", r"so \boxed{1+x}", "--json"))
    assert (steps["answer"], steps["gold read as"], steps["verdict"]) == ("1+x", "(x + 1)", "correct")
    assert "the last box" in invoke("explain", "1", r"\boxed{[1]}")
    assert json.loads(invoke("explain", "1", "2", "--bare", "--json"))["verdict"] == "wrong"


def test_a_row_of_the_kind_mcq_is_graded_by_its_letter(tmp_path: Path) -> None:
    path, out = tmp_path / "choices.jsonl", tmp_path / "out.jsonl"
    rows = [
        {"gold": "B", "response": "Answer: B", "kind": "mcq"},
        {"gold": "B", "response": "Answer: Paris", "kind": "mcq", "choices": ["London", "Paris"]},
        {"gold": "B", "response": "not B but A", "kind": "mcq"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    invoke("run", path, "--out", out)
    found = [json.loads(line)["verdict"] for line in out.read_text("utf-8").splitlines()]
    assert found == ["correct", "correct", "wrong"]


def test_run_says_why_there_are_no_scores(answers: Path) -> None:
    summary = json.loads(invoke("run", answers, "--reward", "remote_rm", "--json"))
    assert summary["mean_score"] is None
    assert summary["unscored"] == {"remote_rm has no address: set rm_url, for instance http://127.0.0.1:9000/score": 4}
    assert "4 without a score: remote_rm has no address" in " ".join(
        invoke("run", answers, "--reward", "remote_rm").split()
    )


def test_settings_of_a_reward_are_passed_on_and_checked(answers: Path) -> None:
    assert "rm_url is 'ftp://x'" in invoke("run", answers, "--reward", "remote_rm", "--set", "rm_url=ftp://x", code=1)
    output = invoke("run", answers, "--reward", "remote_rm", "--set", "url=http://x", code=1)
    assert "reward remote_rm has no setting url; it has: rm_url, timeout_s, max_retries, reward_key" in output
    assert "expected KEY=VALUE" in invoke("run", answers, "--set", "strict_slime", code=1)


@table("kind, meant", [("equvi", "equiv"), ("mqc", "mcq"), ("Equiv", "equiv")])
def test_a_misspelt_kind_is_refused_and_a_kind_of_ones_own_is_a_response(tmp_path: Path, kind: str, meant: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"gold": "2", "response": "2", "kind": kind}), "utf-8")
    assert f"in.jsonl:1: kind is {kind!r}. Did you mean {meant!r}?" in invoke("run", path, code=1)
    path.write_text(json.dumps({"gold": "2", "response": r"\boxed{2}", "kind": "free"}), "utf-8")
    assert json.loads(invoke("run", path, "--json"))["correct"] == 1


def test_explain_speaks_for_every_reward() -> None:
    steps = json.loads(invoke("explain", "B", "Answer: B", "--reward", "gpqa", "--json"))
    assert (steps["verdict"], steps["score"]) == ("correct", 1.0)
    strict = json.loads(invoke("explain", "1/2", r"\boxed{\frac{2}{4}}", "--set", "strict_slime=true", "--json"))
    assert strict["verdict"] == "wrong"
