"""The weights of a Llama-like decoder as views of a flat vector, in the shapes its matrix products use."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from itertools import zip_longest
from math import prod

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Slot:
    """One weight: its Hugging Face state-dict name and its place, counted in fp32 elements."""

    name: str
    shape: tuple[int, ...]
    offset: int
    numel: int

    def view(self, flat: Tensor) -> Tensor:
        """The weight as a view of the flat vector."""
        return flat.narrow(0, self.offset, self.numel).view(self.shape)


def lay_out(shapes: Iterable[tuple[str, Sequence[int]]]) -> tuple[Slot, ...]:
    """Place weights one after another in the given order."""
    slots: list[Slot] = []
    offset = 0
    for name, shape in shapes:
        numel = prod(shape)
        slots.append(Slot(name, tuple(shape), offset, numel))
        offset += numel
    return tuple(slots)


def joined_view(flat: Tensor, slots: Sequence[Slot]) -> Tensor:
    """Neighbouring weights with equal trailing dimensions as one view, stacked along the first.

    Raises:
        ValueError: the slots are not neighbours.
    """
    end = slots[0].offset
    for slot in slots:
        if slot.offset != end:
            raise ValueError(f"{slot.name} starts at {slot.offset}, expected {end}: only adjacent slots share a view")
        end += slot.numel
    rows = sum(slot.shape[0] for slot in slots)
    return flat.narrow(0, slots[0].offset, end - slots[0].offset).view(rows, *slots[0].shape[1:])


def check_flat(flat: Tensor, numel: int) -> None:
    """Refuse a vector the layout does not fit.

    Raises:
        ValueError: it is not a contiguous fp32 vector of `numel` elements.
    """
    if not (flat.dtype == torch.float32 and flat.shape == (numel,) and flat.is_contiguous()):
        raise ValueError(
            f"the model needs a contiguous float32 vector of {numel} elements;"
            f" got {flat.dtype} of shape {tuple(flat.shape)}"
        )


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer; q/k/v and gate/up are single matrices."""

    norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    o: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All weights; `head` is `embed` itself where they are tied."""

    embed: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor


@dataclass(frozen=True, slots=True)
class DecoderTrained:
    """Fields of weights that have a gradient; a joined matrix counts if any part is trained."""

    embed: bool
    layers: tuple[frozenset[str], ...]
    """The fields of each layer's weights."""
    norm: bool
    head: bool

    @classmethod
    def of(cls, names: Set[str], layers: int) -> "DecoderTrained":
        """The trained fields for these state-dict names."""
        return cls(
            _EMBED in names,
            tuple(
                frozenset(
                    field
                    for field, parts in _LAYER.items()
                    if any(f"model.layers.{i}.{part}" in names for part in parts)
                )
                for i in range(layers)
            ),
            _NORM in names,
            _HEAD in names,
        )


_LAYER = {
    "norm": ("input_layernorm.weight",),
    "qkv": ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"),
    "qkv_bias": ("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"),
    "q_norm": ("self_attn.q_norm.weight",),
    "k_norm": ("self_attn.k_norm.weight",),
    "o": ("self_attn.o_proj.weight",),
    "mlp_norm": ("post_attention_layernorm.weight",),
    "gate_up": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
    "down": ("mlp.down_proj.weight",),
}
_EMBED, _NORM, _HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


def decoder_order(names: Mapping[str, object], layers: int) -> list[str]:
    """The state-dict names in flat order: those used by one matrix product are neighbours.

    Raises:
        ValueError: `names` has a weight that this decoder has no place for.
    """
    wanted = [_EMBED]
    wanted += [f"model.layers.{i}.{part}" for i in range(layers) for parts in _LAYER.values() for part in parts]
    wanted += [_NORM, _HEAD]
    strangers = sorted(set(names) - set(wanted))
    if strangers:
        raise ValueError(f"a Llama-like decoder of {layers} layers has no weights named {', '.join(strangers[:5])}")
    return [name for name in wanted if name in names]


def view_weights(flat: Tensor, slots: Mapping[str, Slot], layers: int) -> DecoderWeights:
    """Views of `flat`; no copy."""

    def layer(i: int) -> LayerWeights:
        views = {}
        for field, parts in _LAYER.items():
            found = [slots[name] for part in parts if (name := f"model.layers.{i}.{part}") in slots]
            views[field] = joined_view(flat, found) if found else None
        return LayerWeights(**views)  # type: ignore[arg-type]  # only the optional ones are ever None

    embed = slots[_EMBED].view(flat)
    head = slots[_HEAD].view(flat) if _HEAD in slots else embed
    return DecoderWeights(embed, tuple(layer(i) for i in range(layers)), slots[_NORM].view(flat), head)


def rounded_layers(weights: DecoderWeights, into: Sequence[LayerWeights] = ()) -> tuple[LayerWeights, ...]:
    """A copy of the layers with bf16 matrices, written `into` an earlier copy if given; norms and biases stay fp32."""

    def layer(w: LayerWeights, kept: LayerWeights | None) -> LayerWeights:
        copies = {}
        for name in ("qkv", "o", "gate_up", "down"):
            matrix: Tensor = getattr(w, name)
            copies[name] = matrix.bfloat16() if kept is None else getattr(kept, name).copy_(matrix)
        return replace(w, **copies)

    return tuple(layer(w, kept) for w, kept in zip_longest(weights.layers, into))


def leaves(weights: DecoderWeights, gradients: DecoderWeights, trained: DecoderTrained) -> DecoderWeights:
    """The same storage as autograd leaves whose `.grad` is the matching view of a gradient vector.

    Backward adds in place, so the sum over micro-batches lands in the vector without a gathering step. Frozen
    weights are no leaves, and their gradients are not computed.
    """

    def leaf(weight: Tensor, gradient: Tensor, is_trained: bool) -> Tensor:
        if not is_trained:
            return weight.detach()
        parameter = weight.detach().requires_grad_()
        parameter.grad = gradient
        return parameter

    def layer(w: LayerWeights, g: LayerWeights, names: frozenset[str]) -> LayerWeights:
        pairs = ((field.name, getattr(w, field.name), getattr(g, field.name)) for field in fields(LayerWeights))
        return replace(w, **{name: leaf(a, b, name in names) for name, a, b in pairs if a is not None})

    embed = leaf(weights.embed, gradients.embed, trained.embed)
    return DecoderWeights(
        embed,
        tuple(map(layer, weights.layers, gradients.layers, trained.layers)),
        leaf(weights.norm, gradients.norm, trained.norm),
        embed if weights.head is weights.embed else leaf(weights.head, gradients.head, trained.head),
    )
