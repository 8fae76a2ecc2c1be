"""Model families: dimensions and weight names of Hugging Face models in Megatron's terms. Imports no torch.

`slime_trainer_megatron.config_json` reads them from a config.json.

Example:

    model = read_model({"model_type": "qwen3", ...})
    model.layers, [slot.name for weight in model.weights() for slot in weight.hf]
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from slime_core.roles import WeightDtype, WeightSlot


@dataclass(frozen=True, slots=True)
class LlamaRope:
    """Llama 3's rope scaling."""

    factor: float
    """Ratio of the context length to the pretraining length."""
    low: float
    """Wavelengths above `length / low` are scaled by the whole factor."""
    high: float
    """Wavelengths below `length / high` are unchanged."""
    length: int
    """Context length of pretraining, in tokens."""


@dataclass(frozen=True, slots=True)
class Yarn:
    """DeepSeek's rope scaling, YaRN (Peng et al. 2023, arXiv:2309.00071), in the terms of its config.json."""

    factor: float
    """Ratio of the context length to the pretraining length."""
    fast: float
    """Rotations within `length` at and above which a frequency is unchanged, `beta_fast`."""
    slow: float
    """Rotations up to which a frequency is scaled by the whole factor, `beta_slow`."""
    scale: float
    """Weight of the factor's logarithm in the scale of rotary dimensions, `mscale`."""
    scale_all: float
    """Weight of the factor's logarithm in the scale of all dimensions, `mscale_all_dim`."""
    length: int
    """Context length of pretraining, in tokens."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A Megatron parameter, and the Hugging Face weights in it."""

    layer: int | None
    """Its decoder layer, from 0; None for a weight outside of the layers."""
    name: str
    """Its name in the model, or in its layer."""
    hf: tuple[WeightSlot, ...]
    """Its Hugging Face weights, in the order that `slime_trainer_megatron.convert` expects."""
    expert: int | None = None
    """Its expert, from 0, for `{}` in the name; None for a weight outside of the experts."""

    def within(self, layer: int = 0, expert: int = 0) -> str:
        """Its name in a part of the model that starts at this layer and expert."""
        name = self.name if self.expert is None else self.name.format(self.expert - expert)
        return name if self.layer is None else f"decoder.layers.{self.layer - layer}.{name}"


@dataclass(frozen=True, slots=True)
class Router:
    """DeepSeek's routing by sigmoids (DeepSeek-AI 2024, arXiv:2412.19437, section 2.1.2)."""

    groups: int
    """Number of groups of experts; 1: no groups."""
    best: int
    """Number of groups that a token uses, chosen by score."""
    scale: float
    """Factor on the chosen experts' weights after they are normalized to 1."""


@dataclass(frozen=True, slots=True)
class Experts:
    """The mixture of experts that replaces MLPs."""

    count: int
    """Experts of a layer."""
    chosen: int
    """Number of experts that a token is routed to."""
    inner: int
    """Hidden width of one expert."""
    normalised: bool
    """Whether the chosen experts' weights are normalized to a sum of 1."""
    dense: int = 0
    """Number of layers at the start that have an MLP instead of experts."""
    shared: int = 0
    """Total hidden width of the shared experts, which all tokens use."""
    router: Router | None = None
    """How experts are chosen; None: by the largest logits, weighted by their softmax."""


