"""Models and prompts that are made up: a directory that `slime plan` takes for a model of some architecture."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from slime_core.sample import Json

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
ROW: Mapping[str, Json] = {"label": "4", "metadata": {}, "tools": []}
SIZES: Mapping[str, Json] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 16,
    "vocab_size": 8,
    "max_position_embeddings": 1_000_000,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}


def model(folder: Path, model_type: str, **config: Json) -> Path:
    """A model directory: its config.json, a tokenizer of a few words, and one weight."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, **SIZES, **config}), "utf-8")
    words = {word: at for at, word in enumerate(("[UNK]", "[END]", "What", "is", "2", "+", "?", "4"))}
    Tokenizer(WordLevel(words, unk_token="[UNK]")).save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "[END]", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 1}), "utf-8")
    header = json.dumps({"model.norm.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0\0\0\0")
    return folder


def prompts(path: Path, *keys: str) -> Path:
    """A file of prompts, which stand in each of the columns."""
    dialog: Json = [{"role": "user", "content": "What is 2 + 2 ?"}, {"role": "assistant", "content": "4"}]
    row = {**ROW, **{key: dialog if key == "messages" else "What is 2 + 2 ?" for key in keys}}
    path.write_text((json.dumps(row) + "\n") * 64, "utf-8")
    return path


def at_home(values: dict[str, Json], folder: Path, model_type: str) -> dict[str, Json]:
    """A run file's keys with a made-up model and made-up prompts in place of those that it names."""
    home = model(folder / "model", model_type)
    data = prompts(folder / "data.jsonl", str(values.get("input_key", "input")), "prompt")
    own: dict[str, Json] = {"hf_checkpoint": str(home), "prompt_data": str(data), "save": str(folder / "run")}
    for key in ("ref_load", "opd_teacher_load", "critic_load"):
        if key in values:
            own[key] = str(home)
    sets = values.get("eval_prompt_data")
    if isinstance(sets, dict):
        tables = {name: dict(each) if isinstance(each, dict) else {} for name, each in sets.items()}
        own["eval_prompt_data"] = {
            name: {**table, "path": str(data), **_keys_of(values, table)} for name, table in tables.items()
        }
    return {**values, **own}


def _keys_of(values: Mapping[str, Json], table: Mapping[str, Json]) -> dict[str, Json]:
    return {} if "input_key" in table or "eval_input_key" in values else {"input_key": "prompt"}
