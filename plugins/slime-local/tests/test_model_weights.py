"""One flat vector: every weight in it once, bound without a copy, read back and saved as Hugging Face files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from slime_core.errors import ModelError
from slime_local.model import GroupTokens, load_model
from tests.tables import table

CASES = [
    ("qwen3", {"tie_word_embeddings": True}),
    ("qwen2", {"tie_word_embeddings": False}),
    ("gpt2", {"tie_word_embeddings": True}),
]
GROUPS = [GroupTokens([7, 8, 9], [[4, 5], [6]])]


@table("family, changes", CASES)
def test_the_layout_holds_every_weight_once(
    tiny_hf: Callable[..., Path], family: str, changes: dict[str, object]
) -> None:
    directory = tiny_hf(family, **changes)
    model = load_model(directory)
    offset = 0
    for slot in model.layout:
        assert slot.offset == offset
        offset += slot.numel
    assert offset == model.numel
    hf = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    assert {s.name: s.shape for s in model.layout} == {n: tuple(p.shape) for n, p in hf.named_parameters()}
    for slot in model.layout:
        assert torch.equal(slot.view(model.flat), hf.get_parameter(slot.name))


@table("family, changes", CASES)
def test_binding_shares_memory_and_follows_the_vector(
    tiny_hf: Callable[..., Path], family: str, changes: dict[str, object]
) -> None:
    model = load_model(tiny_hf(family, **changes))
    before = model.log_probs(GROUPS).log_probs_T
    first, second = model.flat, model.flat * 0.9
    model.bind(second)
    assert model.flat.data_ptr() == second.data_ptr()
    assert not torch.equal(model.log_probs(GROUPS).log_probs_T, before)
    second.copy_(first)  # what a trainer's optimizer step does to the bound vector
    assert torch.equal(model.log_probs(GROUPS).log_probs_T, before)
    read = torch.zeros(model.numel)
    model.read_into(read)
    assert torch.equal(read, first)


@pytest.mark.parametrize(("family", "changes"), CASES, ids=str)
def test_a_saved_model_is_a_hugging_face_directory(
    tiny_hf: Callable[..., Path], tmp_path: Path, family: str, changes: dict[str, object]
) -> None:
    source = tiny_hf(family, **changes)
    (source / "tokenizer.json").write_text('{"a": 1}')
    model = load_model(source)
    bound, trained = model.flat, model.flat * 1.1
    model.save_hf(tmp_path / "out", trained)
    assert model.flat.data_ptr() == bound.data_ptr()
    assert (tmp_path / "out" / "tokenizer.json").read_text() == '{"a": 1}'
    again = load_model(tmp_path / "out")
    assert torch.equal(again.flat, trained)
    hf = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert hf.dtype == torch.float32
    assert hf.generation_config.eos_token_id == 2
    assert set(load_file(tmp_path / "out" / "model.safetensors")) == set(load_file(source / "model.safetensors"))


@table("flat", [torch.zeros(5), torch.zeros(5, dtype=torch.float64), torch.zeros(5, 1), None])
def test_a_vector_that_does_not_fit_is_refused(tiny_hf: Callable[..., Path], flat: torch.Tensor | None) -> None:
    model = load_model(tiny_hf("qwen3", tie_word_embeddings=True))
    wrong = torch.zeros(2 * model.numel)[::2] if flat is None else flat
    with pytest.raises(ValueError, match=f"needs a contiguous float32 vector of {model.numel} elements"):
        model.bind(wrong)


def test_weights_that_are_not_finite_are_refused_by_name(tiny_hf: Callable[..., Path], tmp_path: Path) -> None:
    from safetensors.torch import save_file

    source = tiny_hf("qwen2", tie_word_embeddings=False)
    weights = load_file(source / "model.safetensors")
    weights["lm_head.weight"][3, 1] = float("nan")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((source / "config.json").read_text())
    with pytest.raises(ModelError, match=r"are not finite: lm_head\.weight has NaN or infinity"):
        load_model(tmp_path)


def test_weights_of_another_shape_than_the_configuration_says_are_refused_by_name(
    tiny_hf: Callable[..., Path], tmp_path: Path
) -> None:
    from safetensors.torch import save_file

    source = tiny_hf("qwen2", tie_word_embeddings=False)
    weights = load_file(source / "model.safetensors")
    weights["lm_head.weight"] = weights["lm_head.weight"][1:].clone()
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((source / "config.json").read_text())
    rows, width = weights["lm_head.weight"].shape
    said = rf"lm_head\.weight is \[{rows}, {width}\], and Qwen2ForCausalLM .* has \[{rows + 1}, {width}\]"
    with pytest.raises(ModelError, match=said):
        load_model(tmp_path)


def test_directories_without_a_causal_lm_are_refused(tiny_hf: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no config\.json"):
        load_model(tmp_path)
    source = tiny_hf("qwen2", tie_word_embeddings=False)
    (tmp_path / "config.json").write_text((source / "config.json").read_text())
    with pytest.raises(ModelError, match="no causal LM could be loaded"):
        load_model(tmp_path)
    weights = load_file(source / "model.safetensors")
    del weights["lm_head.weight"]
    from safetensors.torch import save_file

    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lack 1 tensors of Qwen2ForCausalLM, the first is lm_head\.weight"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-model"}))
    with pytest.raises(ModelError, match="no-such-model"):
        load_model(tmp_path)
