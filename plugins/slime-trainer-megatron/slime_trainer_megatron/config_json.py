"""Reads a config.json as a model in Megatron's terms. Imports no torch.

`FAMILIES` has one reader function per family. Unsupported values are rejected with the key's name.

Example:

    model = read_directory(Path("models/Qwen3-4B"))
    model.layers, model.experts
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from slime_core.errors import ConfigError
from slime_trainer_megatron.families import Experts, Latent, LlamaRope, Model, Router, Yarn

Config = Mapping[str, object]


def read_model(config: Config) -> Model:
    """The model of a config.json.

    Raises:
        ConfigError: the family, or the value of a key, is not supported.
    """
    family = str(config.get("model_type"))
    if family not in FAMILIES:
        raise ConfigError(
            f"trainer 'megatron' does not support model_type {family!r}; supported are "
            f'{", ".join(sorted(FAMILIES))}. Use another model, or set [trainer] use = "local"'
        )
    return FAMILIES[family](config)


def with_mtp(config: Config, layers: int) -> Model:
    """The model of a config.json, with `layers` layers for multi-token prediction.

    Raises:
        ConfigError: as `read_model`, or the model has another number of these layers.
    """
    model, available = read_model(config), mtp_layer_count(config)
    if layers and layers != available:
        found = f"num_nextn_predict_layers = {available}; give {available}, or" if available else "no layers for that;"
        raise ConfigError(
            f"[trainer.megatron] mtp_num_layers = {layers} has no effect here: the model ({model.family}) has {found} "
            "leave it out"
        )
    return replace(model, further=layers)


def mtp_layer_count(config: Config) -> int:
    """Number of layers for multi-token prediction in a config.json."""
    given = config.get("num_nextn_predict_layers") if config.get("model_type") in MTP_FAMILIES else 0
    return given if isinstance(given, int) else 0


def read_directory(directory: Path, *, bf16: bool = False, mtp_layers: int = 0) -> Model:
    """The model of a directory, by its config.json, in fp32 or bf16; errors as of `with_mtp`."""
    return replace(with_mtp(config_of(directory), mtp_layers), bf16=bf16)


def config_of(directory: Path) -> Config:
    """A directory's config.json."""
    config: Config = json.loads((directory / "config.json").read_text("utf-8"))
    return config


def _qwen2(config: Config) -> Model:
    _refuse(config, {"use_sliding_window": (False, None)})
    return _decoder(config, qkv_bias=True, qk_norm=False)


def _qwen3(config: Config) -> Model:
    _refuse(config, {"use_sliding_window": (False, None), "attention_bias": (False, None)})
    return _decoder(config, qkv_bias=False, qk_norm=True)


def _qwen3_moe(config: Config) -> Model:
    _refuse(config, {"mlp_only_layers": ([], None), "decoder_sparse_step": (1, None)})
    experts = Experts(
        count=_number({"num_experts": config.get("num_local_experts"), **config}, "num_experts"),
        chosen=_number(config, "num_experts_per_tok"),
        inner=_number(config, "moe_intermediate_size"),
        normalised=bool(config.get("norm_topk_prob", False)),
    )
    return replace(_qwen3(config), experts=experts)


def _llama(config: Config) -> Model:
    _refuse(config, {"attention_bias": (False, None), "mlp_bias": (False, None), "pretraining_tp": (1, None)})
    return _decoder(config, qkv_bias=False, qk_norm=False)


def _glm4(config: Config) -> Model:
    config = {"head_dim": 128, **config}
    found = _decoder(config, qkv_bias=bool(config.get("attention_bias", True)), qk_norm=False)
    return replace(found, placed=_rotary_fraction(config, 0.5), interleaved=True, sandwiched=True)


def _glm4_moe(config: Config) -> Model:
    qk_norm = bool(config.get("use_qk_norm", False))
    found = _decoder(config, qkv_bias=bool(config.get("attention_bias", False)), qk_norm=qk_norm)
    return replace(found, placed=_rotary_fraction(config, 0.5), experts=_sigmoid_experts(config, dense=1))


def _deepseek_v3(config: Config) -> Model:
    known = {"attention_bias": (False, None), "rope_interleave": (True, None), "moe_layer_freq": (1, None)}
    _refuse(config, known)
    heads = _number(config, "num_attention_heads")
    _refuse(config, {"num_key_value_heads": (heads, None)})
    latent = Latent(
        queries=None if config.get("q_lora_rank") is None else _number(config, "q_lora_rank"),
        values=_number(config, "kv_lora_rank"),
        plain=_number(config, "qk_nope_head_dim"),
        placed=_number(config, "qk_rope_head_dim"),
        value=_number(config, "v_head_dim"),
    )
    theta, stretch = _rope(config, "yarn")
    found = _decoder({**config, "rope_scaling": None, "rope_parameters": None}, qkv_bias=False, qk_norm=False)
    return replace(
        found,
        theta=theta,
        stretch=stretch,
        latent=latent,
        experts=_sigmoid_experts(config, dense=3),
        head=latent.value,
    )


