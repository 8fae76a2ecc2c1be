"""Portable model directories: transformers 4 and 5 find the same in them, and everybody may read all files."""

import json
import os
import stat
from pathlib import Path

import pytest

from slime_core.sample import Json
from slime_train.portable import make_portable, readable_by_both

Config = dict[str, Json]
STRETCHED: Config = {"rope_type": "yarn", "factor": 4.0}
GEMMA: Config = {
    "full_attention": {"rope_theta": 9.0, "rope_type": "linear", "factor": 8.0},
    "sliding_attention": {"rope_theta": 5.0, "rope_type": "default"},
}
CASES: list[tuple[Config, Config]] = [
    ({"rope_parameters": {"rope_theta": 9.0, "rope_type": "default"}}, {"rope_theta": 9.0}),
    (
        {"rope_parameters": {"rope_theta": 9.0, "partial_rotary_factor": 0.5, **STRETCHED}},
        {"rope_theta": 9.0, "partial_rotary_factor": 0.5, "rope_scaling": {"partial_rotary_factor": 0.5, **STRETCHED}},
    ),
    ({"rope_theta": 9.0}, {"rope_parameters": {"rope_theta": 9.0, "rope_type": "default"}}),
    (
        {"rope_theta": 9.0, "rope_scaling": {"type": "yarn", "factor": 4.0}},
        {"rope_parameters": {"rope_theta": 9.0, **STRETCHED}},
    ),
    (
        {"rope_parameters": GEMMA},
        {"rope_theta": 9.0, "rope_local_base_freq": 5.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    ),
    ({"num_local_experts": 4}, {"num_experts": 4}),
    ({"model_type": "gpt2", "n_embd": 8}, {}),
]
"""What was saved, and what is added."""


def test_positions_and_experts_stand_where_either_reads_them() -> None:
    wrong = [(given, found) for given, added in CASES if (found := readable_by_both(given)) != given | added]
    assert wrong == []
    nested = {"text_config": CASES[0][0]}
    assert readable_by_both(nested) == {"text_config": CASES[0][0] | CASES[0][1]}
    assert all(readable_by_both(readable_by_both(given)) == readable_by_both(given) for given, _ in CASES)


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_tokenizer_has_a_class_that_both_have_and_files_one_mode(tmp_path: Path, umask: int) -> None:
    about = {"tokenizer_class": "TokenizersBackend", "extra_special_tokens": ["<a>"], "pad_token": "é"}
    before = os.umask(umask)
    try:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(about))
        (tmp_path / "config.json").write_text(json.dumps(CASES[0][0]))
        (tmp_path / "model.safetensors").write_bytes(b"")
        (tmp_path / "model.safetensors").chmod(0o600)
        make_portable(tmp_path)
    finally:
        os.umask(before)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text("utf-8")) == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "additional_special_tokens": ["<a>"],
        "pad_token": "é",
    }
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(["config.json", "model.safetensors", "tokenizer_config.json"], 0o666 & ~umask)
