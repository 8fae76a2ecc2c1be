"""Families: what a Hugging Face model is in Megatron's terms, its dimensions and the names of its weights. No torch.

One function a family reads its config.json; `FAMILIES` is what there is.

Example:

    model = read_model({"model_type": "qwen3", ...})
    model.layers, [weight.hf for weight in model.weights()]
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from slime_core.errors import ConfigError
from slime_core.roles import WeightSlot


@dataclass(frozen=True, slots=True)
class LlamaRope:
    """How Llama 3 stretches its positions."""

    factor: float
    """How many times longer texts are than those of the first training."""
    low: float
    """Waves longer than the first training's texts over this are stretched whole."""
    high: float
    """Those shorter than these texts over this are left alone."""
    length: int
    """Tokens of the first training's texts."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter of Megatron's, and the weights of Hugging Face's that it holds."""

    layer: int | None
    """Its decoder layer, from 0; None outside of them."""
    name: str
    """Its name in the model or in its layer."""
    hf: tuple[WeightSlot, ...]
    """What it holds, in the order in which `slime_trainer_megatron.convert` takes it."""
    expert: int | None = None
    """Its expert, from 0, for which `{}` stands in the name; None outside of them."""

    def within(self, layer: int = 0, expert: int = 0) -> str:
        """Its name in a part of the model whose layers and experts begin with these."""
        name = self.name if self.expert is None else self.name.format(self.expert - expert)
        return name if self.layer is None else f"decoder.layers.{self.layer - layer}.{name}"


@dataclass(frozen=True, slots=True)
class Experts:
    """The mixture of experts that a model has in place of MLPs."""

    count: int
    """Experts of a layer."""
    chosen: int
    """Those that a token goes to."""
    inner: int
    """Width inside of one."""
    normalised: bool
    """Whether the chosen ones' weights add up to 1."""


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder of the kind that all families here are."""

    family: str
    """`model_type` of its config.json."""
    layers: int
    """Decoder layers."""
    hidden: int
    """Width."""
    inner: int
    """Width inside of the MLP."""
    heads: int
    """Heads of queries."""
    groups: int
    """Heads of keys and values."""
    head: int
    """Width of a head."""
    vocab: int
    """Tokens."""
    epsilon: float
    """Of the norms."""
    theta: float
    """Base of the positions' waves."""
    stretch: LlamaRope | None
    """How they are stretched, if at all."""
    tied: bool
    """Whether the output layer is the embedding."""
    qkv_bias: bool
    """Whether queries, keys and values have a bias."""
    qk_norm: bool
    """Whether queries and keys have a norm."""
    experts: Experts | None = None
    """What its layers have in place of an MLP, if anything."""

    def weights(self) -> Iterator[Weight]:
        """Every parameter, from the first layer to the last; fp32."""
        yield Weight(None, "embedding.word_embeddings.weight", (self._embedding("model.embed_tokens.weight"),))
        for layer in range(self.layers):
            yield from self._of_layer(layer)
        yield Weight(None, "decoder.final_layernorm.weight", (WeightSlot("model.norm.weight", (self.hidden,)),))
        if not self.tied:
            yield Weight(None, "output_layer.weight", (self._embedding("lm_head.weight"),))

    def _embedding(self, name: str) -> WeightSlot:
        return WeightSlot(name, (self.vocab, self.hidden))

    def _of_layer(self, layer: int) -> Iterator[Weight]:
        queries, keys, hidden = self.heads * self.head, self.groups * self.head, self.hidden
        qkv = (("q_proj", queries), ("k_proj", keys), ("v_proj", keys))

        def weight(name: str, *hf: tuple[str, tuple[int, ...]]) -> Weight:
            return _weight(layer, name, hf)

        yield weight("self_attention.linear_qkv.layer_norm_weight", ("input_layernorm.weight", (hidden,)))
        yield weight(
            "self_attention.linear_qkv.weight", *((f"self_attn.{at}.weight", (rows, hidden)) for at, rows in qkv)
        )
        if self.qkv_bias:
            yield weight("self_attention.linear_qkv.bias", *((f"self_attn.{at}.bias", (rows,)) for at, rows in qkv))
        if self.qk_norm:
            yield weight("self_attention.q_layernorm.weight", ("self_attn.q_norm.weight", (self.head,)))
            yield weight("self_attention.k_layernorm.weight", ("self_attn.k_norm.weight", (self.head,)))
        yield weight("self_attention.linear_proj.weight", ("self_attn.o_proj.weight", (hidden, queries)))
        if self.experts:
            yield weight("pre_mlp_layernorm.weight", ("post_attention_layernorm.weight", (hidden,)))
            yield weight("mlp.router.weight", ("mlp.gate.weight", (self.experts.count, hidden)))
            for expert in range(self.experts.count):
                yield from _mlp(
                    layer, f"mlp.experts.{expert}", "mlp.experts.local_experts.{}", hidden, self.experts.inner, expert
                )
            return
        yield weight("mlp.linear_fc1.layer_norm_weight", ("post_attention_layernorm.weight", (hidden,)))
        yield from _mlp(layer, "mlp", "mlp", hidden, self.inner)