def _sigmoid_experts(config: Config, dense: int) -> Experts:
    """The experts of DeepSeek-V3 and of model families with the same routing.

    Args:
        config: the model's.
        dense: number of first layers without experts, if the config does not give it.
    """
    chosen, count = _number(config, "num_experts_per_tok"), _number(config, "n_routed_experts")
    groups = _number(config, "n_group", 1)
    best = _number(config, "topk_group", groups)
    # Megatron ranks a group by the sum of its best num_experts_per_tok / topk_group experts, transformers by the sum of
    # its best two: both counts must agree.
    _refuse(
        config,
        {
            "norm_topk_prob": (True, None),
            "scoring_func": ("sigmoid", None),
            "topk_method": ("noaux_tc", None),
            **({"num_experts_per_tok": (2 * best,)} if best < groups else {}),
        },
    )
    inner = _number(config, "moe_intermediate_size")
    given = config.get("first_k_dense_replace", dense)
    return Experts(
        count=count,
        chosen=chosen,
        inner=inner,
        normalised=True,
        dense=0 if given == 0 else _number(config, "first_k_dense_replace", dense),
        shared=_number(config, "n_shared_experts", 1) * inner,
        router=Router(
            groups if best < groups else 1,
            best if best < groups else 1,
            _real(config.get("routed_scaling_factor"), 1.0),
        ),
    )


FAMILIES: Mapping[str, Callable[[Config], Model]] = {
    "deepseek_v3": _deepseek_v3,
    "glm4": _glm4,
    "glm4_moe": _glm4_moe,
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}
"""Reader of config.json for each `model_type`."""
MTP_FAMILIES = ("deepseek_v3", "glm4_moe")
"""Model types that may have layers for multi-token prediction."""


def _decoder(config: Config, *, qkv_bias: bool, qk_norm: bool) -> Model:
    _refuse(config, {"hidden_act": ("silu", None)})
    hidden, heads = _number(config, "hidden_size"), _number(config, "num_attention_heads")
    theta, stretch = _rope(config, "llama3")
    return Model(
        family=str(config["model_type"]),
        layers=_number(config, "num_hidden_layers"),
        hidden=hidden,
        inner=_number(config, "intermediate_size"),
        heads=heads,
        groups=_number(config, "num_key_value_heads", heads),
        head=_number(config, "head_dim", hidden // heads),
        vocab=_number(config, "vocab_size"),
        epsilon=_real(config.get("rms_norm_eps"), 1e-6),
        theta=theta,
        stretch=stretch,
        tied=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=qkv_bias,
        qk_norm=qk_norm,
    )


ROPE_SCALING_KEYS: Mapping[str, tuple[str, ...]] = {
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "original_max_position_embeddings"),
}
"""Keys of each `rope_type` that extends the context."""


def _rope_parameters(config: Config) -> dict[str, object]:
    """The rope parameters, from the key of transformers 5.0 or of earlier releases."""
    given = [each for each in (config.get("rope_scaling"), config.get("rope_parameters")) if isinstance(each, Mapping)]
    return {key: value for each in given for key, value in each.items()}


def _rotary_fraction(config: Config, default: float) -> float:
    name = "partial_rotary_factor"
    return _real(_rope_parameters(config).get(name, config.get(name)), default)


def _rope(config: Config, stretched: str) -> tuple[float, LlamaRope | Yarn | None]:
    rope = _rope_parameters(config)
    theta = _real(rope.get("rope_theta", config.get("rope_theta")), 10000.0)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return theta, None
    names, given = ROPE_SCALING_KEYS[stretched], {"beta_fast": 32.0, "beta_slow": 1.0, **rope}
    values = [given.get(name) for name in names]
    known = all(isinstance(each, int | float) and each for each in values)
    if kind != stretched or not known or rope.get("attention_factor") is not None:
        raise ConfigError(
            f"trainer 'megatron' supports rope_type 'default' and {stretched!r} for model_type "
            f"{config.get('model_type')!r}, the latter with {', '.join(names)}; the model's config.json says {rope}. "
            'Use another model, or set [trainer] use = "local"'
        )
    *numbers, length = (_real(each) for each in values)
    if stretched == "yarn":
        factor, fast, slow, scale, scale_all = numbers
        return theta, Yarn(factor, fast, slow, scale, scale_all, int(length))
    factor, low, high = numbers
    return theta, LlamaRope(factor, low, high, int(length))


def _refuse(config: Config, known: Mapping[str, tuple[object, ...]]) -> None:
    for name, values in known.items():
        if (given := config.get(name)) not in values:
            raise ConfigError(
                f"trainer 'megatron' supports model_type {config.get('model_type')!r} only with {name} = "
                f"{values[0]!r}; the model's config.json says {given!r}. Use another model, or set [trainer] use = "
                '"local"'
            )


def _number(config: Config, name: str, default: int | None = None) -> int:
    value = config.get(name)
    if isinstance(value, int) and value > 0:
        return value
    if value is None and default is not None:
        return default
    raise ConfigError(f"the model's config.json says {name} = {value!r}; expected a whole number above 0")


def _real(value: object, default: float | None = None) -> float:
    if isinstance(value, int | float):
        return float(value)
    assert default is not None, value
    return default
