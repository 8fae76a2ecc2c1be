"""The families of docs/train.md, tiny and random, against Hugging Face's own forward; and models that are refused."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_model_forward import hf_log_probs, some_groups
from transformers import AutoConfig, AutoModelForCausalLM

from slime_core.errors import ModelError
from slime_local.model import load_model
from tests.tables import table

TWO = {"num_key_value_heads": 2}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
GROUPED_EXPERTS = {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, **EXPERTS}
SERVED: dict[str, dict[str, object]] = {
    "bloom": {},
    "cohere": TWO,
    "deepseek_v3": GROUPED_EXPERTS
    | {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8},
    "exaone4": TWO,
    "falcon": {},
    "gemma2": {"head_dim": 16, **TWO},
    "gemma3_text": {"head_dim": 16, **TWO},
    "glm4": {"head_dim": 16, **TWO},
    "glm4_moe": {"head_dim": 16, **TWO, **GROUPED_EXPERTS},
    "gpt2": {},
    "gpt_neox": {},
    "gpt_oss": {"head_dim": 16, **TWO, "num_local_experts": 4, "num_experts_per_tok": 2},
    "granite": TWO,
    "llama4_text": TWO,
    "mistral": {"sliding_window": 4, **TWO},
    "mixtral": {"num_local_experts": 4, **TWO},
    "olmo2": {},
    "opt": {"word_embed_proj_dim": 48, "ffn_dim": 64},
    "phi3": {},
    "qwen3_moe": {"head_dim": 16, **TWO, "num_experts": 4, **EXPERTS},
    "smollm3": TWO,
    "starcoder2": TWO,
}
LINEAR = {
    "head_dim": 16,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 12,
    "linear_value_head_dim": 12,
    **TWO,
}
HYBRID: dict[str, dict[str, object]] = {
    "falcon_h1": {"mamba_d_ssm": 96, "mamba_n_heads": 8, "mamba_d_head": 12, **TWO},
    "lfm2": {"layer_types": ["conv", "full_attention"], **TWO},
    "qwen3_5_text": LINEAR,
    "qwen3_next": {**LINEAR, "num_experts": 4, "shared_expert_intermediate_size": 32, **EXPERTS},
}


@table("family", SERVED)
def test_log_probs_match_hugging_face(tiny_hf: Callable[..., Path], family: str) -> None:
    """Loading has decoded it already, in padded rows with a cache, and compared."""
    directory = tiny_hf(family, **SERVED[family])
    model = load_model(directory)
    assert model.path == "plain"
    groups = some_groups(0)
    hf = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).train(False)
    with torch.no_grad():
        expected, _ = hf_log_probs(hf, groups, 1.0)
    assert (model.log_probs(groups).log_probs_T - expected).abs().max() < 1e-4


@pytest.mark.filterwarnings("ignore")  # their kernels, which are not installed
@table("family", HYBRID)
def test_models_with_recurrent_layers_are_refused(tiny_hf: Callable[..., Path], family: str) -> None:
    with pytest.raises(ModelError, match=r"cannot be decoded by the local engine \(layers: .*linear attention"):
        load_model(tiny_hf(family, **HYBRID[family]))


@table(
    "family, says",
    [
        ("bert", r"BertLMHeadModel in .* is not causal"),
        # RoBERTa counts places from its padding token, and this configuration names none.
        ("roberta", r"RobertaForCausalLM in .* cannot compute a text of 8 tokens: TypeError"),
    ],
)
def test_non_causal_model_is_refused(tiny_hf: Callable[..., Path], family: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        load_model(tiny_hf(family))


@pytest.mark.parametrize("family", ["t5", "qwen2_vl"])
def test_non_text_model_is_refused(tmp_path: Path, family: str) -> None:
    AutoConfig.for_model(family).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=f"transformers has none for model_type '{family}'") as caught:
        load_model(tmp_path)
    assert len(str(caught.value)) < 400


def test_buffers_are_saved(tiny_hf: Callable[..., Path], tmp_path: Path) -> None:
    directory = tiny_hf("glm4_moe", **SERVED["glm4_moe"])
    name = "model.layers.1.mlp.gate.e_score_correction_bias"
    weights = load_file(directory / "model.safetensors")
    weights[name] = torch.arange(4.0)
    shutil.copytree(directory, tmp_path / "biased")
    save_file(weights, tmp_path / "biased" / "model.safetensors", metadata={"format": "pt"})
    model = load_model(tmp_path / "biased")
    model.save_hf(tmp_path / "saved", model.flat)
    assert load_file(tmp_path / "saved" / "model.safetensors")[name].tolist() == [0.0, 1.0, 2.0, 3.0]
