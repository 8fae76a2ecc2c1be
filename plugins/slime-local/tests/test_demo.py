"""The demo's recipe: tasks that are right and split cleanly, a tokenizer, a tiny model that learns."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from slime_core.data import HfTokenizer
from slime_local.demo.tasks import RECIPES, TASKS, problems, solutions
from slime_local.demo.tiny import write_tiny_model
from slime_local.model import GroupTokens, load_model
from tests.tables import table


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("tiny") / "chain"
    write_tiny_model(directory=directory, task="chain", seed=0)
    return directory


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


def test_unknown_tasks_and_splits_are_refused() -> None:
    for task, split in (("chains", "train"), ("chain", "test")):
        with pytest.raises(ValueError, match="tasks are chain, word, short; splits are train, eval"):
            problems(task, 0, 1, split)


def test_tasks_need_no_torch() -> None:
    code = "import sys; from slime_local.demo.tasks import problems; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_model_is_a_hugging_face_directory_of_known_size(chain: Path) -> None:
    model = load_model(chain)
    assert model.path == "fast"
    assert model.numel == 380_672
    tokenizer = AutoTokenizer.from_pretrained(chain)
    assert len(tokenizer) == model.vocab_size
    chat = [{"role": "user", "content": "What is 8+6?"}]
    prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert prompt == "<|im_start|>user\nWhat is 8+6?<|im_end|>\n<|im_start|>assistant\n"
    for text in ("8+6=14\n\\boxed{14}", "any text: é, 漢, \t"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.convert_ids_to_tokens(tokenizer("\\boxed{14}")["input_ids"]) == ["\\boxed{", "1", "4", "}"]


def test_the_same_seed_writes_the_same_model(chain: Path, tmp_path: Path) -> None:
    for seed, same in ((0, True), (1, False)):
        write_tiny_model(directory=tmp_path / str(seed), task="chain", seed=seed)
        again = load_model(tmp_path / str(seed))
        assert torch.equal(again.flat, load_model(chain).flat) is same
        for name in ("tokenizer.json", "config.json"):
            assert (tmp_path / str(seed) / name).read_text() == (chain / name).read_text()


def test_solutions_follow_from_seed_and_step_and_turn_terse() -> None:
    recipe = RECIPES["chain"]
    first = solutions("chain", 0, 5, recipe)
    assert first == solutions("chain", 0, 5, recipe)
    assert first != solutions("chain", 0, 6, recipe)
    assert first != solutions("chain", 1, 5, recipe)

    def worked(step: int) -> float:
        return sum("=" in row["response"] for row in solutions("chain", 0, step, recipe)) / recipe.batch

    assert worked(0) > 0.7
    assert worked(recipe.steps - 1) < 0.3


def test_thirty_steps_of_warm_up_lower_the_loss(chain: Path) -> None:
    model, tokenizer, recipe = load_model(chain), HfTokenizer.load(chain), RECIPES["chain"]
    weights, gradient = model.flat, torch.zeros(model.numel)
    first, second = torch.zeros(model.numel), torch.zeros(model.numel)

    def tokens(row: dict[str, str]) -> GroupTokens:
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": row["question"]}])
        response = [*tokenizer.encode(row["response"]), min(tokenizer.eos_token_ids)]
        return GroupTokens(tokenizer.encode(prompt), [response])

    losses = []
    for step in range(30):
        groups = [tokens(row) for row in solutions("chain", 0, step, recipe)]
        gradient.zero_()
        loss = -model.log_probs(groups, grad=gradient).log_probs_T.mean()
        loss.backward()
        losses.append(loss.item())
        first.lerp_(gradient, 0.1)
        second.mul_(0.95).addcmul_(gradient, gradient, value=0.05)
        weights -= recipe.lr * first / (second.sqrt() + 1e-8)
    assert losses[0] > 4
    assert sum(losses[-5:]) / 5 < 2