def _weight(layer: int, name: str, hf: Iterable[tuple[str, tuple[int, ...]]], expert: int | None = None) -> Weight:
    return Weight(layer, name, tuple(WeightSlot(f"model.layers.{layer}.{at}", shape) for at, shape in hf), expert)


def _mlp(layer: int, theirs: str, ours: str, hidden: int, inner: int, expert: int | None = None) -> Iterator[Weight]:
    """The matrices of an MLP with a gate, by its name in both."""
    gate_and_up = [(f"{theirs}.{at}_proj.weight", (inner, hidden)) for at in ("gate", "up")]
    yield _weight(layer, f"{ours}.linear_fc1.weight", gate_and_up, expert)
    yield _weight(layer, f"{ours}.linear_fc2.weight", [(f"{theirs}.down_proj.weight", (hidden, inner))], expert)


Config = Mapping[str, object]


def read_model(config: Config) -> Model:
    """What a config.json says.

    Raises:
        ConfigError: there is no converter for its family, or it has what the family's converter does not know.
    """
    family = str(config.get("model_type"))
    if family not in FAMILIES:
        raise ConfigError(
            f"trainer 'megatron' has no converter for models of model_type {family!r}; there are "
            f'{", ".join(sorted(FAMILIES))}. Train another model, or with [trainer] use = "local"'
        )
    return FAMILIES[family](config)


def read_directory(directory: Path) -> Model:
    """The model of a directory, by its config.json; errors as of `read_model`."""
    config: Config = json.loads((directory / "config.json").read_text("utf-8"))
    return read_model(config)


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


FAMILIES: Mapping[str, Callable[[Config], Model]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}
"""Who reads a config.json of each `model_type`."""


def _decoder(config: Config, *, qkv_bias: bool, qk_norm: bool) -> Model:
    _refuse(config, {"hidden_act": ("silu", None)})
    hidden, heads = _number(config, "hidden_size"), _number(config, "num_attention_heads")
    theta, stretch = _rope(config)
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


def _rope(config: Config) -> tuple[float, LlamaRope | None]:
    """The base of the positions' waves and their stretching, as transformers writes them, before 5.0 and since."""
    given = [each for each in (config.get("rope_scaling"), config.get("rope_parameters")) if isinstance(each, Mapping)]
    said: dict[str, object] = {key: value for each in given for key, value in each.items()}
    theta = _real(said.get("rope_theta", config.get("rope_theta")), 10000.0)
    kind = said.get("rope_type", said.get("type", "default"))
    if kind == "default":
        return theta, None
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    if kind != "llama3" or any(not isinstance(said.get(name), int | float) for name in names):
        raise ConfigError(
            f"trainer 'megatron' knows positions of rope_type 'default' and 'llama3'; the model's config.json says "
            f'{said}. Train another model, or with [trainer] use = "local"'
        )
    factor, low, high, length = (_real(said[name]) for name in names)
    return theta, LlamaRope(factor, low, high, int(length))


def _refuse(config: Config, known: Mapping[str, tuple[object, ...]]) -> None:
    for name, values in known.items():
        if (given := config.get(name)) not in values:
            raise ConfigError(
                f"trainer 'megatron' trains models of model_type {config.get('model_type')!r} with {name} = "
                f"{values[0]!r}; the model's config.json says {given!r}. Train another model, or with [trainer] use = "
                '"local"'
            )


def _number(config: Config, name: str, default: int | None = None) -> int:
    value = config.get(name)
    if isinstance(value, int) and value > 0:
        return value
    if value is None and default is not None:
        return default
    raise ConfigError(f"the model's config.json says {name} = {value!r}; expected a whole number over 0")


def _real(value: object, default: float | None = None) -> float:
    if isinstance(value, int | float):
        return float(value)
    assert default is not None, value
    return default
