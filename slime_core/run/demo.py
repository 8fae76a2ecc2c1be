"""The demo: a tiny model from nothing, a warm start, GRPO; every part is the one that a real run uses.

The warm start trains the same `TrainerRank` with `sft_loss` on generated traces, checkpointed, so that it too
continues where it was killed.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slime_core.catalog import ALL_INSTALLED, Catalog
from slime_core.config import Plan, parse_config, plugins_table, resolve
from slime_core.data import HfTokenizer
from slime_core.local.demo.tasks import Problem, problems
from slime_core.local.demo.warmup import RECIPES, WarmUp, warm_up_batch
from slime_core.local.launcher import LocalLauncher
from slime_core.roles import Draw, LauncherSetup, PluginSet, WorkerGroupSpec
from slime_core.run.checkpoint import Checkpoint, newest_checkpoint
from slime_core.run.folder import RunFolder
from slime_core.run.saving import write_checkpoint
from slime_core.run.trainer import Trainer
from slime_core.sample import Group, GroupId, Json, Sample, Status
from slime_core.telemetry import Display, run_folder_errors
from slime_core.train.prepare import Preparation

BASE_SEED = 0
EVAL_SEED = 777
EVAL_PROBLEMS = 256
TRAIN_SEED = 1000
MAX_RESPONSE = 48
CHECKPOINT_STEPS = 40
INIT = "slime_core.local.demo.tiny:write_tiny_model"


@dataclass(frozen=True, slots=True)
class DemoSize:
    """How much reinforcement learning a task gets."""

    rollout_batch_size: int
    num_rollout: int
    lr: float


SIZES = {"word": DemoSize(64, 60, 4e-4), "chain": DemoSize(32, 40, 2e-4)}
"""Task -> size."""


def demo_values(task: str, seed: int, base: Path, save: Path, num_rollout: int | None = None) -> dict[str, Json]:
    """The demo's run file, prompts written beside it; `num_rollout` is the task's own unless given."""
    size = SIZES[task]
    with run_folder_errors(save, "make"):
        save.mkdir(parents=True, exist_ok=True)
    # The same prompts for every number of rollouts, so that any run can be made longer; more rollouts go round again.
    train = problems(task, TRAIN_SEED + seed, size.rollout_batch_size * size.num_rollout, "train")
    evaluation = problems(task, EVAL_SEED, EVAL_PROBLEMS, "eval")
    prompts = {
        "train": _write_prompts(save / "train.jsonl", train),
        "eval": _write_prompts(save / "eval.jsonl", evaluation),
    }
    return {
        "hf_checkpoint": str(base),
        "save": str(save),
        "seed": seed,
        "prompt_data": str(prompts["train"]),
        "input_key": "question",
        "label_key": "answer",
        "apply_chat_template": True,
        "rollout_batch_size": size.rollout_batch_size,
        "n_samples_per_prompt": 8,
        "num_rollout": num_rollout or size.num_rollout,
        "rollout_max_response_len": MAX_RESPONSE,
        "eval_prompt_data": {"heldout": str(prompts["eval"])},
        "eval_interval": 10,
        "lr": size.lr,
        "calculate_per_token_loss": True,
        "save_interval": 5,
        "reward": {"use": {"math": 1.0}},
        "loss": {"policy_loss": {"eps_clip": 0.2, "eps_clip_high": 0.28}},
    }


async def warm_start(task: str, root: Path, display: Display, plugins: PluginSet = ALL_INSTALLED) -> Path:
    """Build the demo's base model in `root`, or find it there; returns its HF directory.

    Raises:
        SlimeError: what stopped it; called again, it continues from its newest checkpoint.
    """
    recipe = RECIPES[task]
    done = newest_checkpoint(root / "checkpoints", display.message)
    if done is not None and done.rollout_id == recipe.steps:
        return done.path / "hf"
    values = _warm_up_values(task, recipe, root)
    with RunFolder.open(root, values) as folder:
        display.start(recipe.steps, f"warm start: {task}", done.rollout_id if done else 0, unit="step")
        return await _warm_up(task, recipe, values, folder, display, done, Catalog.discover(plugins))


async def _warm_up(
    task: str,
    recipe: WarmUp,
    values: dict[str, Json],
    folder: RunFolder,
    display: Display,
    done: Checkpoint | None,
    catalog: Catalog,
) -> Path:
    init = folder.root / "init"
    launcher = LocalLauncher(LauncherSetup(_make_nothing, BASE_SEED, scratch=folder.logs))
    try:
        if not init.exists():
            display.phase("building the model and its tokenizer")
            beside = folder.scratch / "init"
            arguments = {"directory": beside, "task": task, "seed": BASE_SEED}
            await (await launcher.start(WorkerGroupSpec("init", 1, INIT, arguments))).close()
            beside.rename(init)
        plan = resolve(parse_config(values), catalog)
        display.phase("trainer: loading the model")
        trainer = await Trainer.start(plan, launcher, folder.scratch, recipe.steps)
        start = 0
        if done is not None:
            await trainer.load(done.path)
            start = done.rollout_id
        tokenizer = HfTokenizer.load(init)
        for step in range(start, recipe.steps):
            began = time.monotonic()
            display.phase(f"trainer: {recipe.batch} solutions")
            groups = _sft_groups(task, tokenizer, step, recipe)
            prepared = Preparation().of(Draw(groups, [1.0] * len(groups)), rollout_id=step)
            report = await trainer.train(prepared, rollout_id=step)
            display.row(step, {**report.steps[0], "perf/step_time": time.monotonic() - began})
            if (step + 1) % CHECKPOINT_STEPS == 0 or step + 1 == recipe.steps:
                done = await write_checkpoint(folder.checkpoints, step + 1, {"step": step + 1}, trainer.save, keep=1)
    finally:
        await launcher.close()
    assert done is not None, "the last step writes a checkpoint"
    return done.path / "hf"


def _make_nothing(role: str, name: str, **settings: object) -> object:
    raise LookupError(f"the warm start wraps no {role} {name}")


def _warm_up_values(task: str, recipe: WarmUp, root: Path) -> dict[str, Json]:
    return {
        "hf_checkpoint": str(root / "init"),
        "save": str(root),
        "seed": BASE_SEED,
        "prompt_data": f"generated: {task}",
        "rollout_batch_size": recipe.batch,
        "n_samples_per_prompt": 1,
        "num_rollout": recipe.steps,
        "rollout_max_response_len": MAX_RESPONSE,
        "lr": recipe.lr,
        "lr_warmup_iters": recipe.lr_warmup_iters,
        "lr_decay_style": "linear",
        "min_lr": recipe.min_lr,
        "calculate_per_token_loss": True,
        "reward": {"use": {"math": 1.0}},
        "loss": {"use": {"sft_loss": 1.0}},
    }


def _sft_groups(task: str, tokenizer: HfTokenizer, step: int, recipe: WarmUp) -> list[Group]:
    groups = []
    for row, (prompt, response) in enumerate(warm_up_batch(task, tokenizer, BASE_SEED, step, recipe)):
        sample = Sample(
            index=0,
            group_index=row,
            rollout_id=row,
            tokens=[*prompt, *response],
            response_length=len(response),
            loss_mask=[1] * len(response),
            rollout_log_probs=[0.0] * len(response),
            reward=0.0,
            weight_versions=["0"],
            status=Status.COMPLETED,
        )
        group = Group(GroupId("warm-start", 0, row, step), [sample])
        group.freeze()
        groups.append(group)
    return groups


def _write_prompts(path: Path, made: Sequence[Problem]) -> Path:
    lines = [json.dumps({"question": problem.question, "answer": problem.answer}) for problem in made]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def demo_plan(
    task: str, seed: int, base: Path, save: Path, num_rollout: int | None = None, plugins: PluginSet = ALL_INSTALLED
) -> Plan:
    """The demo's reinforcement learning as a plan."""
    values = demo_values(task, seed, base, save, num_rollout) | {"plugins": plugins_table(plugins)}
    return resolve(parse_config(values), Catalog.discover(plugins))
