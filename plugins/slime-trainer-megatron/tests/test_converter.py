"""`slime convert` and slime's three tools: a round trip is bitwise exact, and logits equal the model's."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
import torch
from models_and_steps import STRETCHED, YARN, write_model
from safetensors.torch import load_file, save_file

from slime_core.cli import run_cli
from tests.tables import table

ROOT = Path(__file__).resolve().parents[3]
FAMILIES: Mapping[str, Mapping[str, object]] = {
    "deepseek_v3": {"rope_parameters": YARN, "num_nextn_predict_layers": 1},
    "glm4": {},
    "glm4_moe": {},
    "qwen2": {},
    "qwen3": {"tie_word_embeddings": True},
    "qwen3_moe": {},
    "llama": {"rope_parameters": STRETCHED},
}


def weights_of(directory: Path) -> dict[str, torch.Tensor]:
    return {name: each for path in directory.glob("*.safetensors") for name, each in load_file(path).items()}


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(one[name], other[name]) and one[name].dtype == other[name].dtype for name in one
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", "qwen3")


@table("family, dtype", [*((family, torch.bfloat16) for family in FAMILIES), ("qwen3_moe", torch.float32)])
def test_convert_round_trips(
    family: str, dtype: torch.dtype, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path = tmp_path / f"{family} {dtype}"
    model = write_model(tmp_path / "model", family, **FAMILIES[family])
    weights = {name: each.to(dtype) for name, each in load_file(model / "model.safetensors").items()}
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    there, back = tmp_path / "there", tmp_path / "back"
    assert run_cli(["convert", str(model), str(there)]) == 0
    flags = ["--origin-hf-dir", str(model), "--max-shard-size", "60KiB"]
    assert run_cli(["convert", str(there), str(back), *flags]) == 0
    assert same(weights_of(back), weights)
    assert len(list(back.glob("*.safetensors"))) > 2
    assert f"wrote {back}" in capsys.readouterr().out


def test_unstacked_layers_are_read(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "qwen3_moe")
    assert run_cli(["convert", str(model), str(tmp_path / "stacked")]) == 0
    from slime_trainer_megatron.torch_dist import Piece, Saving, StoredCheckpoint

    stored, pieces = StoredCheckpoint(tmp_path / "stacked" / "release"), list[Piece]()
    for key, shape in stored.shapes().items():
        zeros, whole = (0,) * len(shape), torch.empty(shape)
        stored.read([Piece(key, shape, zeros, shape, whole.dtype, partial(whole.view, shape))])
        if not key.startswith("decoder.layers."):
            pieces.append(Piece(key, shape, zeros, shape, whole.dtype, partial(whole.view, shape)))
            continue
        for layer, own in enumerate(whole):
            alone, mine = key.replace("layers.", f"layers.{layer}."), tuple(own.shape)
            pieces.append(Piece(alone, mine, zeros[1:], mine, own.dtype, partial(own.clone().view, mine)))
    assert Saving(tmp_path / "alone", pieces).finish(wait=True)
    assert run_cli(["convert", str(tmp_path / "alone"), str(tmp_path / "back"), "--origin-hf-dir", str(model)]) == 0
    assert same(weights_of(tmp_path / "back"), weights_of(model))


def test_a_checkpoint_with_more_than_the_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, other = write_model(tmp_path / "model", "qwen3"), write_model(tmp_path / "other", "llama")
    assert run_cli(["convert", str(model), str(tmp_path / "there")]) == 0
    assert run_cli(["convert", str(tmp_path / "there"), str(tmp_path / "back"), "--origin-hf-dir", str(other)]) == 2
    assert (
        "belongs to another model: it has 'decoder.layers.self_attention.k_layernorm.weight'" in capsys.readouterr().err
    )


@table(
    "flags, message",
    [
        (
            ["there", "out", "--origin-hf-dir", "model"],
            "there is not a torch_dist checkpoint: there is no .metadata in",
        ),
        (["model", "out", "--max-shard-size", "5GB"], "release already exists"),
        (["there", "out", "--origin-hf-dir", "model", "--max-shard-size", "much"], "expected a size such as 256MiB"),
        (["there", "model", "--origin-hf-dir", "model"], "already has a model"),
    ],
)
def test_unusable_conversion_is_refused(
    flags: list[str], message: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(model.parent)
    (model.parent / "there").mkdir(exist_ok=True)
    (model.parent / "out" / "release").mkdir(parents=True, exist_ok=True)
    assert run_cli(["convert", *flags]) == 2
    assert message in capsys.readouterr().err


def test_checkpoint_names_its_model(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model / "tokenizer_config.json").write_text("{}", "utf-8")
    there, back, again = tmp_path / "there", tmp_path / "back", tmp_path / "again"
    assert run_cli(["convert", str(model), str(there)]) == 0
    assert run_cli(["convert", str(there), str(back)]) == 0
    assert same(weights_of(back), weights_of(model))
    assert (back / "tokenizer_config.json").is_file()
    weights = weights_of(model)
    shutil.rmtree(model)
    assert run_cli(["convert", str(there), str(again)]) == 0
    assert same(weights_of(again), weights)
    assert not (again / "tokenizer_config.json").exists()
    assert f"{again} has no tokenizer" in capsys.readouterr().out


def test_checkpoint_without_a_model_needs_origin_hf_dir(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["convert", str(model), str(tmp_path / "there")]) == 0
    (tmp_path / "there" / "release" / "megatron.json").unlink()
    assert run_cli(["convert", str(tmp_path / "there"), str(tmp_path / "back")]) == 2
    assert "began with by --origin-hf-dir" in capsys.readouterr().err
    assert not (tmp_path / "back").exists()


def test_missing_mtp_layers_are_left_out(model: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "further", "glm4_moe", num_nextn_predict_layers=1)
    kept = {name: each for name, each in weights_of(model).items() if "layers.4." not in name}
    save_file(kept, model / "model.safetensors", {"format": "pt"})
    assert run_cli(["convert", str(model), str(tmp_path / "there")]) == 0
    assert run_cli(["convert", str(tmp_path / "there"), str(tmp_path / "back")]) == 0
    assert same(weights_of(tmp_path / "back"), kept)


@pytest.mark.layouts
def test_slime_tools_accept_slime_flags(model: Path, tmp_path: Path) -> None:
    there, back, again = tmp_path / "there", tmp_path / "back", tmp_path / "again"

    def tool(name: str, *flags: object) -> None:
        command = [sys.executable, str(ROOT / "tools" / name), *map(str, flags)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    tool("convert_hf_to_torch_dist.py", "--hf-checkpoint", model, "--save", there)
    assert (there / "latest_checkpointed_iteration.txt").read_text("utf-8") == "release"
    flags = ["--origin-hf-dir", model, "--vocab-size", 97]
    tool("convert_torch_dist_to_hf.py", "--input-dir", there, "--output-dir", back, *flags)
    tool("convert_to_hf.py", "--load", there / "release", "--output-dir", again)
    assert same(weights_of(back), weights_of(model))
    assert same(weights_of(again), weights_of(model))


def test_quantized_weights_are_refused(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = load_file(model / "model.safetensors")
    name = next(each for each in weights if each.endswith("proj.weight"))
    save_file(weights | {name: weights[name].to(torch.float8_e4m3fn)}, model / "model.safetensors", {"format": "pt"})
    assert run_cli(["convert", str(model), str(tmp_path / "there")]) == 2
    assert f"weight '{name}' is written in F8_E4M3; expected F32, BF16 or F16" in capsys.readouterr().err