@dataclass(frozen=True, slots=True)
class Latent:
    """DeepSeek's latent attention: keys and values from a small vector per token (arXiv:2412.19437, section 2.1.1)."""

    queries: int | None
    """Latent width of queries; None: queries are projected from the hidden states."""
    values: int
    """Latent width of keys and values."""
    plain: int
    """Width of a head's queries and keys without positions."""
    placed: int
    """Width of a head's queries and keys with positions; all heads share these keys. `Model.placed` is a fraction."""
    value: int
    """Width of a head's values."""

    def weights(self, hidden: int, heads: int) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        """Its parameters without the output projection: Megatron's name, Hugging Face's name, and the shape."""
        wide = heads * (self.plain + self.placed)
        if self.queries is None:
            yield "linear_q_proj.weight", "q_proj.weight", (wide, hidden)
        else:
            yield "linear_q_down_proj.weight", "q_a_proj.weight", (self.queries, hidden)
            yield "linear_q_up_proj.layer_norm_weight", "q_a_layernorm.weight", (self.queries,)
            yield "linear_q_up_proj.weight", "q_b_proj.weight", (wide, self.queries)
        yield "linear_kv_down_proj.weight", "kv_a_proj_with_mqa.weight", (self.values + self.placed, hidden)
        yield "linear_kv_up_proj.layer_norm_weight", "kv_a_layernorm.weight", (self.values,)
        yield "linear_kv_up_proj.weight", "kv_b_proj.weight", (heads * (self.plain + self.value), self.values)


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder, in terms common to all families."""

    family: str
    """`model_type` of its config.json."""
    layers: int
    """Decoder layers."""
    hidden: int
    """Hidden width."""
    inner: int
    """Hidden width of the MLP."""
    heads: int
    """Heads of queries."""
    groups: int
    """Heads of keys and values."""
    head: int
    """Width of a head."""
    vocab: int
    """Size of the vocabulary."""
    epsilon: float
    """Epsilon of the norms."""
    theta: float
    """Rope theta, the base of the rotary frequencies."""
    stretch: LlamaRope | Yarn | None
    """Rope scaling; None without."""
    tied: bool
    """Whether the output layer is the embedding."""
    qkv_bias: bool
    """Whether queries, keys and values have a bias."""
    qk_norm: bool
    """Whether queries and keys have a norm."""
    experts: Experts | None = None
    """Experts in place of the MLP; None without."""
    latent: Latent | None = None
    """Latent attention; None for grouped heads."""
    placed: float = 1.0
    """Fraction of a head with rotary positions."""
    interleaved: bool = False
    """Whether rotary pairs are adjacent elements; otherwise each pair takes one element of each half."""
    sandwiched: bool = False
    """Whether norms also follow attention and MLP, and gate and up are one Hugging Face weight."""
    further: int = 0
    """Number of multi-token-prediction (MTP) layers after the last layer."""
    bf16: bool = False
    """Whether to compute and publish in bf16; independent of the files' dtype."""

    @property
    def mixed(self) -> bool:
        """Whether only some of its layers have experts."""
        return self.experts is not None and self.experts.dense > 0

    def has_experts(self, layer: int) -> bool:
        """Whether a layer has experts."""
        return self.experts is not None and layer >= self.experts.dense

    def weights(self) -> Iterator[Weight]:
        """Every parameter, from the first layer to the last; with `bf16`, all except router biases are in bf16."""
        for weight in self._weights():
            yield _in_bf16(weight) if self.bf16 and not weight.name.endswith("expert_bias") else weight

    def _weights(self) -> Iterator[Weight]:
        yield Weight(None, "embedding.word_embeddings.weight", (self._embedding("model.embed_tokens.weight"),))
        for layer in range(self.layers):
            yield from self._of_layer(layer)
        yield Weight(None, "decoder.final_layernorm.weight", (WeightSlot("model.norm.weight", (self.hidden,)),))
        if not self.tied:
            yield Weight(None, "output_layer.weight", (self._embedding("lm_head.weight"),))
        for number in range(self.further):
            yield from self._mtp_weights(number)

    def _embedding(self, name: str) -> WeightSlot:
        return WeightSlot(name, (self.vocab, self.hidden))

    def _of_layer(self, layer: int) -> Iterator[Weight]:
        yield from self._attention(layer)
        if self.sandwiched:
            yield _norm(layer, "post_self_attn_layernorm", self.hidden)
        if self.experts and self.has_experts(layer):
            yield from self._mixture(layer, self.experts)
            return
        yield _weight(layer, "mlp.linear_fc1.layer_norm_weight", [("post_attention_layernorm.weight", (self.hidden,))])
        if self.sandwiched:
            yield _weight(layer, "mlp.linear_fc1.weight", [("mlp.gate_up_proj.weight", (2 * self.inner, self.hidden))])
            yield _weight(layer, "mlp.linear_fc2.weight", [("mlp.down_proj.weight", (self.hidden, self.inner))])
            yield _norm(layer, "post_mlp_layernorm", self.hidden)
        else:
            yield from _mlp(layer, "mlp", "mlp", self.hidden, self.inner)

    def _attention(self, layer: int) -> Iterator[Weight]:
        queries, keys, hidden = self.heads * self.head, self.groups * self.head, self.hidden
        qkv = (("q_proj", queries), ("k_proj", keys), ("v_proj", keys))

        def weight(name: str, *hf: tuple[str, tuple[int, ...]]) -> Weight:
            return _weight(layer, name, hf)

        if self.latent:
            yield _norm(layer, "input_layernorm", hidden)
            for ours, theirs, shape in self.latent.weights(hidden, self.heads):
                yield weight(f"self_attention.{ours}", (f"self_attn.{theirs}", shape))
            queries = self.heads * self.latent.value
        else:
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

    def _mtp_weights(self, number: int) -> Iterator[Weight]:
        """DeepSeek's module for multi-token prediction (arXiv:2412.19437, section 2.2), without shared weights."""
        ours, layer, hidden = f"mtp.layers.{number}", self.layers + number, self.hidden
        own = (
            ("enorm", "enorm", (hidden,)),
            ("hnorm", "hnorm", (hidden,)),
            ("eh_proj", "eh_proj", (hidden, 2 * hidden)),
            ("final_layernorm", "shared_head.norm", (hidden,)),
        )
        for name, theirs, shape in own:
            slot = WeightSlot(f"model.layers.{layer}.{theirs}.weight", shape)
            yield Weight(None, f"{ours}.{name}.weight", (slot,))
        for weight in self._of_layer(layer):
            yield replace(weight, layer=None, name=f"{ours}.transformer_layer.{weight.name}")

    def _mixture(self, layer: int, experts: Experts) -> Iterator[Weight]:
        yield _weight(layer, "pre_mlp_layernorm.weight", [("post_attention_layernorm.weight", (self.hidden,))])
        yield _weight(layer, "mlp.router.weight", [("mlp.gate.weight", (experts.count, self.hidden))])
        if experts.router:
            yield _weight(layer, "mlp.router.expert_bias", [("mlp.gate.e_score_correction_bias", (experts.count,))])
        if experts.shared:
            yield from _mlp(layer, "mlp.shared_experts", "mlp.shared_experts", self.hidden, experts.shared)
        for expert in range(experts.count):
            theirs, ours = f"mlp.experts.{expert}", "mlp.experts.local_experts.{}"
            yield from _mlp(layer, theirs, ours, self.hidden, experts.inner, expert)


def _weight(layer: int, name: str, hf: Iterable[tuple[str, tuple[int, ...]]], expert: int | None = None) -> Weight:
    return Weight(layer, name, tuple(WeightSlot(f"model.layers.{layer}.{at}", shape) for at, shape in hf), expert)


def _in_bf16(weight: Weight) -> Weight:
    return replace(weight, hf=tuple(replace(slot, dtype=WeightDtype.BFLOAT16) for slot in weight.hf))


def _norm(layer: int, name: str, width: int) -> Weight:
    return _weight(layer, f"{name}.weight", [(f"{name}.weight", (width,))])


def _mlp(layer: int, theirs: str, ours: str, hidden: int, inner: int, expert: int | None = None) -> Iterator[Weight]:
    gate_and_up = [(f"{theirs}.{at}_proj.weight", (inner, hidden)) for at in ("gate", "up")]
    yield _weight(layer, f"{ours}.linear_fc1.weight", gate_and_up, expert)
    yield _weight(layer, f"{ours}.linear_fc2.weight", [(f"{theirs}.down_proj.weight", (hidden, inner))], expert)
