"""Whole: a model as its checkpoint in torch_dist has it, weight by weight, without a layout and without a rank.

Layers are one tensor, with the layer as its first axis, and so are the experts of a layer. Where only some layers
have experts, each layer has tensors of its own. A checkpoint that is written so for other models is read, too.

Example:

    piece = whole_piece(model, weight, torch.bfloat16, lambda: fuse(model, weight, parts))
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from slime_trainer_megatron.families import Model, Weight
from slime_trainer_megatron.torch_dist import Piece

VOCABULARY = ("word_embeddings.weight", "output_layer.weight")
"""Parameters that are padded for a layout."""


def shape_of(weight: Weight, ranks: int = 1) -> tuple[int, ...]:
    """Of the whole parameter; the vocabulary's is padded to a multiple of the ranks."""
    rows = sum(slot.shape[0] for slot in weight.hf)
    return (rows + (-rows % ranks if weight.name.endswith(VOCABULARY) else 0), *weight.hf[0].shape[1:])


def whole_piece(model: Model, weight: Weight, dtype: torch.dtype, value: Callable[[], torch.Tensor]) -> Piece:
    """A parameter as a part of its stack of layers, or of its own layer's.

    Args:
        model: the whole.
        weight: which.
        dtype: what it is written in.
        value: makes it, of `shape_of(weight)`.
    """
    shape, padded = shape_of(weight), weight.name.endswith(VOCABULARY)
    name, stack = _name_of(weight), list[tuple[int, int]]()
    if weight.layer is not None:
        name = f"decoder.layers.{f'{weight.layer}.' if model.mixed else ''}{name}"
        stack += [] if model.mixed else [(weight.layer, model.layers)]
    if weight.expert is not None:
        assert model.experts is not None, "a model without experts has none of their weights"
        stack.append((weight.expert, model.experts.count))
    return Piece(
        name,
        (*(count for _, count in stack), *shape),
        (*(number for number, _ in stack), *(0,) * len(shape)),
        (*(1,) * len(stack), *shape),
        dtype,
        value,
        padded,
    )


def as_stored(piece: Piece, weight: Weight, shapes: Mapping[str, tuple[int, ...]]) -> Piece:
    """The same piece where a checkpoint has it: in its stack of layers, or in a tensor of its own layer."""
    alone = f"decoder.layers.{weight.layer}.{_name_of(weight)}"
    if weight.layer is None or piece.key in shapes or alone not in shapes:
        return piece
    return replace(piece, key=alone, shape=piece.shape[1:], offset=piece.offset[1:], sizes=piece.sizes[1:])


def _name_of(weight: Weight) -> str:
    return weight.name.replace("local_experts.{}", "experts")
