"""Headers of weights: what is cut off, missing or made of integers is named before a process starts."""

import json
import shutil
import struct
from pathlib import Path

import pytest

from slime_core.config import check_model_dir
from slime_core.config.model_dir import INDEX, check_weights, refuse_quantized
from slime_core.errors import ModelError
from slime_core.sample import Json
from tests.conftest import Project, Slime
from tests.tables import table


def write(path: Path, tensors: dict[str, str], *, size: int = 8) -> None:
    header = {
        name: {"dtype": dtype, "shape": [2], "data_offsets": [number * size, (number + 1) * size]}
        for number, (name, dtype) in enumerate(tensors.items())
    }
    text = json.dumps({**header, "__metadata__": {"format": "pt"}}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(size * len(tensors)))


def test_whole_files_pass(tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", {"x.weight": "F32", "x.position_ids": "I64"})
    write(tmp_path / "b.safetensors", {"y.weight": "BF16"})
    (tmp_path / INDEX).write_text(
        json.dumps({"weight_map": {"x.weight": "a.safetensors", "y.weight": "b.safetensors"}})
    )
    check_weights(tmp_path)


def test_a_file_that_is_cut_off_is_named_with_its_first_broken_tensor(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write(path, {"x.weight": "F32", "y.weight": "F32", "z.weight": "F32"})
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    with pytest.raises(
        ModelError, match=r"a\.safetensors is cut off: .*; y\.weight is the first of 2 incomplete tensors"
    ):
        check_weights(tmp_path)
    for length in (0, 7, 30):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError, match=r"a\.safetensors is not a safetensors file, or is cut off"):
            check_weights(tmp_path)


def test_a_header_that_is_none_of_safetensors_is_refused(tmp_path: Path) -> None:
    for each in ("[]", '{"x": 5}', '{"x": {"dtype": "F32"}}', '{"x": {"dtype": "F32", "data_offsets": [0, 1e999]}}'):
        (tmp_path / "a.safetensors").write_bytes(len(each).to_bytes(8, "little") + each.encode())
        with pytest.raises(ModelError, match=r"a\.safetensors is not a safetensors file"):
            check_weights(tmp_path)


def test_what_the_index_promises_is_there(tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", {"x.weight": "F32"})
    for promised, message in (
        ({"x.weight": "b.safetensors"}, r"names b\.safetensors for x\.weight"),
        ({"y.weight": "a.safetensors"}, r"lists y\.weight in a\.safetensors"),
    ):
        (tmp_path / INDEX).write_text(json.dumps({"weight_map": promised}))
        with pytest.raises(ModelError, match=message):
            check_weights(tmp_path)
    for other in ("[]", "{}", "x", '{"weight_map": 5}'):
        (tmp_path / INDEX).write_text(other)
        with pytest.raises(ModelError, match="is not an index of weights"):
            check_weights(tmp_path)


@table(
    "name, dtype, config, message",
    [
        ("x.weight", "I8", {}, "weight 'x.weight' is written in I8"),
        ("x.weight", "F8_E4M3", {}, "is written in F8_E4M3"),  # DeepSeek-V3, and most FP8 models of vLLM
        ("x.weight_scale", "F8_E8M0", {}, "weight 'x.weight_scale' is written in F8_E8M0"),
        ("x.qweight", "I32", {}, "weight 'x.qweight' is written in I32"),  # GPTQ and AWQ
        ("x.weight_packed", "I32", {}, "weight 'x.weight_packed'"),  # compressed-tensors
        ("x.gate_up_proj_blocks", "U8", {}, "weight 'x.gate_up_proj_blocks'"),  # gpt-oss
        ("x.weight", "BF16", {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "is quantized (gptq)"),
        ("x.weight", "BF16", {"text_config": {"quantization_config": {"quant_method": "fp8"}}}, "is quantized (fp8)"),
        ("x.weight", "F16", {}, ""),
    ],
)
def test_a_quantized_model_cannot_be_trained(
    tmp_path: Path, name: str, dtype: str, config: dict[str, Json], message: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    write(tmp_path / "model.safetensors", {"x.position_ids": "I64", name: dtype})
    if not message:
        refuse_quantized(tmp_path)
        return
    with pytest.raises(ModelError, match="give the model that it was made from") as raised:
        refuse_quantized(tmp_path)
    assert message in str(raised.value)


def test_every_trainer_refuses_a_quantized_model_at_plan(project: Project, slime: Slime) -> None:
    model = shutil.copytree(project.model, project.root / "quantized")
    write(model / "model.safetensors", {"x.weight": "I8"})
    for keys in ({"hf_checkpoint": str(model)}, {"ref_load": str(model), "use_kl_loss": True, "kl_loss_coef": 0.1}):
        project.write_run(**keys)
        for trainer in ("local", "megatron"):
            assert "weight 'x.weight' is written in I8" in slime.refused("plan", "run.toml", "--trainer", trainer)


def test_a_model_directory_is_looked_at(tmp_path: Path, tiny_model: Path) -> None:
    for path in tiny_model.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    check_model_dir(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ModelError, match="is cut off"):
        check_model_dir(tmp_path)
