"""One flat vector: every weight in it once, bound without a copy, read back and saved as Hugging Face files."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
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
def test_layout_holds_every_weight_once(tiny_hf: Callable[..., Path], family: str, changes: dict[str, object]) -> None:
    directory = tiny_hf(family, **changes)
    model = load_model(directory)
    offsets = itertools.accumulate((slot.numel for slot in model.layout), initial=0)
    assert [*(slot.offset for slot in model.layout), model.numel] == list(offsets)
    hf = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    assert {s.name: s.shape for s in model.layout} == {n: tuple(p.shape) for n, p in hf.named_parameters()}
    for slot in model.layout:
        assert torch.equal(slot.view(model.flat), hf.get_parameter(slot.name))
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
def test_saved_model_loads_in_hugging_face(
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
def test_mismatched_vector_is_refused(tiny_hf: Callable[..., Path], flat: torch.Tensor | None) -> None:
    model = load_model(tiny_hf("qwen3", tie_word_embeddings=True))
    wrong = torch.zeros(2 * model.numel)[::2] if flat is None else flat
    with pytest.raises(ValueError, match=f"needs a contiguous float32 vector of {model.numel} elements"):
        model.bind(wrong)


def nan(weights: dict[str, torch.Tensor]) -> None:
    weights["lm_head.weight"][3, 1] = float("nan")


def shorter(weights: dict[str, torch.Tensor]) -> None:
    weights["lm_head.weight"] = weights["lm_head.weight"][1:].clone()


def headless(weights: dict[str, torch.Tensor]) -> None:
    del weights["lm_head.weight"]


@table(
    "change, says",
    [
        (nan, r"are not finite: lm_head\.weight has NaN or infinity"),
        (shorter, r"lm_head\.weight has shape \[60, 48\], and Qwen2ForCausalLM expects \[61, 48\]"),
        (headless, r"lack 1 tensors of Qwen2ForCausalLM, the first is lm_head\.weight"),
    ],
)
def test_mismatched_weights_are_refused_by_name(
    tiny_hf: Callable[..., Path], tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], None], says: str
) -> None:
    source = tiny_hf("qwen2", tie_word_embeddings=False)
    weights = load_file(source / "model.safetensors")
    change(weights)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((source / "config.json").read_text())
    with pytest.raises(ModelError, match=says):
        load_model(tmp_path)


@table(
    "config, says",
    [
        (None, r"has no config\.json"),
        ('{"model_type": "qwen2"}', "no causal LM could be loaded"),
        ('{"model_type": "no-such-model"}', "no-such-model"),
    ],
)
def test_directories_without_a_causal_lm_are_refused(tmp_path: Path, config: str | None, says: str) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(ModelError, match=says):
        load_model(tmp_path)
