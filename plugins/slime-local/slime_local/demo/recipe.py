"""The demo on a tiny model: a warm start by finetuning, then GRPO, both as ordinary run files.

Example:

    run_cli(["sft", str(warm_start_file("word", base))])
    run_cli(["train", str(run_file("word", 0, warm_model("word", base), Path("runs/demo-word-0")))])
"""

import importlib
import json
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from slime_core.errors import ConfigError, RunFolderError
from slime_core.sample import Json
from slime_local.demo.tasks import RECIPES, Problem, problems, solutions

NO_TORCH = (
    "the demo trains with torch, which is not installed. Without a GPU: pip install torch --index-url "
    "https://download.pytorch.org/whl/cpu (the package index's own build for Linux brings some GB of CUDA libraries)"
)


def make_directory(target: str, directory: Path, **arguments: object) -> Path:
    """Let the function `module:name` write a directory, which appears only when complete; returns it.

    Raises:
        ConfigError: there is no torch to make it with.
        RunFolderError: there is no place for it.
    """
    if find_spec("torch") is None:
        raise ConfigError(NO_TORCH)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=directory.parent) as folder:
            made = Path(folder) / "made"
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                pool.submit(_call, target, directory=made, **arguments).result()
            shutil.rmtree(directory, ignore_errors=True)
            made.rename(directory)
    except OSError as error:
        raise RunFolderError(f"cannot make {directory}: {error.strerror or error}") from None
    return directory


def _call(target: str, **arguments: object) -> None:
    module, _, name = target.partition(":")
    getattr(importlib.import_module(module), name)(**arguments)


def write_run_file(path: Path, values: Mapping[str, Json]) -> Path:
    """Write a run file that `slime train` reads, tables inline; returns its path.

    Raises:
        RunFolderError: it cannot be written.
    """
    return write_text(path, "".join(f"{key} = {_toml(value)}\n" for key, value in values.items()))


def write_text(path: Path, text: str) -> Path:
    """Write a file and the folders above it; returns its path.

    Raises:
        RunFolderError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {error.strerror}") from None
    return path


def _toml(value: Json) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


BASE_SEED = 0
EVAL_SEED = 777
EVAL_PROBLEMS = 256
TRAIN_SEED = 1000
MAX_RESPONSE = 48
CHECKPOINT_STEPS = 40
WRITER = "slime_local.demo.tiny:write_tiny_model"
RUN_FILE = "demo.toml"
"""Name of the run file, in the run folder next to the prompts."""


@dataclass(frozen=True, slots=True)
class DemoSize:
    """How much reinforcement learning a task gets."""

    rollout_batch_size: int
    num_rollout: int
    lr: float


SIZES = {"word": DemoSize(64, 60, 4e-4), "chain": DemoSize(32, 40, 2e-4)}
"""Task -> size."""


def warm_model(task: str, root: Path) -> Path:
    """Path of the warm start's model in `root`; exists when the warm start is done."""
    return root / "checkpoints" / f"rollout_{RECIPES[task].steps:06d}" / "hf"


def warm_start_file(task: str, root: Path) -> Path:
    """The run file of the warm start in `root`, for `slime sft`; makes the model and its solutions.

    Raises:
        RunFolderError: something cannot be written.
    """
    recipe = RECIPES[task]
    if not (init := root / "init").exists():
        make_directory(WRITER, init, task=task, seed=BASE_SEED)
    rows = [row for step in range(recipe.steps) for row in solutions(task, BASE_SEED, step, recipe)]
    values: dict[str, Json] = {
        "hf_checkpoint": str(init),
        "save": str(root),
        "seed": BASE_SEED,
        "prompt_data": str(_write_rows(root / "solutions.jsonl", rows)),
        "input_key": "question",
        "label_key": "response",
        "apply_chat_template": True,
        "rollout_batch_size": recipe.batch,
        "num_rollout": recipe.steps,
        "lr": recipe.lr,
        "lr_warmup_iters": recipe.lr_warmup_iters,
        "lr_decay_style": "linear",
        "min_lr": recipe.min_lr,
        "calculate_per_token_loss": True,
        "save_interval": CHECKPOINT_STEPS,
        "save_keep": 1,
        "loss": {"use": "sft_loss"},
    }
    return write_run_file(root / RUN_FILE, values)


def demo_values(task: str, seed: int, base: Path, save: Path, num_rollout: int | None = None) -> dict[str, Json]:
    """The demo's configuration, prompts written to its run folder; `num_rollout` is the task's own unless given.

    Raises:
        RunFolderError: the prompts cannot be written.
    """
    size = SIZES[task]
    # The same prompts for any number of rollouts, so that a run can be extended; more rollouts repeat them.
    train = problems(task, TRAIN_SEED + seed, size.rollout_batch_size * size.num_rollout, "train")
    evaluation = problems(task, EVAL_SEED, EVAL_PROBLEMS, "eval")
    return {
        "hf_checkpoint": str(base),
        "save": str(save),
        "seed": seed,
        "prompt_data": str(_write_rows(save / "train.jsonl", map(_asked, train))),
        "input_key": "question",
        "label_key": "answer",
        "apply_chat_template": True,
        "rollout_batch_size": size.rollout_batch_size,
        "n_samples_per_prompt": 8,
        "num_rollout": num_rollout or size.num_rollout,
        "rollout_max_response_len": MAX_RESPONSE,
        "eval_prompt_data": {"heldout": str(_write_rows(save / "eval.jsonl", map(_asked, evaluation)))},
        "eval_interval": 10,
        "lr": size.lr,
        "calculate_per_token_loss": True,
        "save_interval": 5,
        "reward": {"use": {"math": 1.0}},
        "loss": {"policy_loss": {"eps_clip": 0.2, "eps_clip_high": 0.28}},
    }


def run_file(task: str, seed: int, base: Path, save: Path, num_rollout: int | None = None) -> Path:
    """The demo's run file, for `slime train`; see `demo_values`."""
    return write_run_file(save / RUN_FILE, demo_values(task, seed, base, save, num_rollout))


def _asked(problem: Problem) -> dict[str, str]:
    return {"question": problem.question, "answer": problem.answer}


def _write_rows(path: Path, rows: Iterable[Mapping[str, str]]) -> Path:
    return write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
