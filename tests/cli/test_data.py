"""Prompts of a run: several files, mixtures, bad rows told, and files that changed under a run."""

import json
from collections.abc import Callable
from typing import Any

from slime_core.run import list_checkpoints
from slime_core.telemetry import MetricsLog

Slime = Callable[..., Any]
Project = Any
BAD: dict[str, Any] = {"question": "no answer", "answer": None}


def good(count: int) -> list[dict[str, Any]]:
    return [{"question": f"What is {number}+2?", "answer": str(number + 2)} for number in range(count)]


def sources_of(project: Project) -> set[str]:
    """Sources of all groups in the run's last checkpoint's ledger."""
    lines = (project.run / "ledger.jsonl").read_text().splitlines()
    return {
        name.partition(":e")[0] for line in lines for name in json.dumps(json.loads(line)).split('"') if ":e" in name
    }


def test_several_files_are_one_data_set(project: Project, slime: Slime) -> None:
    project.write_rows("more.jsonl", good(3))
    ran = slime("train", "run.toml", "--prompt-data", "prompts.jsonl", "--prompt-data", "more.jsonl@[1:]")
    assert ran.code == 0, ran.err
    assert MetricsLog.read(project.run / "metrics.jsonl")[0].metrics["data/prompts"] == 10
    assert 'prompt_data = ["prompts.jsonl", "more.jsonl@[1:]"]' in (project.run / "run.toml").read_text()
    assert slime("resume", project.run, "--num-rollout", 3).code == 0
    assert sources_of(project) == {"prompts.jsonl", "more.jsonl@[1:]"}


def test_a_mixture_is_drawn_from_by_weight(project: Project, slime: Slime) -> None:
    project.write_rows("more.jsonl", good(3))
    sources = {"a": {"path": "prompts.jsonl", "weight": 1.0}, "b": {"path": "more.jsonl", "weight": 1.0}}
    mixture = {"use": "mixture", "mixture": {"sources": sources}}
    project.write_run(prompt_data=None, data_source=mixture, num_rollout=3)
    ran = slime("train", "run.toml")
    assert ran.code == 0, ran.err
    assert sources_of(project) == {"a", "b"}
    metrics = MetricsLog.read(project.run / "metrics.jsonl")[-1].metrics
    assert (metrics["data/prompts/a"], metrics["data/prompts/b"]) == (8, 3)


def test_bad_rows_are_told_wherever_prompts_are_read(project: Project, slime: Slime) -> None:
    project.write_rows("prompts.jsonl", [*good(8), BAD])
    ran = slime("plan", "run.toml")
    assert ran.code == 2
    assert "prompts.jsonl:9: 'answer' is null" in ran.err
    project.write_run(bad_rows="skip", max_bad_row_rate=0.2)
    ran = slime("plan", "run.toml")
    assert ran.code == 0, ran.err
    note = "prompts.jsonl: left out 1 bad row, the first: prompts.jsonl:9: 'answer' is null"
    assert note in " ".join(ran.out.split())
    assert slime("plan", "run.toml", "--json").json()["data_notes"][0].startswith(note)
    ran = slime("train", "run.toml", "--no-progress")
    assert ran.code == 0, ran.err
    assert note in " ".join((ran.out + ran.err).split())
    assert MetricsLog.read(project.run / "metrics.jsonl")[0].metrics["data/bad_rows"] == 1


def test_a_rate_without_skipping_changes_nothing_and_is_refused(project: Project, slime: Slime) -> None:
    ran = slime("plan", "run.toml", "--max-bad-row-rate", "0.5")
    assert ran.code == 2
    assert 'max_bad_row_rate has no effect here: set bad_rows = "skip"' in ran.err


def test_a_file_that_changed_under_a_run_is_refused_or_accepted(project: Project, slime: Slime) -> None:
    assert slime("train", "run.toml", "--num-rollout", 1).code == 0
    project.write_rows("prompts.jsonl", good(5))
    ran = slime("resume", project.run, "--num-rollout", 2)
    assert ran.code != 0
    assert "prompts.jsonl: 8 -> 5 prompts" in ran.err
    assert "--accept-changed-data" in ran.err
    ran = slime("resume", project.run, "--num-rollout", 2, "--accept-changed-data")
    assert ran.code == 0, ran.err
    assert "accept_changed" not in (project.run / "run.toml").read_text()
    assert len(list_checkpoints(project.run / "checkpoints")) == 2
    assert slime("resume", project.run, "--num-rollout", 3).code == 0  # the new file is the run's own now
    project.write_rows("prompts.jsonl", good(6))
    assert slime("resume", project.run, "--num-rollout", 4).code != 0


def test_an_evaluation_set_has_keys_of_its_own(project: Project, slime: Slime) -> None:
    project.write_rows("held.jsonl", [{"q": "What is 1+1?", "gold": "2", "about": {"n": 1}}])
    held = {
        "path": "held.jsonl",
        "input_key": "q",
        "label_key": "gold",
        "metadata_key": "about",
        "apply_chat_template": False,
    }
    project.write_run(eval_prompt_data={"held": held}, eval_interval=2)
    ran = slime("train", "run.toml")
    assert ran.code == 0, ran.err
    assert any("eval/held" in row.metrics for row in MetricsLog.read(project.run / "metrics.jsonl"))
