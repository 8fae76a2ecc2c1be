"""Checkpoints read by transformers 4.57, which `make peers` installs into a folder, answer as they do by 5."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from test_families import SERVED
from transformers import AutoModelForCausalLM, AutoTokenizer

from slime_local.demo.tiny import write_tiny_model
from slime_local.model import load_model

OLD = Path(__file__).parents[3] / ".cache" / "transformers-4"
ROPES: dict[str, tuple[str, dict[str, object]]] = {
    "theta": ("qwen2", {"rope_theta": 500.0}),
    "llama3": (
        "llama",
        {
            "rope_theta": 300.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        },
    ),
    "yarn": ("qwen3", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}),
    "linear": ("qwen2", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
    **{family: (family, keys) for family, keys in SERVED.items()},
}
"""Model types with the keys of their config.json, by what is tried."""
PROMPT = [5, 11, 3, 2, 17, 8, 9, 4]
ANSWERS = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
answers = {}
for directory in sys.argv[1:]:
    try:
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        prompt = torch.tensor([%s])
        answers[directory] = model.generate(prompt, max_new_tokens=24, do_sample=False, eos_token_id=None)[0].tolist()
    except Exception as error:
        answers[directory] = repr(error)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
print(json.dumps([answers, tokenizer("What is 3+4?").input_ids]))
"""


@pytest.mark.skipif(not OLD.is_dir(), reason="transformers 4 is not installed; `make peers` does it")
@pytest.mark.filterwarnings("ignore")  # warnings of transformers 4 about its keys
def test_saved_models_decode_alike_in_transformers_4(tiny_hf: Callable[..., Path], tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "base", "chain", 0)
    folders = [tmp_path / "demo"]
    model = load_model(tmp_path / "base")
    model.save_hf(folders[0], model.flat)
    for name, (family, keys) in ROPES.items():
        model = load_model(tiny_hf(family, **keys))
        model.save_hf(tmp_path / name, model.flat)
        folders.append(tmp_path / name)
    code = ANSWERS % PROMPT
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, folders)],
        env=os.environ | {"PYTHONPATH": str(OLD)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers, ids = json.loads(done.stdout.splitlines()[-1])
    assert ids == AutoTokenizer.from_pretrained(folders[0])("What is 3+4?").input_ids
    different = {}
    for folder in folders:
        new = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        answer = new.generate(torch.tensor([PROMPT]), max_new_tokens=24, do_sample=False, eos_token_id=None)
        if answer[0].tolist() != answers[str(folder)]:
            different[folder.name] = answers[str(folder)]
    assert different == {}
