import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from slime_reward_math.cli import main
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


def test_run_prints_a_table_and_why_there_is_no_score(answers: Path) -> None:
    printed = invoke("run", answers)
    assert "correct" in printed
    assert "1 without a score: no gold answer" in printed


@table("line, message", [("{", "no JSON"), ("[]", "expected a JSON object"), ('{"gold": 1}', "no response")])
def test_run_names_the_bad_line(tmp_path: Path, line: str, message: str) -> None:
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


def test_mcq_rows_are_graded_by_letter(tmp_path: Path) -> None:
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


@table("kind, meant", [("equvi", "equiv"), ("mqc", "mcq"), ("Equiv", "equiv")])
def test_misspelt_kind_is_refused(tmp_path: Path, kind: str, meant: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"gold": "2", "response": "2", "kind": kind}), "utf-8")
    assert f"in.jsonl:1: kind is {kind!r}. Did you mean {meant!r}?" in invoke("run", path, code=1)
    path.write_text(json.dumps({"gold": "2", "response": r"\boxed{2}", "kind": "free"}), "utf-8")
    assert json.loads(invoke("run", path, "--json"))["correct"] == 1
