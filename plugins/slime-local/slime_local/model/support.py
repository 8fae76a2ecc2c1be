"""Computation path of a Hugging Face causal LM, from its config.json only. Imports no torch.

path, why = explain_path(json.loads((hf_dir / "config.json").read_text()))
"""

from collections.abc import Mapping
from typing import Literal

ModelPath = Literal["fast", "plain"]

FAST_FAMILIES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
"""`model_type` of the decoders with pre-norm RMSNorm, rotary positions and a SiLU-gated MLP."""

STATIC_ROPES = {"default", "linear", "llama3", "yarn"}
"""Rope types whose frequencies do not change with the length of the text."""

_MISTRAL_WINDOW = 4096  # what a config.json without the key means


def explain_path(config_json: Mapping[str, object]) -> tuple[ModelPath, str]:
    """Path for a model, and one sentence on the reason.

    Args:
        config_json: the parsed config.json of a Hugging Face causal LM.
    """
    family = str(config_json.get("model_type", ""))
    if family not in FAST_FAMILIES:
        known = ", ".join(FAST_FAMILIES.values())
        return "plain", f"model_type {family!r} runs through Hugging Face; the fast path knows {known}."
    for obstacle in (_mlp_obstacle, _attention_obstacle, _rope_obstacle):
        found = obstacle(family, config_json)
        if found:
            return "plain", f"{FAST_FAMILIES[family]} with {found} runs through Hugging Face."
    return "fast", f"{FAST_FAMILIES[family]} decoder: static KV cache, shared prefixes computed once, fused kernels."


def _mlp_obstacle(family: str, config: Mapping[str, object]) -> str | None:
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        return f"hidden_act {activation!r} (not silu)"
    if config.get("mlp_bias"):
        return "a bias in its MLP"
    return None


def _attention_obstacle(family: str, config: Mapping[str, object]) -> str | None:
    if family != "qwen2" and config.get("attention_bias"):
        return "a bias on its attention output"
    if family == "mistral":
        if config.get("sliding_window", _MISTRAL_WINDOW) is not None:
            return "a sliding window"
    elif family != "llama" and config.get("use_sliding_window"):
        return "a sliding window"
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and any(kind != "full_attention" for kind in kinds):
        return "layers of several attention types"
    return None


def _rope_obstacle(family: str, config: Mapping[str, object]) -> str | None:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        return "rope parameters of an unknown form"
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in STATIC_ROPES:
        return f"rope type {kind!r}, whose frequencies depend on the length,"
    share = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if share not in (None, 1, 1.0):
        return "rotary positions on a part of each head"
    return None
