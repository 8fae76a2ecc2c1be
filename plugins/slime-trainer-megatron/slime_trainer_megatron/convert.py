"""Converts Hugging Face weights to Megatron parameters and back, whole or for a tensor-parallel rank.

The conversion only copies and rearranges, so a round trip is bitwise exact. Moments have their weight's shape and are
converted in the same way.

Example:

    whole = fuse(model, weight, [q, k, v])                     # [groups * (queries + 2) * head, hidden]
    part = cut(weight, whole, rank=0, ranks=2)
    (rows,) = views_of(weight, whole, rank=0, ranks=2)         # the views of `whole` that hold this part
    q, k, v = split(model, weight, whole)
"""

from collections.abc import Sequence

import torch

from slime_trainer_megatron.families import Model, Weight

ROWS = (
    "word_embeddings.weight",
    "output_layer.weight",
    "linear_qkv.weight",
    "linear_qkv.bias",
    "linear_q_proj.weight",
    "linear_q_up_proj.weight",
    "linear_kv_up_proj.weight",
    "linear_fc1.weight",
    "eh_proj.weight",
)
"""Parameters that are split over tensor-parallel ranks by rows."""
COLUMNS = ("linear_proj.weight", "linear_fc2.weight")
"""Parameters that are split by columns."""


def fuse(model: Model, weight: Weight, hf: Sequence[torch.Tensor]) -> torch.Tensor:
    """Megatron's parameter, fused from the Hugging Face weights in it.

    Queries, keys and values are stored by group, because Megatron gives a rank whole groups.
    """
    if "linear_qkv." in weight.name and len(hf) > 1:
        parts = [_by_group(model, each) for each in hf]
        return torch.cat(parts, 1).flatten(0, 1)
    return torch.cat(list(hf)) if len(hf) > 1 else hf[0]


def split(model: Model, weight: Weight, whole: torch.Tensor) -> list[torch.Tensor]:
    """The Hugging Face weights in a parameter, without padding of the vocabulary."""
    if "linear_qkv." in weight.name and len(weight.hf) > 1:
        queries = model.heads // model.groups * model.head
        parts = torch.split(_by_group(model, whole), [queries, model.head, model.head], 1)
        return [part.flatten(0, 1) for part in parts]
    return list(torch.split(whole, [slot.shape[0] for slot in weight.hf] + _rest(weight, whole)))[: len(weight.hf)]


def cut(weight: Weight, whole: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """A rank's part of a parameter; the vocabulary is padded with zeros to a multiple of the ranks."""
    missing = -len(whole) % ranks if weight.name.endswith(ROWS) else 0
    padded = torch.cat([whole, whole.new_zeros(missing, *whole.shape[1:])]) if missing else whole
    parts = views_of(weight, padded, rank, ranks)
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def views_of(weight: Weight, whole: torch.Tensor, rank: int, ranks: int) -> list[torch.Tensor]:
    """The views of a whole, padded parameter that form a rank's part, in the order of its rows."""
    if "linear_fc1.weight" in weight.name:
        return [half.chunk(ranks)[rank] for half in whole.chunk(2)]
    if weight.name.endswith(ROWS):
        return [whole.chunk(ranks)[rank]]
    return [whole.chunk(ranks, 1)[rank] if weight.name.endswith(COLUMNS) else whole]


def is_split(weight: Weight) -> bool:
    """Whether tensor-parallel ranks have only parts of a parameter."""
    return weight.name.endswith(ROWS + COLUMNS)


def _by_group(model: Model, rows: torch.Tensor) -> torch.Tensor:
    return rows.reshape(model.groups, -1, *rows.shape[1:])


def _rest(weight: Weight, whole: torch.Tensor) -> list[int]:
    rest = len(whole) - sum(slot.shape[0] for slot in weight.hf)
    return [rest] if rest else []
