"""Prompts of a run: several files, mixtures, bad rows, and files that changed under a run."""

from typing import Any

from slime_core.run import list_checkpoints
from slime_core.telemetry import MetricsLog
from tests.conftest import Project, Slime

BAD: dict[str, Any] = {"question": "no answer", "answer": None}


def good(count: int) -> list[dict[str, Any]]:
    return [{"question": f"What is {number}+2?", "answer": str(number + 2)} for number in range(count)]


def test_bad_rows_are_told_wherever_prompts_are_read(project: Project, slime: Slime) -> None:
    project.write_rows("prompts.jsonl", [*good(8), BAD])
    assert "prompts.jsonl:9: 'answer' is null" in slime.refused("plan", "run.toml")
    project.write_run(max_bad_row_rate=0.2)
    ran = slime.ok("plan", "run.toml")
    note = "prompts.jsonl: left out 1 bad row, the first: prompts.jsonl:9: 'answer' is null"
    assert note in " ".join(ran.out.split())
    assert slime("plan", "run.toml", "--json").json()["data_notes"][0].startswith(note)
    ran = slime.ok("train", "run.toml", "--no-progress")
    assert note in " ".join((ran.out + ran.err).split())
    assert MetricsLog.read(project.run / "metrics.jsonl")[0].metrics["data/bad_rows"] == 1


def test_a_file_that_changed_under_a_run_is_refused_or_accepted(project: Project, slime: Slime) -> None:
    assert slime("train", "run.toml", "--num-rollout", 1).code == 0
    project.write_rows("prompts.jsonl", good(5))
    with (project.run / "ledger.jsonl").open("a") as file:  # as if the run went on after its checkpoint
        file.write('{"id": "prompts.jsonl:e0:r4:d4", "state": "drawn", "rollout_id": 1}\n')
    before = [(project.run / name).read_bytes() for name in ("run.toml", "ledger.jsonl")]
    ran = slime("resume", project.run, "--num-rollout", 2)
    assert ran.code != 0
    assert [(project.run / name).read_bytes() for name in ("run.toml", "ledger.jsonl")] == before
    assert "prompts.jsonl: 8 -> 5 prompts" in ran.err
    assert "--accept-changed-data" in ran.err
    slime.ok("resume", project.run, "--num-rollout", 2, "--accept-changed-data")
    assert "accept_changed" not in (project.run / "run.toml").read_text()
    assert len(list_checkpoints(project.run / "checkpoints")) == 2
    assert slime("resume", project.run, "--num-rollout", 3).code == 0  # the new file is the run's own now
    project.write_rows("prompts.jsonl", good(6))
    assert slime("resume", project.run, "--num-rollout", 4).code != 0
