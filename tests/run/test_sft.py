"""`slime sft`: the loss is the likelihood of the assistant's words; what was stopped ends as what was not."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from slime_core.telemetry import MetricsLog
from slime_local.demo.tasks import problems, worked_response
from tests.conftest import Ran, Slime
from tests.run.reading import training_metrics, weights
from tests.tables import table

KEYS = (
    "--input-key",
    "messages",
    "--apply-chat-template",
    "--rollout-batch-size",
    4,
    "--rollout-shuffle",
    "--lr",
    1e-3,
)


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for split, count in (("train", 10), ("eval", 5)):
        made = [(problem.question, worked_response(problem)) for problem in problems("chain", 1, count, split)]
        lines = [
            json.dumps({"q": q, "messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]})
            + "\n"
            for q, a in made
        ]
        (tmp_path / f"{split}.jsonl").write_text("".join(lines))
    return tmp_path


def finetune(slime: Slime, model: Path, save: str, *more: object) -> Ran:
    return slime(
        "sft", "--hf-checkpoint", model, "--prompt-data", "train.jsonl", *KEYS, "--save", save, "--no-progress", *more
    )


def test_steps_without_a_checkpoint_are_done_anew_and_said_to_be(slime: Slime, rows: Path, tiny_model: Path) -> None:
    assert "starts over" not in finetune(slime, tiny_model, "parts", "--num-rollout", 2).out
    shutil.rmtree(rows / "parts" / "checkpoints" / "rollout_000002")
    again = finetune(slime, tiny_model, "parts", "--num-rollout", 2)
    assert "parts has no checkpoint of trained weights" in again.out
    assert len(MetricsLog.read(rows / "parts" / "metrics.jsonl")) == 2


def test_a_run_that_was_stopped_ends_as_one_that_was_not(slime: Slime, rows: Path, tiny_model: Path) -> None:
    """Over epochs of 10 rows in steps of 4."""
    more = ("--async-save", "--save-interval", 1, "--lora-rank", 2)
    assert finetune(slime, tiny_model, "whole", "--num-rollout", 6, *more).code == 0
    assert finetune(slime, tiny_model, "parts", "--num-rollout", 4, *more).code == 0
    assert slime("resume", "parts", "--num-rollout", 6, "--no-progress").code == 0
    whole, parts = rows / "whole", rows / "parts"
    assert weights(whole) == weights(parts)
    assert any(name.endswith("adapter_model.safetensors") for name in weights(whole))
    assert training_metrics(whole) == training_metrics(parts)


def test_the_evaluated_loss_is_that_of_the_exported_model(slime: Slime, rows: Path, tiny_model: Path) -> None:
    """Against Hugging Face's own logits of the texts that its own tokenizer makes."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    held_out = ("--eval-prompt-data", "held", "eval.jsonl", "--eval-interval", 2)
    ran = finetune(slime, tiny_model, "run", "--num-epoch", 1, *held_out)
    assert ran.code == 0, ran.err
    found = [row for row in MetricsLog.read(rows / "run" / "metrics.jsonl") if "eval/held-loss" in row.metrics]
    assert [row.rollout_id for row in found] == [0, 2]
    for row, directory in zip(found, (tiny_model, rows / "run/checkpoints/rollout_000002/hf"), strict=True):
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(directory)
        total, count = 0.0, 0
        for line in (rows / "eval.jsonl").read_text().splitlines():
            messages = json.loads(line)["messages"]
            prompt = tokenizer.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True)
            start = tokenizer(prompt)["input_ids"]
            answer = [*tokenizer(messages[1]["content"])["input_ids"], tokenizer.eos_token_id]
            with torch.no_grad():
                logits = model(torch.tensor([[*start, *answer]])).logits[0]
            for place, token in enumerate(answer):
                scores = logits[len(start) + place - 1].double()
                total += float(torch.logsumexp(scores, 0) - scores[token])
                count += 1
        assert row.metrics["eval/held-loss"] == pytest.approx(total / count, rel=1e-4)


def test_changed_data_is_refused_and_accepted_by_its_flag(slime: Slime, rows: Path, tiny_model: Path) -> None:
    assert finetune(slime, tiny_model, "run", "--num-rollout", 1).code == 0
    (rows / "train.jsonl").write_text((rows / "eval.jsonl").read_text())
    assert "the training data has changed" in slime.refused("resume", "run", "--num-rollout", 2, "--no-progress")
    assert slime("resume", "run", "--num-rollout", 2, "--accept-changed-data", "--no-progress").code == 0


@table(
    "more, message",
    [
        (("--rollout-temperature", 1.0), "rollout_temperature has no effect here: with sft_loss and no reward"),
        (("--reward", "math", "--rollout-max-response-len", 9), "leave out reward"),
        (("--reward", "math"), "leave out reward"),  # and not a word of keys that nobody wrote
        (("--label-key", "b"), "no key 'b'"),
    ],
)
def test_what_means_nothing_here_is_refused(
    slime: Slime, rows: Path, tiny_model: Path, more: tuple[object, ...], message: str
) -> None:
    ran = finetune(slime, tiny_model, "run", "--num-rollout", 1, *more)
    assert (ran.code, message in ran.err) == (2, True), ran.err


def test_rows_that_are_bad_or_too_long_are_left_out_and_told(slime: Slime, rows: Path, tiny_model: Path) -> None:
    """With a context below the budget of a response, which finetuning has none of."""
    long = {"messages": [{"role": "user", "content": "1+" * 200}, {"role": "assistant", "content": "many"}]}
    with (rows / "train.jsonl").open("a") as file:
        file.write(json.dumps(long) + '\n{"messages": 5}\n')
    keys = ("--max-bad-row-rate", 0.2, "--rollout-max-context-len", 200)
    ran = finetune(slime, tiny_model, "run", "--num-rollout", 1, *keys)
    assert ran.code == 0, ran.err
    assert "left out 1 dialogs longer than 200 tokens; 1 bad row" in " ".join(ran.out.split())
