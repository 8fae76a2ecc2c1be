"""Which models the fast path takes, told without torch."""

import subprocess
import sys

from slime_local.model.support import explain_path
from tests.tables import table

FAST = [
    {"model_type": "llama"},
    {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 4096},
    {"model_type": "qwen3", "layer_types": ["full_attention"] * 2},
    {"model_type": "mistral", "sliding_window": None},
    {"model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
    {"model_type": "qwen2", "rope_parameters": {"rope_type": "yarn", "factor": 4.0}},
    {"model_type": "llama", "rope_scaling": None},
]
PLAIN = [
    ({"model_type": "gpt2"}, "'gpt2'"),
    ({}, "''"),
    ({"model_type": "mistral"}, "sliding window"),
    ({"model_type": "qwen3", "use_sliding_window": True}, "sliding window"),
    ({"model_type": "qwen2", "layer_types": ["full_attention", "sliding_attention"]}, "several attention types"),
    ({"model_type": "llama", "attention_bias": True}, "bias on its attention output"),
    ({"model_type": "llama", "mlp_bias": True}, "bias in its MLP"),
    ({"model_type": "qwen3", "hidden_act": "gelu"}, "'gelu'"),
    ({"model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic'"),
    ({"model_type": "llama", "rope_parameters": {"rope_type": "longrope"}}, "'longrope'"),
    ({"model_type": "llama", "partial_rotary_factor": 0.5}, "a part of each head"),
    ({"model_type": "llama", "rope_scaling": 3}, "unknown form"),
]


@table("config", FAST)
def test_llama_like_decoders_are_fast(config: dict[str, object]) -> None:
    path, why = explain_path(config)
    assert path == "fast"
    assert "static KV cache" in why


@table("config, reason", PLAIN)
def test_other_models_are_plain_with_a_reason(config: dict[str, object], reason: str) -> None:
    path, why = explain_path(config)
    assert path == "plain"
    assert reason in why


def test_explain_path_imports_no_torch() -> None:
    code = (
        "import sys; from slime_local.model import explain_path; explain_path({'model_type': 'llama'});"
        " sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'transformers')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
