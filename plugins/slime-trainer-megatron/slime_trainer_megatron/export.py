"""Export: sends the weights to rank 0 one parameter after another, under Hugging Face's names.

The ranks of one replica send their parts directly to rank 0; other replicas do nothing. Later parameters are in
transfer while the caller uses one. Rank 0 holds at most one parameter and `AHEAD` bytes of other ranks' weights.

Example:

    for name, tensor in export_weights(policy, model):
        ...                                             # on rank 0; on other ranks the iterator yields nothing
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

from slime_trainer_megatron.convert import is_split, split, views_of
from slime_trainer_megatron.families import Model, Weight
from slime_trainer_megatron.layout import Layout
from slime_trainer_megatron.model import Policy, current_layout, own_parameters, weights_with_stages
from slime_trainer_megatron.torch_dist import Piece

AHEAD = 2**24
"""Approximate bytes of parameters in transfer at once; one larger parameter is sent alone."""


@dataclass(frozen=True)
class _Transfer:
    """A parameter in transfer to rank 0."""

    weight: Weight
    whole: torch.Tensor | None
    """The whole parameter on rank 0, or its receive buffer; None elsewhere."""
    copies: Sequence[tuple[torch.Tensor, torch.Tensor]]
    """Views of the buffer to fill from other tensors after the transfer."""
    works: Sequence[dist.Work | None]
    nbytes: int


@torch.no_grad()
def export_weights(policy: Policy, model: Model) -> Iterator[tuple[str, torch.Tensor]]:
    """Every weight, in the model's order; not a copy if rank 0 holds the whole parameter.

    Args:
        policy: this rank's part.
        model: the whole model.
    """
    mine, layout = own_parameters(policy, model), current_layout()
    transfers, ahead = deque[_Transfer](), 0
    for number, (weight, stage) in enumerate(weights_with_stages(model, policy.config)):
        own = mine[weight.within()][1].detach() if weight.within() in mine else None
        sources = _sources(layout, model, weight, stage)
        begin = _receive if dist.get_rank() == 0 else _send
        transfers.append(begin(weight, number, own, sources))
        ahead += transfers[-1].nbytes
        while ahead > AHEAD:
            ahead -= transfers[0].nbytes
            yield from _finish(transfers.popleft(), model)
    while transfers:
        yield from _finish(transfers.popleft(), model)


def _sources(layout: Layout, model: Model, weight: Weight, stage: int) -> range:
    first = layout.holder(stage, layout.part_of(weight, model))
    if not is_split(weight):
        return range(first, first + 1)
    return range(first, first + (layout.tensor if weight.expert is None else layout.expert_tensor))


def _receive(weight: Weight, number: int, own: torch.Tensor | None, sources: range) -> _Transfer:
    """Start a receive on rank 0, directly into the parameter's memory where possible."""
    if list(sources) == [0]:
        return _Transfer(weight, own, (), (), 0)
    dtype: torch.dtype = getattr(torch, weight.hf[0].dtype.value)
    whole = torch.empty(shape_of(weight, len(sources)), dtype=dtype)
    copies, works = list[tuple[torch.Tensor, torch.Tensor]](), list[dist.Work | None]()
    for source in sources:
        views = views_of(weight, whole, source - sources[0], len(sources))
        if source == 0:
            assert own is not None, f"rank 0 holds {weight}"
            copies += zip(views, torch.split(own, [len(view) for view in views]), strict=True)
            continue
        for view in views:
            target = view if view.is_contiguous() else torch.empty_like(view, memory_format=torch.contiguous_format)
            works.append(dist.irecv(target, source, tag=number))
            copies += [] if target is view else [(view, target)]
    return _Transfer(weight, whole, copies, works, whole.nbytes)


def _send(weight: Weight, number: int, own: torch.Tensor | None, sources: range) -> _Transfer:
    if dist.get_rank() not in sources:
        return _Transfer(weight, None, (), (), 0)
    assert own is not None, f"rank {dist.get_rank()} holds {weight}"
    chunks = len(views_of(weight, own, 0, 1))  # all of equal length
    works = [dist.isend(chunk.contiguous(), 0, tag=number) for chunk in own.chunk(chunks)]
    return _Transfer(weight, None, (), works, own.nbytes)


def _finish(transfer: _Transfer, model: Model) -> Iterator[tuple[str, torch.Tensor]]:
    for work in transfer.works:
        assert work is not None, "all ranks are in the group"
        work.wait()
    for view, part in transfer.copies:
        view.copy_(part)
    if transfer.whole is not None:
        parts = split(model, transfer.weight, transfer.whole)
        yield from zip((slot.name for slot in transfer.weight.hf), parts, strict=True)


VOCABULARY = ("word_embeddings.weight", "output_layer.weight")
"""Parameters that are padded to a multiple of the tensor-parallel ranks."""


def shape_of(weight: Weight, ranks: int = 1) -> tuple[int, ...]:
    """Shape of the whole parameter; the vocabulary is padded to a multiple of the ranks."""
    rows = sum(slot.shape[0] for slot in weight.hf)
    return (rows + (-rows % ranks if weight.name.endswith(VOCABULARY) else 0), *weight.hf[0].shape[1:])


def whole_piece(model: Model, weight: Weight, dtype: torch.dtype, value: Callable[[], torch.Tensor]) -> Piece:
    """A parameter as a piece of its stack of layers, or as a tensor of one layer.

    Args:
        model: the whole model.
        weight: the parameter's weight.
        dtype: dtype in the file.
        value: returns the tensor, of `shape_of(weight)`.
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
    """The piece under the key that a checkpoint uses: in a stack of layers, or in a tensor for its layer."""
    alone = f"decoder.layers.{weight.layer}.{_name_of(weight)}"
    if weight.layer is None or piece.key in shapes or alone not in shapes:
        return piece
    return replace(piece, key=alone, shape=piece.shape[1:], offset=piece.offset[1:], sizes=piece.sizes[1:])


def _name_of(weight: Weight) -> str:
    return weight.name.replace("local_experts.{}", "experts")
