"""slime's names of models are checked against a model directory."""

import json
from pathlib import Path

import pytest

from slime_compat.models import check_model_type, model_types, names_by_size
from slime_core.errors import ConfigError
from slime_core.sample import Json
from tests.tables import table

QWEN3_4B: dict[str, Json] = {
    "num_hidden_layers": 36,
    "hidden_size": 2560,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}


def written(folder: Path, text: str) -> Path:
    (folder / "config.json").write_text(text, "utf-8")
    return folder


def test_all_slime_models_are_listed() -> None:
    assert len(model_types()) == 39
    assert all({"num_hidden_layers", "hidden_size"} <= {*sizes} for sizes in model_types().values())


def test_matching_model_directory_is_accepted(tmp_path: Path) -> None:
    check_model_type("qwen3-4B", written(tmp_path, json.dumps(QWEN3_4B)))
    check_model_type("qwen3-4B", written(tmp_path, json.dumps({"text_config": QWEN3_4B})))
    check_model_type("deepseek-v3", written(tmp_path, '{"n_routed_experts": 256}'))


@table(
    "name, config, message",
    [
        (
            "qwen3-8B",
            QWEN3_4B,
            "hidden_size 4096, but config.json has 2560. It has the sizes of 'qwen3-4B-Instruct-2507' or",
        ),
        ("qwen3-4b", QWEN3_4B, "has no 'qwen3-4b'. Did you mean 'qwen3-4B'?"),
        ("glm4-9B", {"num_hidden_layers": 7}, "num_hidden_layers 40, but config.json has 7."),
        ("deepseek-v3", {"n_routed_experts": 64}, "num_experts 256, but config.json has 64"),
    ],
)
def test_mismatched_model_is_refused(tmp_path: Path, name: str, config: dict[str, Json], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_model_type(name, written(tmp_path, json.dumps(config)))
    assert message in str(raised.value)


def test_a_directory_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="which cannot be read"):
        check_model_type("glm4-9B", tmp_path)


def test_model_types_are_found_by_size() -> None:
    assert "qwen3-4B" in names_by_size(QWEN3_4B)
    assert names_by_size({}) == ()
